"""Datasets of `.npz` files and folders: ids, names, and what is refused."""

import os
import pathlib
import sys
import types

from data_world import (
  LABELS,
  PIXELS,
  RNG,
  _unpack,
  tiny_cifar,  # noqa: F401 (a fixture)
)
import numpy as np
from PIL import Image
import pytest

from legonet_jax import data, errors
from legonet_jax.data import cifar_names, dataset as dataset_lib, folder


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
    ({"labels": np.asarray([{}, {}, {}])}, "pickled objects, which are never loaded"),
    ({"images": np.uint8(3)}, "'images' is one number"),
    ({"labels": np.int64(3)}, "3 integers"),
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


@pytest.mark.parametrize("size", [(4096, 4096), (20, 2000), (1, 1)])
def test_large_long_and_small_images_are_read(tmp_path, size):
  path = _image(tmp_path / "1.png", "red", size)
  assert folder.read_image(path, 8).tolist() == [[[255, 0, 0]] * 8] * 8


def test_links_and_folders_among_images(tmp_path):
  place = tmp_path / "photos"
  image = _image(tmp_path / "elsewhere" / "x.png", "red")
  _image(place / "a" / "deep" / "folder.png" / "1.png", "red")
  (place / "a" / "2.png").symlink_to(image)
  (place / "a" / "circle").symlink_to(place)
  (place / "a" / "circle.png").symlink_to(place)
  found = data.load_dataset(str(place), 8)
  paths = ["a/deep/folder.png/1.png", "a/2.png"]
  assert set(found.ids) == {folder.id_of(pathlib.Path(path)) for path in paths}
  assert found.read(0, 2).shape == (2, 8, 8, 3)


def test_names_that_are_not_utf8_have_ids_as_well(tmp_path):
  name = os.fsdecode(b"\xff.png")
  _image(tmp_path / "a" / "1.png", "red").rename(tmp_path / "a" / name)
  assert data.load_dataset(str(tmp_path), 8).ids.shape == (1,)


def test_the_fingerprint_notices_every_column():
  columns = np.arange(3), np.zeros(3, np.int32), np.zeros(3, np.uint8), b"x"
  first = dataset_lib.fingerprint(*columns)
  for i, other in enumerate((np.arange(3) + 1, np.ones(3, np.int32), None, b"y")):
    if other is not None:
      changed = dataset_lib.fingerprint(*columns[:i], other, *columns[i + 1 :])
      assert changed != first


def test_a_folder_names_its_classes(tmp_path):
  for name in ("fox", "cat", "emu", "dog"):
    _image(tmp_path / "train" / name / "1.png", "red")
  _image(tmp_path / "test" / "ant" / "1.png", "red")
  found = data.load_dataset(str(tmp_path), 8)
  assert found.classes == ("ant", "cat", "dog", "emu", "fox")
  row = int(np.flatnonzero(found.split == 1)[0])
  assert found.classes[found.labels[row]] == "ant"
  test = data.take(found, "test", None)
  assert (test.classes, test.labels.tolist()) == (found.classes, [0])


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "x" * 201, "\udcff"])
def test_a_class_folder_with_a_name_that_cannot_be_shown_is_refused(tmp_path, name):
  _image(tmp_path / name / "1.png", "red")
  with pytest.raises(errors.DataError, match="name of class 0") as caught:
    data.load_dataset(str(tmp_path), 8)
  assert str(caught.value).isprintable()


def test_cifar_has_its_official_names_however_it_came(tmp_path, tiny_cifar):
  _unpack(tmp_path, *tiny_cifar[0])
  found = data.load_dataset("cifar10", 32, folder=tmp_path)
  assert found.classes[:4] == ("airplane", "automobile", "bird", "cat")
  fine = cifar_names.CLASSES["cifar100"]
  assert len(set(fine)) == 100
  assert list(fine) == sorted(fine)
  assert (fine[0], fine[39], fine[99]) == ("apple", "keyboard", "worm")
  assert [len(names) for names in cifar_names.CLASSES.values()] == [10, 100]


def test_cifar_from_tfds_has_the_names_as_well(monkeypatch):
  module = types.ModuleType("tensorflow_datasets")
  module.data_source = lambda name, split, data_dir: [
    {"id": f"{split}_00000", "image": PIXELS[0].transpose(1, 2, 0), "label": 99}
  ]
  monkeypatch.setitem(sys.modules, "tensorflow_datasets", module)
  found = data.load_dataset("cifar100", 32, source="tfds")
  assert found.classes == cifar_names.CLASSES["cifar100"]


def _npz(path, **more):
  images = np.arange(3 * 4 * 4 * 3, dtype=np.uint8).reshape(3, 4, 4, 3)
  np.savez(path, images=images, labels=[0, 2, 1], **more)
  return data.load_dataset(str(path), 32)


def test_npz_may_name_its_classes(tmp_path):
  named = _npz(tmp_path / "x.npz", classes=["cat", "dog", "Füchse", "unused"])
  assert named.classes == ("cat", "dog", "Füchse", "unused")
  unnamed = _npz(tmp_path / "x.npz")
  assert unnamed.classes is None
  assert unnamed.fingerprint == named.fingerprint
  assert data.take(named, None, 1).classes == named.classes


@pytest.mark.parametrize(
  ("classes", "problem"),
  [
    (["cat", "dog"], "labels up to 2"),
    ([], "array of strings"),
    (["cat", "dog", "cat"], "two classes"),
    (["cat", "dog", ""], "class 2"),
    (["cat", "dog", "a\tb"], "class 2"),
    (["cat", "dog", "x" * 201], "class 2"),
    (["cat", "dog", "\ud800"], "class 2|not text"),
    ([b"cat", b"dog", b"emu"], "array of strings"),
    ([0, 1, 2], "array of strings"),
    ([["cat", "dog", "emu"]], "array of strings"),
    ("cat", "array of strings"),
    (np.full(3, 0x110000, np.uint32).view("<U1"), "not text"),
  ],
)
def test_bad_class_names_in_an_npz_are_refused(tmp_path, classes, problem):
  with pytest.raises(errors.DataError, match=problem) as caught:
    _npz(tmp_path / "x.npz", classes=np.asarray(classes))
  assert str(caught.value).isprintable()


@pytest.mark.parametrize("label", [2**31, 2**32 + 1, 2**63 - 1, 2**64 - 1])
def test_a_label_that_does_not_fit_is_refused_and_never_wrapped(tmp_path, label):
  images = np.zeros((3, 4, 4, 3), np.uint8)
  labels = np.asarray([0, 1, label], np.uint64)
  np.savez(tmp_path / "x.npz", images=images, labels=labels)
  with pytest.raises(errors.DataError, match="label"):
    data.load_dataset(str(tmp_path / "x.npz"), 32)
