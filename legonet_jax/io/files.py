"""Files that are either whole or not there, and names that outlive a crash."""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import pathlib
import re
import secrets
from typing import Any

_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
# Hexadecimal here; earlier versions took all of these characters.
_SUFFIX = re.compile(r"[a-z0-9_]{8,16}")

PathLike = str | os.PathLike[str]


def flush(handle: int) -> None:
  """Waits until what was written to a file is on the disk."""
  full = getattr(fcntl, "F_FULLFSYNC", None)
  if full is not None:  # macOS, where fsync leaves it in the memory of the drive
    with contextlib.suppress(OSError):
      fcntl.fcntl(handle, full)
      return
  os.fsync(handle)


@contextlib.contextmanager
def atomic(path: pathlib.Path, mode: int = 0o666) -> Iterator[pathlib.Path]:
  """A temporary file beside `path` that takes its place if nothing goes wrong.

  The bytes are on disk before the name is, so a crash or a full disk leaves the old
  file, or none. A process that is killed leaves the temporary: see `is_temporary`.

  Args:
    path: the file.
    mode: its permissions, less what the umask takes away; 0o600 for secrets.
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
  """Writes `data` to `path`, whole or not at all; `mode` as in `atomic`."""
  with atomic(path, mode) as temporary:
    handle = os.open(temporary, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
      write_all(handle, data)
    finally:
      os.close(handle)


def write_all(handle: int, data: Any) -> None:
  """Writes all bytes of a buffer to an open file, where the file stands."""
  left = memoryview(data).cast("B")
  while left:
    left = left[os.write(handle, left) :]


def create(path: pathlib.Path, mode: int = 0o666) -> int:
  """The handle, for writing, of a new file; FileExistsError if the name is taken."""
  return os.open(path, _NEW, mode)


def is_temporary(name: str, of: str) -> bool:
  """Whether `name` is what `atomic` calls its temporary for a file named `of`."""
  start = f".{of}."
  return name.startswith(start) and bool(_SUFFIX.fullmatch(name[len(start) :]))


def sync_folder(path: pathlib.Path) -> None:
  """Makes the names in a folder durable: those that are there, and what is gone."""
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
  # Who made the one that was there may have been killed before its name was on disk.
  with contextlib.suppress(PermissionError):
    sync_folder(there.parent)


@contextlib.contextmanager
def folders_for(path: pathlib.Path) -> Iterator[None]:
  """Takes back the folders that were made for `path` in this block, if it fails.

  Only empty ones go, so nothing is lost that an interrupted command has begun.
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
