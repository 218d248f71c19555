"""Images from an `.npz` file.

It holds `images` [N, H, W, 3] uint8 and `labels` [N]. Optional are `ids` [N] (default:
the row numbers), `split` [N] (0 train, 1 test; default: all train) and `classes` [C],
the names of the labels 0 ... C - 1 (text; default: unknown).
"""

from collections.abc import Mapping
import pathlib
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.data.dataset import Dataset, make_dataset
from legonet_jax.io import untrusted
from legonet_jax.io.files import PathLike


def load_npz(path: PathLike) -> Dataset:
  """The dataset in `path`."""
  path = pathlib.Path(path)
  arrays = read_arrays(path, "images")
  columns = arrays["labels"], arrays["ids"], arrays["split"]
  classes = read_classes(path.name, arrays)
  dataset = make_dataset(path.name, arrays["images"], *columns, classes)
  return dataset._replace(source=str(path.resolve()))


def read_arrays(
  path: pathlib.Path, content: str, labels: bool = True
) -> dict[str, NDArray[Any]]:
  """`content`, labels, ids and split of an `.npz` file; pickled arrays are refused.

  Args:
    path: the file.
    content: the name of the main array.
    labels: whether labels are required; if not, missing labels are zeros.
  """
  if not path.exists():
    raise errors.DataError(f"no file {path}; check the path")
  arrays = untrusted.read_npz(path)
  for name in (content, "labels") if labels else (content,):
    if name not in arrays:
      there = untrusted.one_line(", ".join(arrays)) or "none"
      raise errors.DataError(f"{path} has no array '{name}'; it has {there}")
  if arrays[content].ndim == 0:
    raise errors.DataError(f"{path}: '{content}' is one number; give an array")
  count = len(arrays[content])
  arrays.setdefault("labels", np.zeros(count, np.int32))
  arrays.setdefault("ids", np.arange(count))
  arrays.setdefault("split", np.zeros(count, np.uint8))
  return arrays


def read_classes(
  name: str, arrays: Mapping[str, NDArray[Any]]
) -> tuple[str, ...] | None:
  """The array `classes` as text, or None if it is missing; `name` is for messages."""
  classes = arrays.get("classes")
  if classes is None:
    return None
  if classes.ndim != 1 or classes.dtype.kind != "U":
    raise errors.DataError(
      f"{name}: classes are {classes.dtype}{list(classes.shape)}; give an array of"
      " strings, one for each class"
    )
  number = np.dtype(np.uint32).newbyteorder(classes.dtype.byteorder)
  codes = np.frombuffer(classes.tobytes(), number)
  if codes.size and codes.max() > sys.maxunicode:  # numpy would fail with SystemError
    raise errors.DataError(f"{name}: classes are not text; save them again")
  return tuple(classes.tolist())
