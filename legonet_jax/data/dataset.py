"""The common form of all datasets: labelled images under stable ids, sorted by id.

A sample has the same id in every run and on every machine, because a later request to
delete it must be able to name it.
"""

from collections.abc import Callable, Sequence
import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.data import names

TRAIN, TEST = 0, 1
SPLITS = ("train", "test")

Images = NDArray[np.uint8]
Reader = Callable[[int, int], Images]


class Dataset(NamedTuple):
  """N images. Make it with `make_dataset`, which sorts and checks.

  Attributes:
    name: the dataset's name, for people.
    ids: [N] int64, strictly increasing, at least 0.
    labels: [N] int32, at least 0.
    split: [N] uint8, 0 for train and 1 for test.
    read: `read(start, stop)` gives the images [stop - start, H, W, 3] of these rows.
    fingerprint: a sha256 of ids, labels, splits and images.
    classes: the names of the labels 0 ... C - 1, or None if they are unknown.
    source: the absolute path of the user's file or folder that holds the images, or "".
  """

  name: str
  ids: NDArray[np.int64]
  labels: NDArray[np.int32]
  split: NDArray[np.uint8]
  read: Reader
  fingerprint: str
  classes: tuple[str, ...] | None = None
  source: str = ""


def make_dataset(
  name: str,
  images: Images,
  labels: NDArray[np.integer],
  ids: NDArray[np.integer],
  split: NDArray[np.integer] | None = None,
  classes: Sequence[str] | None = None,
) -> Dataset:
  """A dataset of images in memory, sorted by id.

  Args:
    name: for messages, and kept with the encodings.
    images: [N, H, W, 3] uint8.
    labels: [N], from 0.
    ids: [N] stable ids, each once.
    split: [N] 0 train, 1 test; all train if not given.
    classes: names of the labels 0 ... C - 1.

  Raises:
    DataError: if a column is wrong.
  """
  if split is None:
    split = np.zeros(len(images), np.uint8)
  if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
    raise errors.DataError(
      f"{name}: images have shape {images.shape} and type {images.dtype};"
      " give uint8 [N, height, width, 3]"
    )
  if images.size == 0:
    raise errors.DataError(f"{name} has no images, or images without pixels")
  order = check_columns(name, len(images), labels, ids, split)
  if classes is not None:
    classes = names.check_classes(name, classes, int(labels.max()) + 1)
  if not np.array_equal(order, np.arange(len(order))):
    images = images[order]
    labels, ids, split = labels[order], ids[order], split[order]
  columns = ids.astype(np.int64), labels.astype(np.int32), split.astype(np.uint8)
  content = hashlib.sha256(np.ascontiguousarray(images).data)
  print_ = fingerprint(*columns, content.digest())
  return Dataset(
    name, *columns, lambda start, stop: images[start:stop], print_, classes
  )


def check_columns(
  name: str,
  count: int,
  labels: NDArray[np.integer],
  ids: NDArray[np.integer],
  split: NDArray[np.integer],
) -> NDArray[np.intp]:
  """The order [N] that sorts the rows by id; raises DataError if a column is wrong."""
  for column, values in (("labels", labels), ("ids", ids), ("split", split)):
    if values.shape != (count,) or values.dtype.kind not in "iu":
      cure = f"{count} samples need {count} integers"
      if column == "labels" and values.dtype.kind in "US":
        cure += ", from 0; the names of the classes go into `classes`"
      elif column == "split":
        cure += ", 0 for train and 1 for test"
      raise errors.DataError(
        f"{name}: {column} are {values.dtype}{list(values.shape)}; {cure}"
      )
    if count and (values.min() < 0 or values.max() > np.iinfo(np.int64).max):
      raise errors.DataError(
        f"{name}: {column} go from {values.min()} to {values.max()};"
        " they must be at least 0 and fit in 63 bits"
      )
  if count and split.max() > TEST:
    raise errors.DataError(f"{name}: split is 0 (train) or 1 (test), not {split.max()}")
  if count and labels.max() > np.iinfo(np.int32).max:
    raise errors.DataError(f"{name}: label {labels.max()} is too large")
  order = np.argsort(ids, kind="stable")
  ordered = ids[order]
  twice = ordered[1:][ordered[1:] == ordered[:-1]]
  if len(twice):
    raise errors.DataError(f"{name}: id {twice[0]} occurs twice; each needs its own")
  return order


def take(dataset: Dataset, split: str | None, limit: int | None) -> Dataset:
  """The first `limit` samples of one split; None means both splits, or no limit."""
  keep = np.ones(len(dataset.ids), bool)
  if split is not None:
    keep = dataset.split == SPLITS.index(split)
  rows = np.flatnonzero(keep)[:limit]
  if len(rows) == 0:
    raise errors.DataError(f"{dataset.name} has no samples in split '{split}'")
  if len(rows) == len(keep):
    return dataset

  def read(start: int, stop: int) -> Images:
    wanted = rows[start:stop]
    runs = np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1)
    return np.concatenate([dataset.read(int(r[0]), int(r[-1]) + 1) for r in runs])

  columns = dataset.ids[rows], dataset.labels[rows], dataset.split[rows]
  print_ = fingerprint(*columns, dataset.fingerprint.encode())
  return Dataset(dataset.name, *columns, read, print_, dataset.classes, dataset.source)


def fingerprint(
  ids: NDArray[np.int64],
  labels: NDArray[np.int32],
  split: NDArray[np.uint8],
  content: bytes,
) -> str:
  """A sha256 of all columns and of the hash of the images."""
  sha = hashlib.sha256(b"legonet-jax dataset 1")
  for column in (ids, labels, split):
    sha.update(np.ascontiguousarray(column).data)
  sha.update(content)
  return sha.hexdigest()
