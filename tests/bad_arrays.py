"""Bad `.npz` and `.npy` files, and bad lists of ids."""

import io
import pickle
import zipfile

from bad_commands import CERTIFIED
from bad_options import FIT, GIVEN
from hostile_zip import flagged
import numpy as np

NAN, INF = np.float32("nan"), np.float32("inf")


def npy(array, **kwargs):
  buffer = io.BytesIO()
  np.save(buffer, array, **kwargs)
  return buffer.getvalue()


def npz(**arrays):
  buffer = io.BytesIO()
  np.savez(buffer, **arrays)
  return buffer.getvalue()


def rows(**change):
  """An .npz of three samples, some arrays changed; None leaves one out."""
  sound = {
    "encodings": np.eye(3, 7, dtype=np.float32),
    "labels": np.arange(3),
    "ids": np.arange(3) + 500,
  }
  return npz(**{k: v for k, v in (sound | change).items() if v is not None})


def put(value, dtype=np.float32):
  """Three encodings, one number of which is `value`."""
  array = np.eye(3, 7, dtype=dtype)
  array[1, 2] = value
  return array


def packed(*members):
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, "w") as archive:
    for name, data in members:
      archive.writestr(name, data)
  return buffer.getvalue()


OBJECTS = np.array([{}, [], None], object)
FIELDS = np.zeros(3, [("a", np.float32), ("b", np.int8)])
NOT_READABLE = "is not a readable .npz"
ENCODINGS = {
  "an .npy": (npy(np.ones((3, 7))), NOT_READABLE),
  "an empty file": (b"", NOT_READABLE),
  "a text": (b"one\ntwo\n", NOT_READABLE),
  "cut short": (rows()[:300], NOT_READABLE),
  "encrypted": (flagged(rows(), 1), NOT_READABLE),
  "a member that is no array": (packed(("readme.txt", b"hi")), "not an array"),
  "no members": (packed(), "no array 'encodings'"),
  "a member that is a pickle": (
    packed(("encodings.npy", pickle.dumps([1]))), "not an array of numpy",
  ),
  "an array cut short": (packed(("encodings.npy", npy(np.ones(9))[:-8])), "claims"),
  "encodings of one number": (rows(encodings=np.float32(1)), "encodings"),
  "encodings of one axis": (rows(encodings=np.ones(3)), "encodings are float64[3]"),
  "encodings of three axes": (rows(encodings=np.ones((3, 7, 1))), "encodings are"),
  "encodings of objects": (rows(encodings=OBJECTS), "pickled objects"),
  "encodings of fields": (rows(encodings=FIELDS), "has fields"),
  "encodings of integers": (rows(encodings=np.eye(3, 7, dtype=int)), "give floats"),
  "encodings of complex numbers": (rows(encodings=np.eye(3, 7) * 1j), "give floats"),
  "encodings of texts": (rows(encodings=np.array([["a"] * 7] * 3)), "give floats"),
  "encodings of truth": (rows(encodings=np.eye(3, 7) > 0), "give floats"),
  "no rows": (rows(encodings=np.ones((0, 7))), "encodings are float64[0, 7]"),
  "no width": (rows(encodings=np.ones((3, 0))), "encodings are float64[3, 0]"),
  "NaN": (rows(encodings=put(NAN)), "encoding"),
  "infinity": (rows(encodings=put(INF)), "encoding"),
  "1e300": (rows(encodings=put(1e300, np.float64)), "encoding"),
  "1e4000": (rows(encodings=put("1e4000", np.longdouble)), "encoding"),
  "labels of texts": (rows(labels=np.array(["a", "b", "c"])), "labels are <U1[3]"),
  "labels of floats": (rows(labels=np.ones(3)), "labels are float64[3]"),
  "too few labels": (rows(labels=np.arange(2)), "labels are int64[2]"),
  "one label": (rows(labels=np.int64(1)), "labels are int64[]"),
  "negative labels": (rows(labels=np.arange(3) - 1), "labels go from -1"),
  "labels of 2**40": (rows(labels=np.arange(3) << 40), "label"),
  "labels of objects": (rows(labels=OBJECTS), "pickled objects"),
  "ids of floats": (rows(ids=np.ones(3)), "ids are float64[3]"),
  "ids that occur twice": (rows(ids=np.array([5, 6, 5])), "id 5 occurs twice"),
  "negative ids": (rows(ids=np.arange(3) - 9), "ids go from -9"),
  "ids of 2**64": (rows(ids=np.array([1, 2, 2**64 - 1], np.uint64)), "ids go from 1"),
  "too many ids": (rows(ids=np.arange(4)), "ids are int64[4]"),
  "a split of 2": (rows(split=np.arange(3)), "not 2"),
  "a split of floats": (rows(split=np.zeros(3)), "split are float64[3]"),
  "classes of numbers": (rows(classes=np.arange(3)), "classes are int64[3]"),
  "classes that occur twice": (rows(classes=np.array(["a", "b", "a"])), "'a'"),
  "too few classes": (rows(classes=np.array(["a"])), "labels up to 2"),
  "classes of escape codes": (
    rows(classes=np.array(["a", "b", "\x1b[2J\n"])), r"class 2 is '\x1b[2J\n'",
  ),
}  # fmt: skip
ON_ENCODINGS = {
  "import-encodings": "bad.npz --out x",
  "predict": "run --encodings bad.npz",
  "evaluate": "run --encodings bad.npz",
  "learn": "run --encodings bad.npz",
  "verify": "--certificate certificate.json --encodings bad.npz",
}
NO_LABELS = rows(labels=None), "no array 'labels'"
LONG_DOUBLES = rows(encodings=put(1, np.longdouble)), "encodings are float128"
KEYS = {
  "an empty file": (b"", "not an array of numpy"),
  "a text": (b"one\n", "not an array of numpy"),
  "an .npz": (npz(keys=np.ones((4, 7))), "not an array of numpy"),
  "cut short": (npy(np.ones((4, 7)))[:-3], "which is not the size of its data"),
  "one number": (npy(np.float32(1)), "keys are float32[]"),
  "one axis": (npy(np.ones(28)), "keys are float64[28]"),
  "integers": (npy(np.ones((4, 7), int)), "keys are int64[4, 7]"),
  "objects": (npy(OBJECTS, allow_pickle=True), "pickled objects"),
  "fields": (npy(FIELDS), "has fields"),
  "no keys": (npy(np.ones((0, 7))), "keys are float64[0, 7]"),
  "too few keys": (npy(np.ones((3, 7))), "keys have shape (3, 7)"),
  "too wide keys": (npy(np.ones((4, 8))), "keys have shape (4, 8)"),
  "NaN": (npy(np.full((4, 7), NAN)), "keys have a value that is NaN"),
  "infinity": (npy(np.full((4, 7), INF)), "keys have a value that is NaN"),
  "1e300": (npy(np.full((4, 7), 1e300)), "keys have a value that is NaN"),
}
ON_KEYS = {
  "fit": f"{GIVEN} --keys bad.npy",
  "verify": "--certificate given.json --encodings store --keys bad.npy",
}
NO_IDS = "bad.txt is not a list of ids"
IDS = {
  "an empty file": (b"", "names no sample"),
  "blanks": (b" \n\t\n", "names no sample"),
  "words": (b"100\ntwo\n", NO_IDS),
  "fractions": (b"100.0\n", NO_IDS),
  "a number of 23 digits": (b"100\n10000000000000000000000\n", NO_IDS),
  "a number of 5,000 digits": (b"9" * 5000, NO_IDS),
  "bytes": (bytes(range(256)), "bad.txt is not a text file"),
  "UTF-16": ("100\n101\n".encode("utf-16"), "bad.txt is not a text file"),
  "an id twice": (b"100\n101\n100\n", "id 100 is named twice"),
  "an unknown id": (b"100,7\n", "7"),
  "a negative id": (b"100 -7\n", "-7"),
}
ON_IDS = {
  "fit": f"{FIT} --ids-file bad.txt",
  "unlearn": "run --ids-file bad.txt",
  "learn": "named --encodings named.npz --ids-file bad.txt",
  "verify": f"{CERTIFIED} --ids-file bad.txt",
}
