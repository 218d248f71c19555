"""CIFAR-10 and CIFAR-100 from their official archives, every file checked.

Ids are the official order: 0 ... 49,999 for the training images, 50,000 ... 59,999 for
the test images. A folder may hold the archives or the unpacked files; the binary
version is preferred to the Python one. An archive is opened only if its hash is right.
It is read in memory and never unpacked to disk, so no path in it can do harm. The
Python version is a pickle: only files with the right hash are opened, and even these by
an unpickler that knows numpy arrays only. No file is read beyond its official size.
"""

import gzip
import hashlib
import io
import pathlib
import pickle
import tarfile
from typing import Any, NamedTuple
import zlib

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.data.cifar_names import CLASSES
from legonet_jax.data.dataset import TEST, TRAIN, Dataset, make_dataset
from legonet_jax.io import download, untrusted
from legonet_jax.io.files import PathLike

_HOST = "https://www.cs.toronto.edu/~kriz"
_PIXELS = 3 * 32 * 32
_TEST_START = 50_000
_ROWS = {TRAIN: 50_000, TEST: 10_000}
# Beside the pixels, the Python version has about 33 bytes per image (label, name).
_MAX_PICKLED_EXTRA = 128


class _Release(NamedTuple):
  """One version of one dataset: its archive, and each file's split and md5."""

  archive: download.Remote
  folder: str
  pickled: bool
  label_bytes: int
  files: tuple[tuple[str, int, str], ...]


