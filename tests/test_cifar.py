"""CIFAR from its archives and from TFDS: official ids, every file checked."""

import hashlib
import io
import pathlib
import pickle
import sys
import tarfile
import types

from data_world import (
  LABELS,
  PIXELS,
  _unpack,
  tiny_cifar,  # noqa: F401 (a fixture)
)
import numpy as np
import pytest

from legonet_jax import data, errors
from legonet_jax.data import cifar, tfds


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
