"""Damaged runs and stores: wrong types in every field, odd files in every place.

`cases` gives each of them to one of the commands that would trip over it, in turn; of
`verdicts`, `legonet verify` must say that they do not hold.
"""

import functools
import hashlib
import itertools
import os
import pathlib
import shutil

from bad_arrays import OBJECTS, npy
from bad_commands import ON_RUNS
from bad_files import DEEP, sealed, written
from bad_run_files import (
  GONE,
  INSTEAD,
  NO_JSON,
  OTHERS,
  RUN,
  STORE,
  checkpoints,
  edit,
  journals,
  put,
  remanifest,
  settings,
  shown,
)
import numpy as np

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
READING = LOADING | _lines("history", "repair", "migrate")
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
