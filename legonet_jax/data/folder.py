"""A folder of images with one sub-folder per class.

    photos/cat/001.jpg          photos/train/cat/001.jpg
    photos/dog/002.jpg          photos/test/dog/002.jpg

Top folders `train` and `test` are the splits; without them everything is training data.
Labels number the class folders in alphabetical order, and the folders' names become the
class names. An image's id is a hash of its path below the folder, so adding or removing
other images never changes it, but renaming the file does. Images are scaled so that
their shorter side has the wanted size, then cut to their central square.
"""

import hashlib
import os
import pathlib

import numpy as np

from legonet_jax import errors
from legonet_jax.data import names
from legonet_jax.data.dataset import SPLITS, Dataset, Images, check_columns, fingerprint
from legonet_jax.data.image import SUFFIXES, read_image
from legonet_jax.io import untrusted
from legonet_jax.io.files import PathLike


def load_folder(path: PathLike, size: int) -> Dataset:
  """The images below `path` as [size, size, 3]; each is read only when needed.

  Raises:
    DataError: if there are no classes, a class is empty, or (on reading) an image is
      damaged.
  """
  path = pathlib.Path(path)
  if not path.is_dir():
    raise errors.DataError(f"no folder {path}; check the path")
  tops = [path / split for split in SPLITS]
  split_tops = tops if any(top.is_dir() for top in tops) else [path]
  classes = sorted({c.name for top in split_tops for c in _folders(top)})
  if not classes:
    raise errors.DataError(
      f"{path} has no class folders; put images in {path}/<class>/"
    )
  named = names.check_classes(str(path), classes, len(classes))
  files, labels, splits = [], [], []
  for split, top in enumerate(split_tops):
    for folder in _folders(top):
      found = _images_below(folder, path)
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
    with untrusted.open_plain(file) as opened:
      content.update(hashlib.file_digest(opened, "sha256").digest())

  def read(start: int, stop: int) -> Images:
    return np.stack([read_image(file, size) for file in rows[start:stop]])

  print_ = fingerprint(*columns, content.digest())
  return Dataset(path.name, *columns, read, print_, named, str(path.resolve()))


def id_of(relative: pathlib.Path) -> int:
  """63 bits of the sha256 of a path, written with slashes."""
  # Linux allows file names that are not UTF-8; they get an id as well.
  path = relative.as_posix().encode(errors="surrogateescape")
  digest = hashlib.sha256(path).digest()
  return int.from_bytes(digest[:8], "big") >> 1


def _images_below(folder: pathlib.Path, top: pathlib.Path) -> list[pathlib.Path]:
  """All images in a class folder, at any depth, sorted.

  Links to files are followed; links to folders are not, because they may form circles.
  """
  real = folder.resolve()
  if top.resolve().is_relative_to(real):
    raise errors.DataError(
      f"class folder {folder} is a link to {real}, which holds all classes; remove it"
    )
  found, waiting = [], [folder]
  while waiting:
    with os.scandir(waiting.pop()) as entries:
      for entry in entries:
        entry_path = pathlib.Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
          waiting.append(entry_path)
        elif entry_path.suffix.lower() in SUFFIXES and not entry.is_dir():
          found.append(entry_path)
  return sorted(found)


def _folders(top: pathlib.Path) -> list[pathlib.Path]:
  if not top.is_dir():
    return []
  return sorted(p for p in top.iterdir() if p.is_dir() and not p.name.startswith("."))
