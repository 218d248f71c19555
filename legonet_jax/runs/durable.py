"""Files that survive a crash, and files that are gone: every step reaches the disk.

A name is durable only when its directory is; `files.atomic` makes a file whole, these
functions make it stay. `shred` overwrites a file before its name goes. On a file system
that writes in place (ext4, XFS) the old bytes are then gone from the file's blocks; a
copy-on-write file system, a snapshot, a backup or an SSD's spare blocks may still hold
them, which no program above them can change (docs/runs.md).
"""

from collections.abc import Callable
import concurrent.futures
import contextlib
import os
import pathlib
import shutil
from typing import TypeVar

from legonet_jax import fetch, files

T = TypeVar("T")
_ZEROS = bytes(1 << 20)


def sync_folder(path: pathlib.Path) -> None:
  """Makes the names in a folder durable."""
  handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
  try:
    os.fsync(handle)
  finally:
    os.close(handle)


def sync_tree(path: pathlib.Path) -> None:
  """Makes all files and names below a folder durable, the folder's own included."""
  for_all(_sync_file, files_below(path))
  for_all(sync_folder, [pathlib.Path(folder) for folder, _, _ in os.walk(path)])


def write(path: pathlib.Path, data: bytes) -> None:
  """Writes a file, whole or not at all, durable when this returns."""
  files.write(path, data)
  sync_folder(path.parent)


def make_folder(path: pathlib.Path) -> None:
  """Makes a folder and its parents, durable when this returns."""
  missing = [p for p in (path, *path.parents) if not p.exists()]
  path.mkdir(parents=True, exist_ok=True)
  for folder in missing:
    sync_folder(folder.parent)


def shred(path: pathlib.Path) -> None:
  """Overwrites a file with zeros and removes it; the caller syncs the folder.

  A link is removed and what it points to left alone.
  """
  with contextlib.suppress(FileNotFoundError):
    if path.is_symlink():
      path.unlink()
      return
    with path.open("r+b") as file:
      left = os.fstat(file.fileno()).st_size
      while left:
        left -= file.write(_ZEROS[:left])
      file.flush()
      os.fsync(file.fileno())
    path.unlink()


def shred_tree(path: pathlib.Path) -> None:
  """Shreds every file below a folder and removes it, durable when this returns."""
  if not path.exists():
    return
  for_all(shred, files_below(path))
  shutil.rmtree(path)
  sync_folder(path.parent)


def hashes_of(path: pathlib.Path) -> dict[str, str]:
  """The sha256 of every file below a folder, by its relative name."""
  files = sorted(files_below(path))
  names = [file.relative_to(path).as_posix() for file in files]
  return dict(zip(names, for_all(fetch.sha256_of, files), strict=True))


def files_below(path: pathlib.Path) -> list[pathlib.Path]:
  """All files in a folder and in those below it."""
  found = os.walk(path)
  return [pathlib.Path(folder, name) for folder, _, names in found for name in names]


def for_all(
  function: Callable[[pathlib.Path], T], paths: list[pathlib.Path]
) -> list[T]:
  """`function` of every path, side by side: a disk can sync many files at once."""
  if len(paths) < 2:
    return [function(path) for path in paths]
  with concurrent.futures.ThreadPoolExecutor(min(16, len(paths))) as pool:
    return list(pool.map(function, paths))


def _sync_file(path: pathlib.Path) -> None:
  handle = os.open(path, os.O_RDONLY)
  try:
    os.fsync(handle)
  finally:
    os.close(handle)
