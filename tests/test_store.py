"""A store is complete and as described, or it is not a store."""

import fcntl
import json
import os
import resource
import time

import numpy as np
import pytest

from legonet_jax import errors
from legonet_jax.store import (
  format as store_format,
  leftovers,
  read as store_read,
  write as store_write,
)

ROWS = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)
HOW = {"encoder": "x", "size": 64}


def _finish(writer):
  ids, labels = np.arange(10), np.zeros(10, np.int32)
  return store_write.finish(writer, ids, labels, np.zeros(10, np.uint8))


def _bytes(path):
  return {p.name: p.read_bytes() for p in path.iterdir()}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_come_back_under_their_ids(tmp_path, dtype):
  writer = store_write.start(tmp_path / "s", HOW, ROWS.shape, dtype)
  _finish(store_write.put(store_write.put(writer, ROWS[:6]), ROWS[6:]))
  found = store_read.open_store(tmp_path / "s", verify=True)
  np.testing.assert_array_equal(found.encodings, ROWS.astype(dtype))
  np.testing.assert_array_equal(found.ids, np.arange(10))
  assert found.meta["encoder"] == "x"
  assert isinstance(found.encodings, np.memmap)
  assert sorted(os.listdir(tmp_path / "s")) == [
    "encodings.npy", "ids.npy", "labels.npy", "meta.json", "split.npy",
  ]  # fmt: skip


def test_a_resumed_store_has_the_same_bytes(tmp_path):
  whole = store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32")
  _finish(store_write.put(whole, ROWS))
  store_write.put(
    store_write.start(tmp_path / "b", HOW, ROWS.shape, "float32"), ROWS[:6]
  )
  with pytest.raises(errors.StoreError, match="unfinished"):
    store_read.open_store(tmp_path / "b")
  again = store_write.start(tmp_path / "b", HOW, ROWS.shape, "float32")
  assert again.rows == 6
  _finish(store_write.put(again, ROWS[6:]))
  assert _bytes(tmp_path / "a") == _bytes(tmp_path / "b")


def test_rows_after_the_last_safe_one_are_written_again(tmp_path):
  """A crash between the rows and the note that they are there."""
  writer = store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32")
  note = (tmp_path / "a" / "partial.json").read_bytes()
  store_write.put(writer, -ROWS)
  (tmp_path / "a" / "partial.json").write_bytes(note)
  again = store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32")
  assert again.rows == 0
  np.testing.assert_array_equal(_finish(store_write.put(again, ROWS)).encodings, ROWS)


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize(
  "change", [{"size": 65}, {"encoder": "y"}, {"weights_sha256": "z"}]
)
def test_another_way_of_making_it_is_refused(tmp_path, change, complete):
  writer = store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32")
  if complete:
    _finish(store_write.put(writer, ROWS))
  before = _bytes(tmp_path / "a")
  with pytest.raises(errors.StoreError, match=next(iter(change))):
    store_write.start(tmp_path / "a", HOW | change, ROWS.shape, "float32")
  assert _bytes(tmp_path / "a") == before


def test_a_renamed_file_is_the_same_file(tmp_path):
  how = HOW | {"weights": "a.pth", "weights_sha256": "0"}
  store_write.start(tmp_path / "a", how, ROWS.shape, "float32")
  again = store_write.start(
    tmp_path / "a", how | {"weights": "b"}, ROWS.shape, "float32"
  )
  assert again.rows == 0


