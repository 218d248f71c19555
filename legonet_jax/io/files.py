"""Atomic writes, and file names that survive a crash."""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import pathlib
import re
import secrets
from typing import Any

_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
# This version uses hexadecimal digits; earlier ones used all of these characters.
_SUFFIX = re.compile(r"[a-z0-9_]{8,16}")

PathLike = str | os.PathLike[str]


def flush(handle: int) -> None:
  """Waits until all bytes written to a file are on the disk."""
  full = getattr(fcntl, "F_FULLFSYNC", None)
  if full is not None:  # macOS, where fsync leaves the bytes in the drive's cache
    with contextlib.suppress(OSError):
      fcntl.fcntl(handle, full)
      return
  os.fsync(handle)


@contextlib.contextmanager
def atomic(path: pathlib.Path, mode: int = 0o666) -> Iterator[pathlib.Path]:
  """Yields a temporary file, which then replaces `path` if the block does not fail.

  The bytes are on disk before the name is, so a crash or a full disk leaves the old
  file, or none. A killed process leaves the temporary file: see `is_temporary`.

  Args:
    path: the file.
    mode: its permissions, less the umask; 0o600 for secrets.
  """
  temporary = _create_beside(path, mode)
  try:
    yield temporary
    handle = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
      flush(handle)
    finally:
      os.close(handle)
    temporary.replace(path)
  except BaseException:
    temporary.unlink(missing_ok=True)
    raise


def write(path: pathlib.Path, data: bytes, mode: int = 0o666) -> None:
  """Writes `data` to `path` completely or not at all; `mode` as in `atomic`."""
  with atomic(path, mode) as temporary:
    handle = os.open(temporary, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
      write_all(handle, data)
    finally:
      os.close(handle)


def write_all(handle: int, data: Any) -> None:
  """Writes all bytes of a buffer to an open file, at its current position."""
  left = memoryview(data).cast("B")
  while left:
    left = left[os.write(handle, left) :]


def create(path: pathlib.Path, mode: int = 0o666) -> int:
  """Creates a file and opens it for writing; FileExistsError if the name is taken."""
  return os.open(path, _NEW, mode)


def is_temporary(name: str, of: str) -> bool:
  """Whether `name` is a temporary name that `atomic` makes for a file named `of`."""
  start = f".{of}."
  return name.startswith(start) and bool(_SUFFIX.fullmatch(name[len(start) :]))


def sync_folder(path: pathlib.Path) -> None:
  """Makes new and removed names in a folder durable."""
  handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
  try:
    flush(handle)
  finally:
    os.close(handle)


def make_folder(path: pathlib.Path) -> None:
  """Makes a folder and its parents, durable when this returns."""
  missing = [p for p in (path, *path.parents) if not p.exists()]
  there = missing[-1].parent if missing else path
  path.mkdir(parents=True, exist_ok=True)
  for folder in missing:
    sync_folder(folder.parent)
  # Whoever made the existing folder may have been killed before syncing its name.
  with contextlib.suppress(PermissionError):
    sync_folder(there.parent)


@contextlib.contextmanager
def folders_for(path: pathlib.Path) -> Iterator[None]:
  """If the block fails, removes the folders that it made for `path`.

  Removes only empty folders, so the work of an interrupted command is not lost.
  """
  missing = [p for p in (path, *path.parents) if not os.path.lexists(p)]
  try:
    yield
  except BaseException:
    for folder in missing:
      with contextlib.suppress(OSError):
        folder.rmdir()
    raise


def _create_beside(path: pathlib.Path, mode: int) -> pathlib.Path:
  """A new empty file in the folder of `path`, under a name that nobody can guess."""
  while True:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    with contextlib.suppress(FileExistsError):
      os.close(create(temporary, mode))
      return temporary
