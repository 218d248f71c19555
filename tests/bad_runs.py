"""Damaged runs and stores: wrong types in every field, odd files in every place.

`cases` gives each of them to one of the commands that would trip over it, in turn; of
`verdicts`, `legonet verify` must say that they do not hold.
"""

import functools
import hashlib
import itertools
import json
import os
import pathlib
import shutil

from bad_commands import ON_RUNS
from bad_files import DEEP, OBJECTS, npy, sealed, written
import numpy as np

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
  (2, "stores"): ([], {"x": []}),
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


FORGOTTEN_KEYS = {
  "missing": lambda: (RUN / "forgotten.key").unlink(),
  "empty": lambda: put(RUN / "forgotten.key", b""),
  "words": lambda: put(RUN / "forgotten.key", b"one two"),
  "bytes": lambda: put(RUN / "forgotten.key", bytes(range(256))),
  "short": lambda: put(RUN / "forgotten.key", b"00" * 31),
  "another": lambda: put(RUN / "forgotten.key", b"00" * 32),
  "a folder": lambda: INSTEAD["a folder"](RUN / "forgotten.key"),
}

META_VALUES = {
  ("version",): (GONE, 2, "1", True, None),
  ("sha256",): (GONE, None, [], {}, "x", {"ids": 5}),
  ("sha256", "ids"): (GONE, 5, None),
  ("erased",): (-1, "0", 1.5, True, None),
  ("classes",): (5, "abc", {}, [5], ["a"], ["a", "b", "b"], ["a", "b", "\x1b[2J\n"]),
  ("encoder",): (5, [], "\x1b[2J\n", "x" * 5000),
  ("weights_sha256",): (5, {}),
  ("size",): ("x", 1.5), ("mean",): ("x", [None], 5), ("resize",): (5,),
}  # fmt: skip
TYPES = {"encodings": "<f4", "ids": "<i8", "labels": "<i4", "split": "|u1"}
ARRAYS = {
  "cut short": lambda a: npy(a)[:-1],
  "empty": lambda _: b"",
  "an .npz": lambda _: b"PK\3\4",
  "pickled": lambda _: npy(OBJECTS, allow_pickle=True),
  "one number": lambda a: npy(a.ravel()[0]),
  "of three axes": lambda a: npy(a.reshape(len(a), -1, 1)),
  "of complex numbers": lambda a: npy(a.astype(complex)),
  "of the other byte order or size": lambda a: npy(a.astype(">i2")),
  "too long": lambda a: npy(np.concatenate([a, a])),
}


def change_array(name, change):
  """Changes an array of a store, its sum in `meta.json` put right."""
  array = np.load(STORE / f"{name}.npy")
  data = change(array)
  data = data if isinstance(data, bytes) else npy(data)
  put(STORE / f"{name}.npy", data)
  edit(STORE / "meta.json", ("sha256", name), hashlib.sha256(data).hexdigest())


def with_value(name, row, value):
  def change(array):
    array[row] = value
    return array

  return functools.partial(change_array, name, change)


def stores():
  for keys, values in META_VALUES.items():
    for new in values:
      what = f"meta {'.'.join(keys)} {shown(new)}"
      yield what, functools.partial(edit, STORE / "meta.json", keys, new)
  for what, data in NO_JSON.items():
    yield f"meta {what}", functools.partial(put, STORE / "meta.json", data)
  for name, (what, change) in itertools.product(TYPES, ARRAYS.items()):
    yield f"{name} {what}", functools.partial(change_array, name, change)
  for name, (what, change) in itertools.product(TYPES, INSTEAD.items()):
    yield f"{name} {what}", functools.partial(change, STORE / f"{name}.npy")
  yield (
    "encodings in Fortran order",
    functools.partial(change_array, "encodings", lambda a: npy(np.asfortranarray(a))),
  )
  yield "an id twice", with_value("ids", 1, 100)
  yield "ids that do not increase", with_value("ids", 1, 9**9)
  yield "a negative id", with_value("ids", 0, -5)
  yield "a negative label", with_value("labels", 3, -2)
  yield "a label beyond the classes", with_value("labels", 3, 7)
  yield "a split of 2", with_value("split", 3, 2)
  yield "NaN", with_value("encodings", 3, np.nan)
  yield "infinity", with_value("encodings", 3, np.inf)


ON_STORES = {
  "fit": "bad --out x --adapters 4 --top-k 2",
  "predict": "run --encodings bad",
  "evaluate": "named --encodings bad",
  "learn": "run --encodings bad",
  "verify": "--certificate named.json --encodings bad",
}
OWN_STORE = {
  "gone": lambda: os.rename("store", "moved"),
  "a file": lambda: (os.rename("store", "moved"), put("store", b"")),
  "a link": lambda: (os.rename("store", "moved"), os.symlink("moved", "store")),
  "without ids": lambda: os.unlink("store/ids.npy"),
  "with ids cut": lambda: put("store/ids.npy", b""),
  "with meta nested deeply": lambda: put("store/meta.json", DEEP),
}
ON_OWN_STORE = {
  "evaluate": ("run",), "unlearn": ("run --class 1", "run --erased"),
  "learn": ("run --ids 130", "run --encodings new.npz"),
}  # fmt: skip