def test_a_complete_store_needs_nothing_more(tmp_path):
  _finish(
    store_write.put(store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32"), ROWS)
  )
  assert store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32") is None


def test_a_folder_with_other_things_is_left_alone(tmp_path):
  (tmp_path / "mine.txt").write_text("x")
  with pytest.raises(errors.StoreError, match="empty folder"):
    store_write.start(tmp_path, HOW, ROWS.shape, "float32")
  assert os.listdir(tmp_path) == ["mine.txt"]


def test_no_space_leaves_nothing(tmp_path):
  """The limit on the size of a file stands in for a full disk."""
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
  try:
    with pytest.raises(errors.StoreError, match="make room"):
      store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32")
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["encodings.npy", "ids.npy", "meta.json"])
def test_damage_is_noticed(tmp_path, name):
  _finish(
    store_write.put(store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32"), ROWS)
  )
  path = tmp_path / "a" / name
  path.write_bytes(path.read_bytes()[:-9])
  with pytest.raises(errors.StoreError, match=name.replace(".", r"\.")):
    store_read.open_store(tmp_path / "a")


def test_a_changed_bit_is_noticed_when_asked(tmp_path):
  _finish(
    store_write.put(store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32"), ROWS)
  )
  path = tmp_path / "a" / "encodings.npy"
  blob = bytearray(path.read_bytes())
  blob[-1] ^= 1
  path.write_bytes(blob)
  store_read.open_store(tmp_path / "a")
  with pytest.raises(errors.StoreError, match="changed"):
    store_read.open_store(tmp_path / "a", verify=True)


def test_a_store_of_another_version_is_refused(tmp_path):
  _finish(
    store_write.put(store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32"), ROWS)
  )
  path = tmp_path / "a" / "meta.json"
  path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))
  with pytest.raises(errors.StoreError, match="version"):
    store_read.open_store(tmp_path / "a")


def _make(path, how=HOW, labels=None, ids=None):
  """A complete store of ten rows."""
  writer = store_write.put(store_write.start(path, how, ROWS.shape, "float32"), ROWS)
  labels = np.zeros(10, np.int32) if labels is None else labels
  ids = np.arange(10) if ids is None else ids
  store_write.finish(writer, ids, labels, np.zeros(10, np.uint8))
  return path


def _edit_meta(path, **changes):
  meta = json.loads((path / "meta.json").read_text()) | changes
  (path / "meta.json").write_text(json.dumps(meta))


def _refuses(path, *words, **kwargs):
  with pytest.raises(errors.StoreError) as caught:
    store_read.open_store(path, **kwargs)
  message = str(caught.value)
  assert message.isprintable()
  for word in words:
    assert word in message


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


FILES = ["encodings.npy", "ids.npy", "labels.npy", "split.npy", "meta.json"]


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


@pytest.mark.parametrize("classes", [("cat", "dog"), ("cat", "dog", "Füchse 狐")])
def test_class_names_are_kept_and_compared(tmp_path, classes):
  labels = np.arange(10, dtype=np.int32) % 2
  how = HOW | {"classes": list(classes)}
  path = _make(tmp_path / "a", how, labels)
  assert tuple(store_read.open_store(path).meta["classes"]) == classes
  assert store_write.start(path, how, ROWS.shape, "float32") is None
  for other in (HOW, HOW | {"classes": ["dog", "cat"]}):
    with pytest.raises(errors.StoreError, match="begun with classes"):
      store_write.start(path, other, ROWS.shape, "float32")


def test_a_store_of_before_there_were_class_names_is_complete(tmp_path):
  path = _make(tmp_path / "a")
  before = _bytes(path)
  how = HOW | {"classes": ["cat"]}
  assert store_write.start(path, how, ROWS.shape, "float32") is None
  assert _bytes(path) == before
  begun = store_write.put(
    store_write.start(tmp_path / "b", HOW, ROWS.shape, "float32"), ROWS[:4]
  )
  again = store_write.start(tmp_path / "b", how, ROWS.shape, "float32")
  assert again.rows == begun.rows
  assert _finish(store_write.put(again, ROWS[4:])).meta["classes"] == ["cat"]


ENCODED = {
  "encoder": "resnet34", "size": 224, "resize": "bilinear, half-pixel centres",
  "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "compute": "float32",
  "weights_sha256": "ab" * 32, "storage": "float32", "batch": 16, "weights": "a.pth",
}  # fmt: skip


def test_what_made_a_store_is_one_readable_line():
  assert store_format.identity(ENCODED) == (
    "resnet34 224px bilinear, half-pixel centres mean 0.485 0.456 0.406"
    " std 0.229 0.224 0.225 float32 sha256:" + "ab" * 32
  )
  assert store_format.identity({"encoder": "CLIP ViT-B/32", "storage": "float16"}) == (
    "CLIP ViT-B/32"
  )
  assert store_format.identity({}) == store_format.identity({"encoder": ""}) == ""


@pytest.mark.parametrize(
  "change",
  [
    {"encoder": "resnet18"}, {"size": 64}, {"resize": "nearest"}, {"mean": [0.0] * 3},
    {"std": [1.0] * 3}, {"compute": "bfloat16"}, {"weights_sha256": "cd" * 32},
  ],
)  # fmt: skip
def test_another_way_to_encode_is_another_identity(change):
  assert store_format.identity(ENCODED | change) != store_format.identity(ENCODED)


def test_what_does_not_change_encodings_leaves_the_identity(tmp_path):
  same = ENCODED | {"weights": "b.pth", "storage": "float16", "classes": ["cat"]}
  assert store_format.identity(same) == store_format.identity(ENCODED)
  path = _make(tmp_path / "a", ENCODED)
  assert store_format.identity(
    store_read.open_store(path).meta
  ) == store_format.identity(ENCODED)


LEFT = [".ids.npy.x1y2_3zq", ".meta.json.0123456789ab", ".partial.json.abcdefgh"]


def test_what_killed_processes_left_is_cleaned_away(tmp_path):
  path = _make(tmp_path / "a")
  whole = _bytes(path)
  mine = [".meta.json.swp", ".ids.npy.", "notes.txt", ".other.json.abcdefgh"]
  for name in (*LEFT, "partial.json", *mine):
    (path / name).write_bytes(b"x")
  removed = []
  leftovers.clean(path, lambda file: (removed.append(file.name), file.unlink()))
  assert sorted(removed) == sorted([*LEFT, "partial.json"])
  assert set(_bytes(path)) == set(whole) | set(mine)
  leftovers.clean(path)


def test_the_note_of_an_unfinished_store_is_not_cleaned_away(tmp_path):
  store_write.put(
    store_write.start(tmp_path / "a", HOW, ROWS.shape, "float32"), ROWS[:4]
  )
  before = _bytes(tmp_path / "a")
  for name in LEFT:
    (tmp_path / "a" / name).write_bytes(b"x")
  leftovers.clean(tmp_path / "a")
  assert _bytes(tmp_path / "a") == before


def test_leftovers_of_a_process_that_erases_now_stay(tmp_path):
  """It holds the lock, and the temporary is its own."""
  path = _make(tmp_path / "a")
  (path / ".meta.json.0123456789ab").write_bytes(b"x")
  (path / "lock").write_bytes(b"")
  with (path / "lock").open() as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    assert store_write.start(path, HOW, ROWS.shape, "float32") is None
    assert (path / ".meta.json.0123456789ab").exists()
  assert store_write.start(path, HOW, ROWS.shape, "float32") is None
  assert not (path / ".meta.json.0123456789ab").exists()


@pytest.mark.parametrize("left", [[], ["encodings.part"], LEFT])
def test_a_folder_with_leftovers_alone_is_as_good_as_empty(tmp_path, left):
  (tmp_path / "a").mkdir()
  for name in left:
    (tmp_path / "a" / name).write_bytes(b"x" * 1000)
  _make(tmp_path / "a")
  assert sorted(_bytes(tmp_path / "a")) == sorted(FILES)


def test_arrays_of_somebody_else_are_left_alone(tmp_path):
  np.save(tmp_path / "labels.npy", np.arange(3))
  (tmp_path / LEFT[0]).write_bytes(b"x")
  before = _bytes(tmp_path)
  with pytest.raises(errors.StoreError, match="empty folder"):
    store_write.start(tmp_path, HOW, ROWS.shape, "float32")
  assert _bytes(tmp_path) == before


@pytest.mark.parametrize("damage", [os.unlink, lambda p: os.truncate(p, 100)])
def test_rows_that_are_gone_are_made_again(tmp_path, damage):
  path = tmp_path / "a"
  store_write.put(store_write.start(path, HOW, ROWS.shape, "float32"), ROWS[:6])
  damage(path / "encodings.part")
  again = store_write.start(path, HOW, ROWS.shape, "float32")
  assert again.rows == 0
  _finish(store_write.put(again, ROWS))
  assert _bytes(path) == _bytes(_make(tmp_path / "b"))


def test_a_row_whose_erasure_was_interrupted_is_left_out(tmp_path):
  """Encoding and label are overwritten, the id is not yet."""
  path = _make(tmp_path / "a")
  rows, labels = ROWS.copy(), np.zeros(10, np.int32)
  rows[4], labels[4] = 0, -1
  np.save(path / "encodings.npy", rows)
  np.save(path / "labels.npy", labels)
  assert store_read.open_store(path).ids.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
  rows[4] = ROWS[4]
  np.save(path / "encodings.npy", rows)
  _refuses(path, "label -1")


def test_erased_rows_are_left_out_and_the_others_still_increase(tmp_path):
  path = _make(tmp_path / "a")
  ids, labels = np.arange(10), np.zeros(10, np.int32)
  ids[[0, 5, 9]] = labels[[0, 5, 9]] = -1
  np.save(path / "ids.npy", ids)
  np.save(path / "labels.npy", labels)
  assert store_read.open_store(path).ids.tolist() == [1, 2, 3, 4, 6, 7, 8]
  ids[7] = 6
  np.save(path / "ids.npy", ids)
  _refuses(path, "occur twice")


def test_opening_looks_at_the_columns_only(tmp_path):
  """60,000 rows of 512: opening must not take as long as reading 120 MB."""
  count, path = 60_000, tmp_path / "a"
  writer = store_write.start(path, HOW, (count, 512), "float32")
  (path / "partial.json").write_text(json.dumps({"how": HOW, "rows": count}))
  store_write.finish(
    writer, np.arange(count), np.zeros(count, np.int32), np.zeros(count, np.uint8)
  )
  times = []
  for _ in range(5):
    began = time.perf_counter()
    store_read.open_store(path)
    times.append(time.perf_counter() - began)
  assert min(times) < 0.01
