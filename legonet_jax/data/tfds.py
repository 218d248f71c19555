"""CIFAR-10 and CIFAR-100 through tensorflow-datasets (the extra `tfds`).

TFDS shuffles the samples when it prepares a dataset, so positions mean nothing. But
each sample has an id such as `train_16399`, which TFDS counts over the official files
in their official order. So an image has the same id here as from the archives.
"""

from collections.abc import Iterable
import pathlib
from typing import Any

import numpy as np

from legonet_jax import errors
from legonet_jax.data.cifar_names import CLASSES
from legonet_jax.data.dataset import SPLITS, TEST, Dataset, make_dataset
from legonet_jax.io.files import PathLike

_TEST_START = 50_000


def load_tfds(name: str, folder: PathLike | None) -> Dataset:
  """`cifar10` or `cifar100`, prepared by TFDS in `folder` (or its own default)."""
  folder = None if folder is None else pathlib.Path(folder)
  images, labels, ids, splits = [], [], [], []
  for split in SPLITS:
    for example in _source(name, split, folder):
      images.append(np.asarray(example["image"], np.uint8))
      labels.append(int(example["label"]))
      ids.append(number_of(example["id"]))
      splits.append(SPLITS.index(split))
  columns = np.asarray(labels), np.asarray(ids), np.asarray(splits)
  return make_dataset(name, np.stack(images), *columns, CLASSES[name])


def _source(name: str, split: str, folder: pathlib.Path | None) -> Iterable[Any]:
  """TFDS's examples of one split, in TFDS's order."""
  try:
    import tensorflow_datasets as tfds

    data_dir = None if folder is None else str(folder)
    source: Iterable[Any] = tfds.data_source(name, split=split, data_dir=data_dir)
    return source
  except ImportError as e:  # also TensorFlow, which TFDS imports to prepare a dataset
    raise errors.DataError(
      f"tensorflow-datasets is not usable ({e}); pip install 'legonet-jax[tfds]', or"
      " use the official archive (--source archive)"
    ) from None


def number_of(example_id: str | bytes) -> int:
  """The id of TFDS's `train_16399` or `test_00003` in the official order."""
  text = example_id.decode() if isinstance(example_id, bytes) else example_id
  split, _, number = text.rpartition("_")
  if split not in SPLITS or not number.isdecimal():
    raise errors.DataError(f"TFDS gave the example id '{text}', not 'train_00000'")
  return int(number) + (_TEST_START if split == SPLITS[TEST] else 0)
