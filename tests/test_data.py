"""The same sample has the same id, however it came; damaged data is refused."""

import hashlib
import io
import pathlib
import pickle
import pickletools
import sys
import tarfile
import types

import numpy as np
from PIL import Image
import pytest

from legonet_jax import data, errors
from legonet_jax.data import cifar, dataset as dataset_lib, folder, tfds

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (7, 3, 32, 32), np.uint8)  # 4 train in two files, 3 test
LABELS = np.uint8([3, 1, 2, 0, 9, 8, 7])
PARTS = [("one", 0, slice(0, 2)), ("two", 0, slice(2, 4)), ("three", 1, slice(4, 7))]


def _binary(part):
  return b"".join(
    bytes([label]) + image.tobytes()
    for label, image in zip(LABELS[part], PIXELS[part], strict=True)
  )


def _pickled(part):
  """As Python 2 wrote it: every string is a byte string."""
  rows = PIXELS[part].reshape(-1, 3072)
  batch = {b"data": rows, b"labels": LABELS[part].tolist()}
  blob = bytearray(pickle.dumps(batch, 3))
  old = {"BINBYTES": b"T", "SHORT_BINBYTES": b"U", "BINUNICODE": b"T"}
  for op, _, at in pickletools.genops(bytes(blob)):
    if op.name in old:
      blob[at : at + 1] = old[op.name]
  return bytes(blob)


@pytest.fixture
def tiny_cifar(monkeypatch):
  """CIFAR-10 with seven images, in both forms."""
  releases, contents = [], []
  for release, make in zip(
    cifar._RELEASES["cifar10"], (_binary, _pickled), strict=True
  ):
    content = {name: make(part) for name, _, part in PARTS}
    files = tuple(
      (name, split, hashlib.md5(content[name]).hexdigest()) for name, split, _ in PARTS
    )
    releases.append(release._replace(files=files))
    contents.append(content)
  monkeypatch.setitem(cifar._RELEASES, "cifar10", tuple(releases))
  return list(zip(releases, contents, strict=True))


def _unpack(place, release, content):
  (place / release.folder).mkdir(parents=True)
  for name, blob in content.items():
    (place / release.folder / name).write_bytes(blob)


def _pack(place, release, content, extra=()):
  path = place / release.archive.filename
  with tarfile.open(path, "w:gz") as archive:
    blobs = {f"{release.folder}/{n}": b for n, b in content.items()} | dict(extra)
    for name, blob in blobs.items():
      member = tarfile.TarInfo(name)
      member.size = len(blob)
      archive.addfile(member, io.BytesIO(blob))
  return path


