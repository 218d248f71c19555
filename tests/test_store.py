"""The encoding store: made once, resumed, complete."""

import json
import os
import resource

import numpy as np
import pytest
from store_world import (
  HOW,
  ROWS,
  _bytes,
  _finish,
  same_salts,  # noqa: F401 (a fixture)
)

from legonet_jax import errors
from legonet_jax.store import (
  read as store_read,
  write as store_write,
)


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
    "encodings.npy", "ids.npy", "labels.npy", "meta.json", "salts.npy", "seals.npy",
        "split.npy",
  ]  # fmt: skip


@pytest.mark.usefixtures("same_salts")
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
