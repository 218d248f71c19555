"""Loads a dataset by its name."""

import pathlib
from typing import Literal

from legonet_jax import errors
from legonet_jax.data.cifar import load_cifar
from legonet_jax.data.dataset import Dataset
from legonet_jax.data.folder import load_folder
from legonet_jax.data.npz import load_npz
from legonet_jax.data.tfds import load_tfds
from legonet_jax.io.files import PathLike

CifarSource = Literal["archive", "tfds"]


def load_dataset(
  name: str,
  size: int,
  *,
  folder: PathLike | None = None,
  source: CifarSource = "archive",
  progress: bool = True,
) -> Dataset:
  """The dataset `name`: `cifar10`, `cifar100`, an `.npz` file or a folder of images.

  Args:
    name: the name or the path.
    size: the size to scale a folder's images to; arrays keep their own size.
    folder: the folder with CIFAR's files; the cache folder if not given.
    source: CIFAR from its official archive or from tensorflow-datasets.
    progress: whether a download shows a bar.
  """
  folder = None if folder is None else pathlib.Path(folder)
  if name in ("cifar10", "cifar100"):
    if source == "tfds":
      return load_tfds(name, folder)
    return load_cifar(name, folder, progress=progress)
  path = pathlib.Path(name)
  if path.suffix == ".npz":
    return load_npz(path)
  if name and path.is_dir():
    return load_folder(path, size)
  raise errors.DataError(
    f"no dataset '{name}'; give cifar10, cifar100, an .npz file or a folder of images"
  )