def _check_tiny(found):
  np.testing.assert_array_equal(found.ids, [0, 1, 2, 3, 50_000, 50_001, 50_002])
  np.testing.assert_array_equal(found.labels, LABELS)
  np.testing.assert_array_equal(found.split, [0, 0, 0, 0, 1, 1, 1])
  np.testing.assert_array_equal(found.read(0, 7), PIXELS.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("form", [0, 1], ids=["binary", "python"])
@pytest.mark.parametrize("write", [_unpack, _pack])
def test_cifar_ids_are_the_official_order_in_every_form(
  tmp_path, tiny_cifar, form, write
):
  write(tmp_path, *tiny_cifar[form])
  found = data.load_dataset("cifar10", 32, folder=tmp_path)
  _check_tiny(found)
  assert found.fingerprint == (
    data.make_dataset(
      "x", PIXELS.transpose(0, 2, 3, 1), LABELS, found.ids, found.split
    ).fingerprint
  )


def test_cifar_from_tfds_is_the_same_dataset(tmp_path, tiny_cifar, monkeypatch):
  """TFDS shuffles; its example ids put the samples back."""
  examples = {"train": [], "test": []}
  for i in (2, 0, 3, 1):
    examples["train"].append((f"train_{i:05d}", i))
  for i in (1, 2, 0):
    examples["test"].append((f"test_{i:05d}", 4 + i))

  def data_source(name, split, data_dir):
    return [
      {"id": k.encode(), "image": PIXELS[i].transpose(1, 2, 0), "label": LABELS[i]}
      for k, i in examples[split]
    ]

  module = types.ModuleType("tensorflow_datasets")
  module.data_source = data_source
  monkeypatch.setitem(sys.modules, "tensorflow_datasets", module)
  found = data.load_dataset("cifar10", 32, source="tfds")
  _check_tiny(found)
  _unpack(tmp_path, *tiny_cifar[0])
  direct = data.load_dataset("cifar10", 32, folder=tmp_path)
  assert found.fingerprint == direct.fingerprint


def test_without_tfds_the_error_says_what_to_install(monkeypatch):
  monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
  with pytest.raises(errors.DataError, match=r"legonet-jax\[tfds\]"):
    data.load_dataset("cifar10", 32, source="tfds")


def test_an_unknown_tfds_id_is_refused():
  assert tfds.number_of("train_16399") == 16_399
  assert tfds.number_of(b"test_00003") == 50_003
  with pytest.raises(errors.DataError, match="valid_1"):
    tfds.number_of("valid_1")


def test_a_changed_cifar_file_is_refused(tmp_path, tiny_cifar):
  release, content = tiny_cifar[0]
  _unpack(tmp_path, release, content | {"two": content["two"][:-1] + b"?"})
  with pytest.raises(errors.DataError, match="two is not the official file"):
    data.load_dataset("cifar10", 32, folder=tmp_path)


def test_a_malicious_pickle_in_an_archive_does_not_run(tmp_path, tiny_cifar):
  release, content = tiny_cifar[1]

  class Evil:
    def __reduce__(self):
      return pathlib.Path.mkdir, (tmp_path / "owned",)

  _unpack(tmp_path, release, content | {"two": pickle.dumps(Evil())})
  with pytest.raises(errors.DataError, match="official"):
    data.load_dataset("cifar10", 32, folder=tmp_path)
  with pytest.raises(
    errors.DataError, match="not official"
  ):  # even with the right hash
    cifar._parse_pickle(pickle.dumps(Evil()), 1)
  assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_corrupt_archive_is_one_clear_error(tmp_path, tiny_cifar, share):
  path = _pack(tmp_path, *tiny_cifar[0])
  blob = path.read_bytes()
  path.write_bytes(blob[: int(share * len(blob))])
  with pytest.raises(errors.DataError, match=r"damaged|not the official"):
    data.load_dataset("cifar10", 32, folder=tmp_path)


def test_nothing_in_an_archive_is_written_anywhere(tmp_path, tiny_cifar):
  place = tmp_path / "inner"
  place.mkdir()
  _pack(place, *tiny_cifar[0], extra=[("../escaped", b"x"), ("/tmp/escaped-x", b"x")])
  _check_tiny(data.load_dataset("cifar10", 32, folder=place))
  assert [p.name for p in tmp_path.rglob("*")] == ["inner", "cifar-10-binary.tar.gz"]


def test_an_empty_place_says_what_belongs_there(tmp_path):
  with pytest.raises(errors.DataError, match=r"cifar-100-binary\.tar\.gz"):
    data.load_dataset("cifar100", 32, folder=tmp_path)


def test_npz_keeps_given_ids_and_sorts_by_them(tmp_path):
  images = RNG.integers(0, 256, (3, 4, 5, 3), np.uint8)
  path = tmp_path / "x.npz"
  np.savez(path, images=images, labels=[5, 6, 7], ids=[30, 10, 20], split=[0, 1, 0])
  found = data.load_dataset(str(path), 32)
  np.testing.assert_array_equal(found.ids, [10, 20, 30])
  np.testing.assert_array_equal(found.labels, [6, 7, 5])
  np.testing.assert_array_equal(found.split, [1, 0, 0])
  np.testing.assert_array_equal(found.read(0, 3), images[[1, 2, 0]])


@pytest.mark.parametrize(
  ("change", "problem"),
  [
    ({"ids": [1, 1, 2]}, "occurs twice"),
    ({"ids": [-1, 1, 2]}, "at least 0"),
    ({"labels": [0, 1]}, "3 integers"),
    ({"labels": [0.5, 1, 2]}, "3 integers"),
    ({"split": [0, 1, 2]}, "split is 0"),
    ({"images": np.zeros((3, 4, 4), np.uint8)}, "uint8"),
    ({"images": np.zeros((3, 4, 4, 3), np.float32)}, "uint8"),
    ({"images": np.zeros((0, 4, 4, 3), np.uint8), "labels": []}, "no images|integers"),
    ({"labels": np.asarray([{}, {}, {}])}, "not a readable"),
  ],
)
def test_a_bad_npz_is_refused(tmp_path, change, problem):
  arrays = {"images": np.zeros((3, 4, 4, 3), np.uint8), "labels": [0, 1, 2]} | change
  np.savez(tmp_path / "x.npz", **arrays)
  with pytest.raises(errors.DataError, match=problem):
    data.load_dataset(str(tmp_path / "x.npz"), 32)


def test_take_keeps_ids_of_a_split_and_a_limit():
  made = data.make_dataset(
    "x", PIXELS.transpose(0, 2, 3, 1), LABELS, np.arange(7), np.uint8([0, 1] * 3 + [0])
  )
  test = data.take(made, "test", 2)
  np.testing.assert_array_equal(test.ids, [1, 3])
  np.testing.assert_array_equal(test.read(0, 2), made.read(0, 7)[[1, 3]])
  assert test.fingerprint != made.fingerprint
  assert data.take(made, None, None) is made


def _image(path, color, size=(20, 12)):
  path.parent.mkdir(parents=True, exist_ok=True)
  Image.new("RGB", size, color).save(path)
  return path


def test_folder_ids_depend_on_the_path_alone(tmp_path):
  _image(tmp_path / "a" / "1.png", "red")
  _image(tmp_path / "b" / "2.png", "blue")
  first = data.load_dataset(str(tmp_path), 8)
  _image(tmp_path / "aa" / "0.png", "green")
  second = data.load_dataset(str(tmp_path), 8)
  assert set(first.ids) < set(second.ids)
  row = int(np.flatnonzero(second.ids == folder.id_of(pathlib.Path("b/2.png")))[0])
  assert second.labels[row] == 2
  assert second.read(row, row + 1)[0].tolist() == [[[0, 0, 255]] * 8] * 8
  assert (second.ids >= 0).all()
  assert (np.diff(second.ids) > 0).all()


def test_folder_with_train_and_test_on_top(tmp_path):
  _image(tmp_path / "train" / "a" / "1.png", "red")
  _image(tmp_path / "train" / "b" / "1.png", "red")
  _image(tmp_path / "test" / "b" / "1.png", "red")
  found = data.load_dataset(str(tmp_path), 8)
  assert sorted(zip(found.split, found.labels, strict=True)) == [(0, 0), (0, 1), (1, 1)]


def test_folder_images_keep_their_proportions(tmp_path):
  image = Image.new("RGB", (40, 20), "black")
  image.paste("white", (10, 0, 30, 20))  # the central square
  image.save(tmp_path / "x.png")
  assert folder.read_image(tmp_path / "x.png", 10)[5, 2:8].min() == 255


def test_an_empty_class_folder_is_refused(tmp_path):
  _image(tmp_path / "a" / "1.png", "red")
  (tmp_path / "b").mkdir()
  with pytest.raises(errors.DataError, match="b has no images"):
    data.load_dataset(str(tmp_path), 8)


def test_an_unreadable_image_is_named(tmp_path):
  path = _image(tmp_path / "a" / "1.png", "red")
  path.write_bytes(path.read_bytes()[:40])
  found = data.load_dataset(str(tmp_path), 8)
  with pytest.raises(errors.DataError, match=r"1\.png"):
    found.read(0, 1)


def test_the_fingerprint_notices_every_column():
  columns = np.arange(3), np.zeros(3, np.int32), np.zeros(3, np.uint8), b"x"
  first = dataset_lib.fingerprint(*columns)
  for i, other in enumerate((np.arange(3) + 1, np.ones(3, np.int32), None, b"y")):
    if other is not None:
      changed = dataset_lib.fingerprint(*columns[:i], other, *columns[i + 1 :])
      assert changed != first
