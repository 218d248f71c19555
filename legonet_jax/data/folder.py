"""A folder of images with one sub-folder per class.

    photos/cat/001.jpg          photos/train/cat/001.jpg
    photos/dog/002.jpg          photos/test/dog/002.jpg

With `train` and `test` on top these are the splits, else everything is training data.
Labels number the class folders in alphabetical order. An image's id is a hash of its
path below the folder, so adding or removing other images never changes it; renaming the
file does. Images are scaled to the wanted size on their shorter side, then cut to their
central square.
"""

import hashlib
import pathlib

import numpy as np
from PIL import Image

from legonet_jax import errors
from legonet_jax.data.dataset import (
  SPLITS,
  Dataset,
  Images,
  check_columns,
  fingerprint,
)

_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"}


def load_folder(path: pathlib.Path, size: int) -> Dataset:
  """The images below `path`, read when they are needed, as [size, size, 3].

  Raises:
    DataError: if there are no classes, a class is empty, or (on reading) an image is
      damaged.
  """
  if not path.is_dir():
    raise errors.DataError(f"no folder {path}; check the path")
  tops = [path / split for split in SPLITS]
  split_tops = tops if any(top.is_dir() for top in tops) else [path]
  classes = sorted({c.name for top in split_tops for c in _folders(top)})
  if not classes:
    raise errors.DataError(
      f"{path} has no class folders; put images in {path}/<class>/"
    )
  files, labels, splits = [], [], []
  for split, top in enumerate(split_tops):
    for folder in _folders(top):
      found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES)
      if not found:
        raise errors.DataError(
          f"class folder {folder} has no images; fill or remove it"
        )
      files += found
      labels += [classes.index(folder.name)] * len(found)
      splits += [split] * len(found)
  ids = np.asarray([id_of(file.relative_to(path)) for file in files], np.int64)
  label, split_of = np.asarray(labels), np.asarray(splits)
  order = check_columns(str(path), len(files), label, ids, split_of)
  rows = [files[i] for i in order]
  columns = (
    ids[order],
    label[order].astype(np.int32),
    split_of[order].astype(np.uint8),
  )
  content = hashlib.sha256()
  for file in rows:
    content.update(hashlib.sha256(file.read_bytes()).digest())

  def read(start: int, stop: int) -> Images:
    return np.stack([read_image(file, size) for file in rows[start:stop]])

  print_ = fingerprint(*columns, content.digest())
  return Dataset(path.name, *columns, read, print_)


def id_of(relative: pathlib.Path) -> int:
  """63 bits of the sha256 of a path, written with slashes."""
  digest = hashlib.sha256(relative.as_posix().encode()).digest()
  return int.from_bytes(digest[:8], "big") >> 1


def read_image(path: pathlib.Path, size: int) -> Images:
  """The central square of an image, [size, size, 3] uint8."""
  try:
    with Image.open(path) as image:
      rgb = image.convert("RGB")
  except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as e:
    raise errors.DataError(
      f"cannot read image {path} ({e}); mend or remove it"
    ) from None
  shorter = min(rgb.size)
  wide, high = (max(size, round(side * size / shorter)) for side in rgb.size)
  rgb = rgb.resize((wide, high), Image.Resampling.BILINEAR)
  left, top = (wide - size) // 2, (high - size) // 2
  return np.asarray(rgb.crop((left, top, left + size, top + size)))


def _folders(top: pathlib.Path) -> list[pathlib.Path]:
  if not top.is_dir():
    return []
  return sorted(p for p in top.iterdir() if p.is_dir() and not p.name.startswith("."))
