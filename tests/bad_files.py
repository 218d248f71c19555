"""Bad files: what a command is given in the place of arrays, ids, images or weights.

Each table is by what the file is: its contents, and a part of the message. `cases`
gives them to every command that reads such a file.
"""

import base64
import json
import os
import pathlib
import pickle

from bad_arrays import (
  ENCODINGS,
  IDS,
  KEYS,
  LONG_DOUBLES,
  NO_LABELS,
  NOT_READABLE,
  OBJECTS,
  ON_ENCODINGS,
  ON_IDS,
  ON_KEYS,
  npy,
  npz,
)
from bad_commands import CERTIFIED
from bad_options import FIT, GIVEN, IMAGES
from hostile_weights import PTH, SAFETENSORS
from hostile_zip import flagged
import numpy as np
import pytest


def images(**change):
  sound = {"images": np.zeros((3, 32, 32, 3), np.uint8), "labels": np.arange(3)}
  return npz(**{k: v for k, v in (sound | change).items() if v is not None})


PICTURES = {
  "no labels": (images(labels=None), "no array 'labels'"),
  "one number": (images(images=np.uint8(1)), "'images' is one number"),
  "in grey": (images(images=np.zeros((3, 32, 32), np.uint8)), "images have shape"),
  "with alpha": (images(images=np.zeros((3, 32, 32, 4), np.uint8)), "32, 4)"),
  "floats": (images(images=np.zeros((3, 32, 32, 3))), "type float64"),
  "none": (images(images=np.zeros((0, 32, 32, 3), np.uint8), labels=[]), "no images"),
  "no pixels": (images(images=np.zeros((3, 0, 32, 3), np.uint8)), "without pixels"),
  "objects": (images(images=OBJECTS), "pickled objects"),
  "too few labels": (images(labels=np.arange(2)), "labels are int64[2]"),
  "negative labels": (images(labels=np.arange(3) - 1), "labels go from -1"),
  "ids twice": (images(ids=np.zeros(3, int)), "id 0 occurs twice"),
  "encrypted": (flagged(images(), 1), NOT_READABLE),
  "an .npy": (npy(np.zeros((3, 32, 32, 3), np.uint8)), NOT_READABLE),
  "cut short": (images()[:4000], NOT_READABLE),
  "two classes of one name": (images(classes=np.array(["a", "b", "b"])), "'b'"),
}


def picture(name, data):
  """An image beside a sound one."""
  path = pathlib.Path("photos", name)
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(data)


PHOTOS = {
  "a text": (lambda: picture("dog/1.png", b"one\n"), "1.png"),
  "an empty image": (lambda: picture("dog/1.jpg", b""), "1.jpg"),
  "an image cut short": (
    lambda: picture("dog/1.png", pathlib.Path("photos/cat/1.png").read_bytes()[:200]),
    "1.png",
  ),
  "an empty class": (lambda: os.mkdir("photos/dog"), "has no images"),
  "a class of texts": (lambda: picture("dog/1.txt", b"one\n"), "has no images"),
  "a FIFO": (
    lambda: (os.mkdir("photos/dog"), os.mkfifo("photos/dog/1.png")),
    "not a regular file",
  ),
  "a link to nothing": (
    lambda: (os.mkdir("photos/dog"), os.symlink("none", "photos/dog/1.png")),
    "1.png",
  ),
  "a link to all classes": (lambda: os.symlink(".", "photos/dog"), "is a link to"),
  "a class of escape codes": (lambda: picture("\x1b[2J\n/1.png", b""), r"\x1b[2J\n"),
  "a class that is not UTF-8": (lambda: picture("\udcff/1.png", b""), r"\udcff"),
  "no class": (lambda: os.rename("photos/cat", "photos/.cat"), "no class folders"),
  "an empty split": (lambda: os.mkdir("photos/train"), "no class folders"),
}
# Small ones; `test_hostile_files` has those that take memory or time.
WEIGHTS = {
  **{f"{name}.safetensors": data for name, data in SAFETENSORS.items()},
  **{f"{name}.pth": data for name, data in PTH.items() if len(data) < 2000},
  "a pickled call.pth": pickle.dumps(os.system),
}


def sealed(**change):
  """`certificate.json` with other values, its own sha256 put right."""
  from legonet_jax.runs import certificate

  value = json.loads(pathlib.Path("certificate.json").read_bytes())
  value = {k: v for k, v in (value | change).items() if v is not None}
  return certificate.seal({k: v for k, v in value.items() if k != "sha256"})


def envelope(statement, **change):
  """A signed statement, or what looks like one."""
  from legonet_jax.runs import signing

  text = statement if isinstance(statement, bytes) else json.dumps(statement).encode()
  value = {"payload": base64.b64encode(text).decode(), "signatures": []}
  value["payloadType"] = signing.PAYLOAD_TYPE
  return json.dumps(value | change).encode()


