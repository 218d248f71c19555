"""Bad files of a run: settings, journal and checkpoints."""

import functools
import hashlib
import json
import os
import pathlib
import shutil

from bad_files import DEEP

from legonet_jax.runs import journal

RUN, STORE = pathlib.Path("run"), pathlib.Path("bad")
GONE = object()
NESTED = b'{"a":' + DEEP
# Where a JSON file should be; all of them are refused by whoever reads it.
NO_JSON = {
  "nested deeply": DEEP,
  "an object nested deeply": NESTED,
  "a list": b"[]",
  "a null": b"null",
  "not JSON": b"{",
  "empty": b"",
  "bytes": bytes(range(256)),
  "a number of 5,000 digits": b'{"version": ' + b"9" * 5000 + b"}",
}


def put(path, data):
  pathlib.Path(path).write_bytes(data)


def edited(value, keys, new):
  """Sets (or drops) the field that a list of keys leads to."""
  *way, last = keys
  for key in way:
    value = value[key]
  if new is GONE:
    del value[last]
  else:
    value[last] = new


def edit(path, keys, new):
  value = json.loads(pathlib.Path(path).read_bytes())
  edited(value, keys, new)
  put(path, json.dumps(value).encode())


def link(path):
  """A link to the file itself, which is elsewhere."""
  moved = pathlib.Path("moved").absolute()
  path.rename(moved)
  path.symlink_to(moved)


# What may stand where a file should be.
INSTEAD = {
  "missing": lambda path: path.unlink(),
  "a folder": lambda path: (path.unlink(), path.mkdir()),
  "a FIFO": lambda path: (path.unlink(), os.mkfifo(path)),
  "a link": link,
  "a link to nothing": lambda path: (path.unlink(), path.symlink_to("none")),
}


def shown(new):
  return "missing" if new is GONE else ascii(new)[:40]


SETTINGS_VALUES = {
  ("version",): (GONE, 2, "1", None, []),
  ("config",): (GONE, None, 5, "x", [], {}, {"type": "Sgd"}, {"type": ["LegoConfig"]}),
  ("stores",): (GONE, None, "store", {}, [5], [None]),
  ("classes",): (5, "abc", {}, [5], ["a"], ["a", "b", "b"], ["a", "b", "\x1b[2J\n"]),
  ("config", "num_classes"): (GONE, None, "3", 2.5, True, 1, 10**30, []),
  ("config", "num_adapters"): (None, "4", 0),
  ("config", "top_k"): (None, 0, 5, {}),
  ("config", "seed"): (None, -1, "0", 2**40),
  ("config", "key_policy"): (None, "x", []),
  ("config", "key_noise"): (None, "0.1", -1, float("nan")),
  ("config", "feature_map"): (None, "x", 5),
  ("config", "feature_range"): ("x", 0, []),
  ("config", "encoder"): (None, 5),
  ("config", "aggregate"): (None, "x", {}),
  ("config", "unknown"): (1,),
  ("config", "solver"): (None, "Ridge", [], {}, {"type": "LegoConfig"}),
  ("config", "solver", "penalty"): (None, "x", 0, True),
  ("config", "solver", "keep"): (None, 1),
  ("config", "solver", "type"): ("Sgd", "Newton", None),
}
OTHERS = {"num_adapters": 5, "top_k": 3, "key_policy": "keep", "encoder": "other"}
SOLVER = {"type": "Sgd"}
SOLVERS = (
  {"epochs": "x"}, {"optimizer": 5}, {"optimizer": "lbfgs"}, {"options": 5},
  {"options": [["learning_rate", {}]]}, {"options": [["learning_rate", "x"]]},
  {"options": [[[], 1]]}, {"lanes": 10**30},
)  # fmt: skip


def settings():
  path = RUN / "run.json"
  for keys, values in SETTINGS_VALUES.items():
    for new in values:
      what = f"{'.'.join(keys)} {shown(new)}"
      yield what, functools.partial(edit, path, keys, new)
  for change in SOLVERS:
    new = SOLVER | change
    yield f"solver {change}", functools.partial(edit, path, ("config", "solver"), new)
  for what, data in NO_JSON.items():
    yield what, functools.partial(put, path, data)
  yield "a link", functools.partial(link, path)


def rechain(change):
  """Edits the journal as a forger would: `change(entries)`, then a sound chain."""
  path = RUN / "journal.jsonl"
  entries = [json.loads(line) for line in path.read_bytes().splitlines()]
  change(entries)
  previous, lines = "0" * 64, []
  for entry in entries:
    entry["prev"] = previous
    entry["hash"] = previous = journal.hash_of(entry)
    lines.append(json.dumps(entry, sort_keys=True) + "\n")
  put(path, "".join(lines).encode())