# md5 as published with the archives (and in torchvision); sha256 as in TFDS and Keras.
_RELEASES = {
  "cifar10": (
    _Release(
      download.Remote(
        f"{_HOST}/cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
      ),
      "cifar-10-batches-bin",
      pickled=False,
      label_bytes=1,
      files=(
        ("data_batch_1.bin", TRAIN, "5dd7e06a14cb22eb9f671a540d1b7c25"),
        ("data_batch_2.bin", TRAIN, "5ea93a67294ea407fff1d09f752e9692"),
        ("data_batch_3.bin", TRAIN, "942cd6a4bcdd0dd3c604fbe906cb4421"),
        ("data_batch_4.bin", TRAIN, "ae636b3ba5c66a11e91e8cb52e771fcb"),
        ("data_batch_5.bin", TRAIN, "53f37980c15c3d472c316c40844f3f0d"),
        ("test_batch.bin", TEST, "803d5f7f4d78ea53de84dbe85f74fb6d"),
      ),
    ),
    _Release(
      download.Remote(
        f"{_HOST}/cifar-10-python.tar.gz",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
      ),
      "cifar-10-batches-py",
      pickled=True,
      label_bytes=1,
      files=(
        ("data_batch_1", TRAIN, "c99cafc152244af753f735de768cd75f"),
        ("data_batch_2", TRAIN, "d4bba439e000b95fd0a9bffe97cbabec"),
        ("data_batch_3", TRAIN, "54ebc095f3ab1f0389bbae665268c751"),
        ("data_batch_4", TRAIN, "634d18415352ddfa80567beed471001a"),
        ("data_batch_5", TRAIN, "482c414d41f54cd18b22e5b47cb7c3cb"),
        ("test_batch", TEST, "40351d587109b95175f43aff81a1287e"),
      ),
    ),
  ),
  "cifar100": (
    _Release(
      download.Remote(
        f"{_HOST}/cifar-100-binary.tar.gz",
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
      ),
      "cifar-100-binary",
      pickled=False,
      label_bytes=2,  # coarse, fine
      files=(
        ("train.bin", TRAIN, "6172c7755cfe09b2fe270c85cebc1b15"),
        ("test.bin", TEST, "4499cfba6c016c1be1438163640a0898"),
      ),
    ),
    _Release(
      download.Remote(
        f"{_HOST}/cifar-100-python.tar.gz",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
      ),
      "cifar-100-python",
      pickled=True,
      label_bytes=2,
      files=(
        ("train", TRAIN, "16019d7e3df5f24257cddd939b257f8d"),
        ("test", TEST, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
      ),
    ),
  ),
}


def load_cifar(name: str, folder: PathLike | None, *, progress: bool = True) -> Dataset:
  """`cifar10` or `cifar100` from `folder`; without it from the cache or the internet.

  Raises:
    DataError: if the folder has none of the official files, or one is damaged.
    DownloadError: if no folder is given and the archive cannot be downloaded.
  """
  folder = None if folder is None else pathlib.Path(folder)
  releases = _RELEASES[name]
  places = [folder] if folder else [download.cache_dir() / "datasets"]
  for place in places:
    for release in releases:
      if (place / release.folder).is_dir():
        return _from_files(name, release, _folder_files(place, release))
      if (place / release.archive.filename).is_file():
        return _from_files(name, release, _archive_files(place, release))
  if folder:
    wanted = " or ".join(f"{r.archive.filename} ({r.folder}/)" for r in releases)
    raise errors.DataError(f"{folder} holds neither {wanted}; check --data")
  download.fetch(releases[0].archive, places[0], progress=progress)
  return _from_files(name, releases[0], _archive_files(places[0], releases[0]))


def _folder_files(place: pathlib.Path, release: _Release) -> dict[str, bytes]:
  files = {}
  for name, _, _ in release.files:
    path = place / release.folder / name
    if not path.is_file():
      raise errors.DataError(f"{path} is missing; unpack {release.archive.url} again")
    files[name] = untrusted.read_bytes(path, limit=_max_size(release, name))
  return files


def _max_size(release: _Release, file: str) -> int:
  """The size of an official file, or a safe upper bound if it is a pickle."""
  splits = {name: split for name, split, _ in release.files}
  rows = _ROWS[splits[file]] // list(splits.values()).count(splits[file])
  extra = _MAX_PICKLED_EXTRA if release.pickled else release.label_bytes
  return rows * (extra + _PIXELS)


def _archive_files(place: pathlib.Path, release: _Release) -> dict[str, bytes]:
  """The official files of an archive, in memory; other members are skipped."""
  path = place / release.archive.filename
  wanted = {f"{release.folder}/{name}": name for name, _, _ in release.files}
  files = {}
  with untrusted.open_plain(path) as packed:
    # Checked before unpacking, because 3 MB of packed zeros become 3 GB.
    if hashlib.file_digest(packed, "sha256").hexdigest() != release.archive.sha256:
      raise errors.DataError(
        f"{path} is damaged or not the official archive (sha256 differs); delete it and"
        f" download {release.archive.url}"
      )
    packed.seek(0)
    try:
      with tarfile.open(fileobj=packed, mode="r:gz") as archive:
        for member in archive:
          if member.name in wanted and member.isfile():
            name = wanted[member.name]
            file = archive.extractfile(member)
            files[name] = file.read(_max_size(release, name) + 1) if file else b""
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as e:
      raise errors.DataError(
        f"{path} is damaged ({untrusted.one_line(e)}); delete it and download"
        f" {release.archive.url}"
      ) from None
  return files


def _from_files(name: str, release: _Release, files: dict[str, bytes]) -> Dataset:
  images, labels, splits = [], [], []
  for file, split, md5 in release.files:
    data = files.get(file, b"")
    if hashlib.md5(data, usedforsecurity=False).hexdigest() != md5:
      raise errors.DataError(
        f"{release.folder}/{file} is not the official file (md5 differs); get"
        f" {release.archive.url} again"
      )
    pixels, classes = (_parse_pickle if release.pickled else _parse_binary)(
      data, release.label_bytes
    )
    images.append(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    labels.append(classes)
    splits.append(np.full(len(classes), split, np.uint8))
  part = np.concatenate(splits)
  # Numbers in the official order; test images always start at 50,000.
  ids = np.concatenate(
    [np.arange((part == TRAIN).sum()), _TEST_START + np.arange((part == TEST).sum())]
  )
  return make_dataset(
    name, np.concatenate(images), np.concatenate(labels), ids, part, CLASSES[name]
  )


def _parse_binary(
  data: bytes, label_bytes: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
  rows = np.frombuffer(data, np.uint8).reshape(-1, label_bytes + _PIXELS)
  return rows[:, label_bytes:], rows[:, label_bytes - 1]


def _new_array(kind: Any, shape: Any, dtype: Any) -> NDArray[Any]:
  """The empty array in numpy's pickles; its state then sets shape and bytes."""
  if kind is not np.ndarray or shape != (0,):
    raise errors.DataError("a CIFAR batch holds something other than arrays")
  return np.ndarray(shape, dtype)


_RECONSTRUCT = (
  ("numpy.core.multiarray", "_reconstruct"),
  ("numpy._core.multiarray", "_reconstruct"),
)


class _ArrayUnpickler(pickle.Unpickler):
  def find_class(self, module: str, name: str) -> Any:
    if (module, name) in _RECONSTRUCT:
      return _new_array
    if module == "numpy" and name in ("ndarray", "dtype"):
      return getattr(np, name)
    raise errors.DataError(
      f"a CIFAR batch asks for '{module}.{name}'; it is not official"
    )


def _parse_pickle(
  data: bytes, label_bytes: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
  batch = _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
  key = b"labels" if label_bytes == 1 else b"fine_labels"
  return batch[b"data"], np.asarray(batch[key], np.uint8)