def _in_turn(about, damages, lines, message):
  turn = itertools.cycle(lines.items())
  for (what, prepare), (command, rest) in zip(damages, turn, strict=False):
    yield command, rest, message, f"{about} {what}", prepare


def _lines(*names):
  return {name: f"run {ON_RUNS[name]}".strip() for name in names}


LOADING = _lines("status", "predict", "evaluate", "unlearn", "learn", "heal", "compact")
READING = LOADING | _lines("history", "repair")
CHANGING = _lines("unlearn", "learn", "heal", "compact")


def cases():
  """(command, line, message, what it is, how to prepare it) of every case."""
  yield from _in_turn("run.json", settings(), READING, "run/run.json")
  for name, new in OTHERS.items():
    prepare = functools.partial(edit, RUN / "run.json", ("config", name), new)
    yield "status", "run", "are of different settings", f"{name} {new}", prepare
  yield from _in_turn("journal", journals(), READING, "run/journal.jsonl")
  yield from _in_turn("checkpoint", checkpoints(), LOADING, "run/checkpoints")
  for store in ("\ud800", "learned/..", "../x", "learned/a/b", ""):
    prepare = functools.partial(remanifest, ("stores",), [store])
    yield (
      "unlearn",
      "run --ids 100",
      "outside of its folder",
      f"store {store!a}",
      prepare,
    )
  yield from _in_turn("key", FORGOTTEN_KEYS.items(), CHANGING, "run/forgotten.key")
  for *rest, what, damage in _in_turn("store", stores(), ON_STORES, ""):
    yield *rest, what, functools.partial(_damage_copy, damage)
  for (what, prepare), (command, lines) in itertools.product(
    OWN_STORE.items(), ON_OWN_STORE.items()
  ):
    for rest in lines:
      yield command, rest, "/store", f"own store {what}", prepare


def _damage_copy(damage):
  shutil.copytree("named_store", STORE)
  damage()


HEADS = {
  "nested deeply": DEEP, "empty": b"", "a list": b"[]", "an empty object": b"{}",
  "an empty envelope": b'{"payload": "", "payloadType": "", "signatures": []}',
}  # fmt: skip
GIVEN_KEYS = {
  "empty": b"", "too few": npy(np.ones((3, 7))), "too wide": npy(np.ones((4, 8))),
  "integers": npy(np.ones((4, 7), int)), "NaN": npy(np.full((4, 7), np.nan)),
  "others": npy(np.ones((4, 7))), "objects": npy(OBJECTS, allow_pickle=True),
}  # fmt: skip
CLAIMS = {
  "config": (None, 5, [], {}, {"type": "LegoConfig"}, {"type": "Ridge"}),
  "classes": (5, "abc", {}, [5]), "environment": (None, 5, []),
  "digest": (None, 5, "x"), "retained": (None, 5), "keys": (None, []),
  "routes": (None, 5), "members": (None, 5, [], [5] * 4, [None] * 4),
  "sizes": (None, 5, [], ["x"] * 4), "weights": (None, {}, [None] * 4),
  "samples": (None, "x", 28), "encoder": (None, 5, "other"),
}  # fmt: skip


def verdicts():
  """(line of `verify`, what it is, how to prepare it) of all that does not hold."""
  for about, damages in (
    ("run.json", settings()), ("journal", journals()), ("checkpoint", checkpoints()),
    ("key", FORGOTTEN_KEYS.items()), ("own store", OWN_STORE.items()),
  ):  # fmt: skip
    for what, prepare in damages:
      yield "run", f"{about} {what}", prepare
  signed = "run --public-key signing.key.pub"
  for what, data in HEADS.items():
    yield signed, f"head.json {what}", functools.partial(put, RUN / "head.json", data)
  yield signed, "head.json missing", (RUN / "head.json").unlink
  yield signed, "journal empty", functools.partial(put, RUN / "journal.jsonl", b"")
  for what, data in GIVEN_KEYS.items():
    yield "given", f"keys.npy {what}", functools.partial(put, "given/keys.npy", data)
  yield "given", "keys.npy missing", pathlib.Path("given/keys.npy").unlink
  line = "--certificate bad.json --encodings store"
  for field, values in CLAIMS.items():
    for new in values:
      prepare = written("bad.json", functools.partial(sealed, **{field: new}))
      yield line, f"certificate {field} {shown(new)}", prepare
