"""Images from an `.npz` file.

It holds `images` [N, H, W, 3] uint8 and `labels` [N], and if you have them `ids` [N]
(else the row numbers) and `split` [N] (0 train, 1 test; else all train).
"""

import pathlib
from typing import Any
import zipfile
import zlib

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.data.dataset import Dataset, make_dataset


def load_npz(path: pathlib.Path) -> Dataset:
  """The dataset in `path`."""
  arrays = read_arrays(path, "images")
  return make_dataset(
    path.name, arrays["images"], arrays["labels"], arrays["ids"], arrays["split"]
  )


def read_arrays(path: pathlib.Path, content: str) -> dict[str, NDArray[Any]]:
  """`content`, labels, ids and split of an `.npz` file, nothing pickled among them."""
  if not path.is_file():
    raise errors.DataError(f"no file {path}; check the path")
  try:
    with np.load(path, allow_pickle=False) as file:
      arrays = {name: file[name] for name in file.files}
  except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as e:
    raise errors.DataError(f"{path} is not a readable .npz of arrays ({e})") from None
  for name in (content, "labels"):
    if name not in arrays:
      raise errors.DataError(
        f"{path} has no array '{name}'; it has {', '.join(arrays)}"
      )
  count = len(arrays[content])
  arrays.setdefault("ids", np.arange(count))
  arrays.setdefault("split", np.zeros(count, np.uint8))
  return arrays