DEEP = b"[" * 100_000
STATEMENTS = {
  "an empty file": (b"", "is not JSON"),
  "nested deeply": (DEEP, "nested too deeply"),
  "an object nested deeply": (b'{"a":' + DEEP, "nested too deeply"),
  "a list": (b"[]", "not a JSON object"),
  "a number": (b"1", "not a JSON object"),
  "an empty object": (b"{}", "is not a certificate"),
  "bytes": (bytes(range(256)), "is not JSON"),
  "a number of 5,000 digits": (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON"),
  "another format": (b'{"format": "x", "sha256": 1}', "is not a certificate"),
  "a sum that is a list": (
    b'{"format": "legonet-jax certificate 1", "sha256": []}', "is not a certificate",
  ),
  "half a character": (b'{"format": "\\ud800"}', "is not a certificate"),
  "changed": (
    lambda: sealed().replace(b'"samples": 29', b'"samples": 28'), "was changed since",
  ),
  "an empty envelope": (envelope(b""), "not a statement about a run"),
  "an envelope nested deeply": (envelope(DEEP), "not a statement about a run"),
  "an envelope of a list": (envelope([]), "not a statement about a run"),
  "an envelope of no subject": (
    envelope({"predicateType": "x", "predicate": {}, "subject": []}), "not a statement",
  ),
  "a payload of numbers": (envelope({}, payload=5), "not a statement about a run"),
  "a payload that is not base64": (envelope({}, payload="é"), "not a statement"),
}  # fmt: skip
ON_STATEMENTS = {
  "verify": "--certificate bad.json --encodings store",
  "verify ": "run --since bad.json",
}
PARTIALS = {
  "nested deeply": (b'{"how":' + DEEP, "nested too deeply"),
  "a list": (b"[]", "not a JSON object"),
  "no JSON": (b"{", "is not JSON"),
  "empty": (b"", "is not JSON"),
  "without fields": (b"{}", "does not say how"),
  "how that is a list": (b'{"how": [], "rows": 0}', "does not say how"),
  "made in another way": (b'{"how": {}, "rows": 0}', "was begun with"),
}
UNREADABLE = {
  "all.npz": ("import-encodings", "all.npz --out x"),
  "images.npz": ("encode", f"--dataset images.npz {IMAGES}"),
  "photos/cat": ("encode", f"--dataset photos {IMAGES}"),
  "store/meta.json": ("fit", FIT),
  "store/ids.npy": ("fit", FIT),
  "keys.npy": ("fit", GIVEN),
  "unknown.txt": ("unlearn", "run --ids-file unknown.txt"),
  "new.npz": ("learn", "run --encodings new.npz"),
  "run/run.json": ("status", "run"),
  "run/journal.jsonl": ("history", "run"),
  "certificate.json": ("verify", CERTIFIED),
  "signing.key": ("heal", "run --sign-key signing.key"),
  "signing.key.pub": ("verify", "run --public-key signing.key.pub"),
}


def closed(path):
  """Takes away the permission to read, which does not keep root from reading."""

  def prepare():
    os.chmod(path, 0)
    if os.access(path, os.R_OK):
      pytest.skip("this user can read everything")

  return prepare


def written(name, data):
  """Writes a file when the time comes."""

  def prepare():
    content = data() if callable(data) else data
    pathlib.Path(name).write_bytes(content)

  return prepare


def cases():
  """(command, line, message, what it is, how to prepare it) of every case."""
  for file, table, lines in (
    ("bad.npz", ENCODINGS, ON_ENCODINGS),
    ("bad.npy", KEYS, ON_KEYS),
    ("bad.txt", IDS, ON_IDS),
    ("bad.npz", PICTURES, {"encode": f"--dataset bad.npz {IMAGES}"}),
    ("bad.json", STATEMENTS, ON_STATEMENTS),
  ):
    for what, (data, message) in table.items():
      for command, rest in lines.items():
        yield command.strip(), rest, message, what, written(file, data)
  for command, rest in ON_ENCODINGS.items():
    if command != "predict":
      yield command, rest, NO_LABELS[1], "no labels", written("bad.npz", NO_LABELS[0])
  prepare = written("bad.npz", LONG_DOUBLES[0])
  yield "learn", ON_ENCODINGS["learn"], LONG_DOUBLES[1], "long doubles", prepare
  for what, (prepare, message) in PHOTOS.items():
    yield "encode", f"--dataset photos {IMAGES}", message, what, prepare
  for what, data in WEIGHTS.items():
    name = f"bad.{what.rpartition('.')[2]}"
    rest = f"--dataset images.npz {IMAGES} --weights {name}"
    yield "encode", rest, name, what, written(name, data)
  for what, (data, message) in PARTIALS.items():
    prepare = written("empty/partial.json", data)
    rest = "all.npz --out empty"
    yield "import-encodings", rest, message, f"a beginning {what}", prepare
  for path, (command, rest) in UNREADABLE.items():
    yield command, rest, "ermission denied", f"{path} closed", closed(path)
