"""Class names, identity, and what killed processes leave in a store."""

import fcntl
import json
import os
import time

import numpy as np
import pytest
from store_world import (
  FILES,
  HOW,
  ROWS,
  _bytes,
  _finish,
  _make,
  _refuses,
  same_salts,  # noqa: F401 (a fixture)
)

from legonet_jax import errors
from legonet_jax.store import (
  format as store_format,
  leftovers,
  read as store_read,
  write as store_write,
)

pytestmark = pytest.mark.usefixtures("same_salts")


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