# 0 created, 1 accepted, 2 complete
ENTRY_VALUES = {
  (0, "seq"): (GONE, "0", 1, True), (0, "time"): (GONE, 5), (0, "event"): (GONE, 5, []),
  (0, "config"): (GONE, None, []), (0, "after"): (GONE, 5), (0, "samples"): (GONE, "x"),
  (0, "files"): (5, [], ["run.json"], {"run.json": 5}),
  (0, "stores"): (5, [], {"x": 5}, {"x": {}}, {"x": {"rows": "a"}}),
  (0, "key"): (5, None), (0, "retained"): (5, []), (0, "checkpoint"): ("0", 1.5),
  (1, "request"): (GONE, 5, []), (1, "kind"): (GONE, 5), (1, "ids"): (GONE, 5, [5], {}),
  (1, "count"): (GONE, "x", True),
  (2, "requests"): (GONE, 5, "x", [5], [[]]), (2, "adapters"): (GONE, "x", 1.5),
  (2, "masked"): (GONE, None), (2, "seconds"): (GONE, "x", True),
  (2, "forgotten"): (5, [5]), (2, "relearned"): ({},), (2, "before"): (GONE, 5),
  (2, "changed"): ([], {"x": []}), (2, "gone"): ([], ["x"], {"x": []}),
}  # fmt: skip


def journals():
  path = RUN / "journal.jsonl"
  for (entry, field), values in ENTRY_VALUES.items():
    for new in values:
      change = functools.partial(edited, keys=(entry, field), new=new)
      what = f"entry {entry} {field} {shown(new)}"
      yield what, functools.partial(rechain, change)
  yield "no first entry", lambda: rechain(lambda entries: entries.pop(0))
  yield "a changed line", lambda: put(path, path.read_bytes().replace(b"cre", b"Cre"))
  yield "a line lost", lambda: put(path, path.read_bytes().partition(b"\n")[2])
  yield "half a first line", lambda: put(path, path.read_bytes()[:100])
  yield (
    "half a last line and a changed one",
    lambda: put(path, path.read_bytes().replace(b"unlearn", b"Unlearn") + b'{"half'),
  )
  for what, data in NO_JSON.items():
    yield what, functools.partial(put, path, data + b"\n")
  for what in ("a FIFO", "a link"):
    yield what, functools.partial(INSTEAD[what], path)


def newest():
  return max((RUN / "checkpoints").iterdir())


def newest_name():
  return RUN / "checkpoints" / "00000001"


def remanifest(keys, new):
  """Edits the manifest and puts its own sha256 right."""
  path = newest() / "manifest.json"
  value = json.loads(path.read_bytes())
  edited(value, keys, new)
  value.pop("sha256", None)
  text = json.dumps(value, sort_keys=True).encode()
  put(path, json.dumps({**value, "sha256": hashlib.sha256(text).hexdigest()}).encode())


MANIFEST_VALUES = {
  "number": (GONE, "1", 0, -1, True, 1.5, 10**30),
  "digest": (GONE, 5, "0" * 64),
  "stores": (GONE, 5, "x", [5], [None]),
  "environment": (GONE, 5, [], {"jax": 5}),
  "requests": (GONE, "x", [5], [[]]),
  "report": (GONE, [], "x"),
  "head": (GONE, 5),
  "masked": (GONE, "0", True),
  "event": (5, [], "repaired"),
  "records": (5, [], {"x": 5}),
  "files": (GONE, [], {}, {"x": 5}, {"retained.npy": None}),
}


def checkpoints():
  for field, values in MANIFEST_VALUES.items():
    for new in values:
      what = f"manifest {field} {shown(new)}"
      yield what, functools.partial(remanifest, (field,), new)
  yield "report.forgotten 5", lambda: remanifest(("report", "forgotten"), 5)
  yield "report.forgotten [5]", lambda: remanifest(("report", "forgotten"), [5])
  for what, data in NO_JSON.items():
    yield f"manifest {what}", lambda data=data: put(newest() / "manifest.json", data)
  for what, change in INSTEAD.items():
    yield f"manifest {what}", lambda change=change: change(newest() / "manifest.json")
  for name in ("²", "1", "00000001x", "0000000１", "-0000001", "a\nb", "\udcff", ".x"):
    path = RUN / "checkpoints" / name
    yield f"named {name!a}", lambda path=path: newest().rename(path)
  yield "another number", lambda: newest().rename(RUN / "checkpoints" / "00000009")
  yield "a file", lambda: (shutil.rmtree(newest()), put(newest_name(), b""))
  yield "none", lambda: shutil.rmtree(newest())
  yield "no folder of them", lambda: shutil.rmtree(RUN / "checkpoints")
  yield "retained.npy cut", lambda: put(newest() / "retained.npy", b"")
  yield "a file too many", lambda: put(newest() / "x", b"")
  yield "no arrays", lambda: shutil.rmtree(newest() / "state")
