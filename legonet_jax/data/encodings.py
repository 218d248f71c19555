"""Reads and checks encodings and given keys from the user's files."""

import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import features
from legonet_jax.data import dataset as dataset_lib, names, npz
from legonet_jax.io import untrusted
from legonet_jax.io.files import PathLike

_BLOCK = 1 << 16


class EncodingTable(NamedTuple):
  """Encodings in the order of their ids.

  Attributes:
    encodings: [N, d] float16, float32 or float64.
    labels: [N] int32; zeros if the file has none.
    ids: [N] int64, increasing; the row numbers if the file has none.
    split: [N] uint8, 0 train and 1 test; all train if the file does not say.
    classes: the names of the labels, if they are known.
  """

  encodings: NDArray[np.floating]
  labels: NDArray[np.int32]
  ids: NDArray[np.int64]
  split: NDArray[np.uint8]
  classes: tuple[str, ...] | None


def read_encodings(path: PathLike, labels: bool = True) -> EncodingTable:
  """The table in an `.npz` with encodings, labels, ids, split and classes.

  Args:
    path: the file.
    labels: whether the file must have labels.

  Raises:
    DataError: if the file is not such an `.npz`, or a column is wrong.
  """
  path = pathlib.Path(path)
  return make_table(path, npz.read_arrays(path, "encodings", labels))


def make_table(path: pathlib.Path, arrays: dict[str, NDArray[Any]]) -> EncodingTable:
  """Checks arrays, given by name, and makes a table; `path` is for messages."""
  encodings = arrays["encodings"]
  if encodings.ndim != 2 or encodings.dtype.kind != "f" or not encodings.size:
    raise errors.DataError(
      f"{path}: encodings are {encodings.dtype}{list(encodings.shape)}; give floats"
      " [samples, width]"
    )
  if encodings.dtype.itemsize > 8:
    raise errors.DataError(
      f"{path}: encodings are {encodings.dtype}; give float16, float32 or float64"
    )
  check_numbers(path, encodings)
  columns = arrays["labels"], arrays["ids"], arrays["split"]
  order = dataset_lib.check_columns(str(path), len(encodings), *columns)
  y, ids, split = (column[order] for column in columns)
  classes = npz.read_classes(str(path), arrays)
  if classes is not None:
    classes = names.check_classes(str(path), classes, int(y.max()) + 1)
  return EncodingTable(
    encodings[order],
    y.astype(np.int32),
    ids.astype(np.int64),
    split.astype(np.uint8),
    classes,
  )


def check_numbers(path: pathlib.Path, encodings: NDArray[np.floating]) -> None:
  """Raises DataError if a number is not finite or is too large for a model."""
  for start in range(0, len(encodings), _BLOCK):
    _, sane = features.to_float32(encodings[start : start + _BLOCK])
    if not sane.all():
      raise errors.DataError(
        f"{path}: the encoding in row {start + int(np.argmin(sane))} has a value that"
        " is NaN, infinite or over 1e30; encode that sample again"
      )


def read_given_keys(path: PathLike, follow: bool = True) -> NDArray[np.floating]:
  """Keys [n, d] in encoding space from an `.npy` file, for the policy `given`.

  Args:
    path: the file.
    follow: whether it may be a symbolic link.

  Raises:
    DataError: if the file does not hold such keys.
  """
  path = pathlib.Path(path)
  try:
    keys: NDArray[np.floating] = untrusted.read_npy(path, follow=follow)
  except FileNotFoundError:
    raise errors.DataError(f"no file {path}; check the path") from None
  if keys.ndim != 2 or not keys.size or keys.dtype.kind != "f":
    raise errors.DataError(
      f"{path}: keys are {keys.dtype}{list(keys.shape)}; give floats [adapters, width]"
    )
  if not features.to_float32(keys)[1].all():
    raise errors.DataError(
      f"{path}: keys have a value that is NaN, infinite or over 1e30; make them again"
    )
  return keys
