"""Damaged and hostile stores are refused in one line."""

import json
import os

import numpy as np
import pytest
from store_world import FILES, HOW, ROWS, _bytes, _finish, _make, _refuses

from legonet_jax import errors
from legonet_jax.store import (
  write as store_write,
)


def _edit_meta(path, **changes):
  meta = json.loads((path / "meta.json").read_text()) | changes
  (path / "meta.json").write_text(json.dumps(meta))


ARRAYS = {
  "ids.npy": {
    "0-d": np.int64(3),
    "2-d": np.arange(10)[:, None],
    "int32": np.arange(10, dtype=np.int32),
    "uint64": np.arange(10, dtype=np.uint64),
    "big-endian": np.arange(10, dtype=">i8"),
    "floats": np.arange(10.0),
    "an id twice": np.asarray([0, 1, 2, 3, 4, 5, 6, 7, 8, 8]),
    "an id out of order": np.asarray([1, 0, 2, 3, 4, 5, 6, 7, 8, 9]),
    "a negative id": np.asarray([-7, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    "too few": np.arange(9),
    "none": np.zeros(0, np.int64),
    "fields": np.zeros(10, [("a", np.int64)]),
    "text": np.asarray(["x"] * 10),
  },
  "labels.npy": {
    "int64": np.zeros(10, np.int64),
    "a negative label": np.full(10, -3, np.int32),
    "a label of -1": np.full(10, -1, np.int32),
    "0-d": np.int32(0),
  },
  "split.npy": {
    "a third split": np.full(10, 2, np.uint8),
    "int64": np.zeros(10, np.int64),
    "booleans": np.zeros(10, bool),
  },
  "encodings.npy": {
    "1-d": ROWS.ravel(),
    "0-d": np.float32(0),
    "3-d": ROWS[None],
    "integers": ROWS.astype(np.int32),
    "complex": ROWS.astype(np.complex64),
    "big-endian": ROWS.astype(">f4"),
    "Fortran order": np.asfortranarray(ROWS),
    "too few": ROWS[:9],
  },
}


@pytest.mark.parametrize(
  ("name", "what"), [(name, what) for name in ARRAYS for what in ARRAYS[name]]
)
def test_an_array_of_another_form_is_refused_in_one_line(tmp_path, name, what):
  path = _make(tmp_path / "a")
  np.save(path / name, ARRAYS[name][what])
  _refuses(path, "a")


def test_pickled_objects_in_a_store_are_refused(tmp_path):
  path = _make(tmp_path / "a")
  np.save(path / "ids.npy", np.asarray([{}] * 10), allow_pickle=True)
  _refuses(path, "ids.npy")


@pytest.mark.parametrize(
  "blob",
  [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 200_000,
    b'{"a":' * 200_000,
    b'{"version": ' + b"9" * 5000 + b"}",
  ],
)
@pytest.mark.parametrize("name", ["meta.json", "partial.json"])
def test_a_damaged_note_is_refused_in_one_line(tmp_path, name, blob):
  path = tmp_path / "a"
  if name == "meta.json":
    _make(path)
  else:
    store_write.start(path, HOW, ROWS.shape, "float32")
  (path / name).write_bytes(blob)
  with pytest.raises(errors.StoreError) as caught:
    store_write.start(path, HOW, ROWS.shape, "float32")
  assert str(caught.value).isprintable()
  assert name in str(caught.value)
  if name == "meta.json":
    _refuses(path, name)


@pytest.mark.parametrize(
  "change",
  [
    {"version": True},
    {"version": "1"},
    {"version": 1.0},
    {"sha256": []},
    {"sha256": "x"},
    {"sha256": {"ids": "0"}},
    {"sha256": dict.fromkeys(("encodings", "ids", "labels", "split"), 0)},
    {"sha256": {"../../etc/passwd": "0"}},
    {"erased": "1"},
    {"erased": True},
    {"erased": -1},
    {"encoder": ["x"]},
    {"encoder": "a\nb"},
    {"encoder": "\x1b[2J"},
    {"encoder": "x" * 2000},
    {"weights_sha256": 7},
    {"weights_sha256": "0", "size": "224"},
    {"weights_sha256": "0", "mean": [10**400]},
    {"weights_sha256": "0", "std": "0.2"},
    {"classes": "cat"},
    {"classes": None},
    {"classes": {"cat": 0}},
    {"classes": []},
    {"classes": ["cat", "cat"]},
    {"classes": ["cat", 1]},
    {"classes": ["cat", ""]},
    {"classes": ["cat", "a\nb"]},
    {"classes": ["cat", "\x1b[2J"]},
    {"classes": ["cat", "x" * 201]},
  ],
)
def test_a_field_of_another_type_is_refused_in_one_line(tmp_path, change):
  path = _make(tmp_path / "a")
  _edit_meta(path, **change)
  _refuses(path, "meta.json")


@pytest.mark.parametrize("rows", [-1, 11, "3", True, None, [3], 2.0])
def test_an_impossible_count_of_rows_is_refused(tmp_path, rows):
  store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32")
  (tmp_path / "a" / "partial.json").write_text(json.dumps({"how": HOW, "rows": rows}))
  with pytest.raises(errors.StoreError, match=r"partial\.json counts"):
    store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verify", [False, True])
def test_a_link_in_a_store_is_not_followed(tmp_path, name, verify):
  path = _make(tmp_path / "a")
  (path / name).rename(tmp_path / "elsewhere")
  (path / name).symlink_to(tmp_path / "elsewhere")
  _refuses(path, name, "symbolic link", verify=verify)
  if name == "meta.json":
    with pytest.raises(errors.StoreError, match="symbolic link"):
      store_write.start(path, HOW, ROWS.shape, "float32")


@pytest.mark.parametrize("name", FILES)
def test_what_is_not_a_file_is_refused_and_nothing_hangs(tmp_path, name):
  for make in (os.mkfifo, os.mkdir):
    path = _make(tmp_path / make.__name__)
    (path / name).unlink()
    make(path / name)
    _refuses(path, name, "not a regular file")


def test_a_missing_array_is_named(tmp_path):
  path = _make(tmp_path / "a")
  (path / "labels.npy").unlink()
  _refuses(path, "labels.npy is missing")


def test_a_link_in_an_unfinished_store_is_not_written_through(tmp_path):
  path, mine = tmp_path / "a", tmp_path / "mine"
  writer = store_write.put(
    store_write.start(path, HOW, ROWS.shape, "float32"), ROWS[:4]
  )
  (path / "encodings.part").rename(mine)
  before = mine.read_bytes()
  (path / "encodings.part").symlink_to(mine)
  with pytest.raises(errors.StoreError, match=r"encodings\.part"):
    store_write.put(writer, ROWS[4:])
  with pytest.raises(errors.StoreError, match="symbolic link"):
    store_write.start(path, HOW, ROWS.shape, "float32")
  store_write.discard(writer)
  assert mine.read_bytes() == before
  assert not path.exists()


@pytest.mark.parametrize(
  ("columns", "problem"),
  [
    ((np.arange(9), np.zeros(9, np.int32), np.zeros(9, np.uint8)), "9 ids"),
    ((np.zeros(10, int), np.zeros(10, np.int32), np.zeros(10, np.uint8)), "twice"),
    ((np.arange(10), np.zeros(10, np.int64), np.zeros(10, np.uint8)), "labels"),
    ((np.arange(10), np.full(10, -1, np.int32), np.zeros(10, np.uint8)), "label -1"),
    ((np.arange(10), np.zeros(10, np.int32), np.full(10, 3, np.uint8)), "split"),
    ((np.arange(10), np.full(10, 2, np.int32), np.zeros(10, np.uint8)), "class names"),
  ],
)
def test_wrong_columns_never_reach_the_disk(tmp_path, columns, problem):
  how = HOW | {"classes": ["cat", "dog"]}
  writer = store_write.put(
    store_write.start(tmp_path / "a", how, ROWS.shape, "float32"), ROWS
  )
  before = _bytes(tmp_path / "a")
  with pytest.raises(errors.StoreError, match=problem):
    store_write.finish(writer, *columns)
  assert _bytes(tmp_path / "a") == before


def test_a_store_that_lacks_rows_is_not_finished(tmp_path):
  writer = store_write.put(
    store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32"), ROWS[:6]
  )
  with pytest.raises(errors.StoreError, match="6 of 10 rows"):
    _finish(writer)
  with pytest.raises(errors.StoreError, match="do not fit"):
    store_write.put(writer, ROWS)
  with pytest.raises(errors.StoreError, match="do not fit"):
    store_write.put(writer, ROWS[:4, :2])
