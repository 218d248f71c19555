"""The same sample has the same id, however it came; damaged data is refused."""

import hashlib
import io
import os
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
from legonet_jax.data import cifar, cifar_names, dataset as dataset_lib, folder, tfds

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


@pytest.fixture
def official(monkeypatch):
  """Makes an archive the official one of its name, by its hash."""

  def accept(path):
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    releases = [
      release._replace(archive=release.archive._replace(sha256=digest))
      if release.archive.filename == path.name
      else release
      for release in cifar._RELEASES["cifar10"]
    ]
    monkeypatch.setitem(cifar._RELEASES, "cifar10", tuple(releases))

  return accept


def _check_tiny(found):
  np.testing.assert_array_equal(found.ids, [0, 1, 2, 3, 50_000, 50_001, 50_002])
  np.testing.assert_array_equal(found.labels, LABELS)
  np.testing.assert_array_equal(found.split, [0, 0, 0, 0, 1, 1, 1])
  np.testing.assert_array_equal(found.read(0, 7), PIXELS.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("form", [0, 1], ids=["binary", "python"])
@pytest.mark.parametrize("write", [_unpack, _pack])
def test_cifar_ids_are_the_official_order_in_every_form(
  tmp_path, tiny_cifar, official, form, write
):
  archive = write(tmp_path, *tiny_cifar[form])
  if archive is not None:
    official(archive)
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
def test_a_corrupt_archive_is_one_clear_error(tmp_path, tiny_cifar, official, share):
  path = _pack(tmp_path, *tiny_cifar[0])
  official(path)
  blob = path.read_bytes()
  path.write_bytes(blob[: int(share * len(blob))])
  with pytest.raises(errors.DataError, match=r"damaged.*sha256"):
    data.load_dataset("cifar10", 32, folder=tmp_path)
  official(path)  # even with the right hash
  with pytest.raises(errors.DataError, match=r"is damaged \(|not the official file"):
    data.load_dataset("cifar10", 32, folder=tmp_path)


def test_an_archive_with_another_hash_is_not_even_opened(
  tmp_path, tiny_cifar, monkeypatch
):
  _pack(tmp_path, *tiny_cifar[0])
  monkeypatch.setattr(tarfile, "open", None)
  with pytest.raises(errors.DataError, match="not the official archive"):
    data.load_dataset("cifar10", 32, folder=tmp_path)


def test_the_official_files_are_within_their_bounds():
  """Sizes as in the archives."""
  sizes = {
    ("cifar10", 0, "data_batch_1.bin"): 30_730_000,
    ("cifar10", 0, "test_batch.bin"): 30_730_000,
    ("cifar10", 1, "data_batch_1"): 31_035_704,
    ("cifar100", 0, "train.bin"): 153_700_000,
    ("cifar100", 0, "test.bin"): 30_740_000,
    ("cifar100", 1, "train"): 155_249_918,
  }
  for (name, form, file), size in sizes.items():
    release = cifar._RELEASES[name][form]
    bound = cifar._max_size(release, file)
    assert size <= bound <= 1.05 * size
    assert release.pickled or bound == size


def test_nothing_in_an_archive_is_written_anywhere(tmp_path, tiny_cifar, official):
  place = tmp_path / "inner"
  place.mkdir()
  extra = [("../escaped", b"x"), ("/tmp/escaped-x", b"x")]
  official(_pack(place, *tiny_cifar[0], extra=extra))
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
