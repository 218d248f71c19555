"""Removing the files that killed processes have left in a store's folder."""

from collections.abc import Callable
import contextlib
import fcntl
import os
import pathlib

from legonet_jax.io import files
from legonet_jax.store import format, marks


def clean(
  path: pathlib.Path, remove: Callable[[pathlib.Path], None] = pathlib.Path.unlink
) -> None:
  """Removes the files that killed processes have left in a store.

  These are temporary files and, in a complete store, `partial.json`. No other process
  may be writing to the store meanwhile.

  Args:
    path: the folder.
    remove: called to remove a file.
  """
  stale = [path / name for name in os.listdir(path) if _is_temporary(name)]
  if os.path.lexists(path / format.META) and os.path.lexists(path / format.PARTIAL):
    stale.append(path / format.PARTIAL)
  for file in stale:
    if file.is_symlink() or not file.is_dir():
      remove(file)
  if stale:
    files.sync_folder(path)


def clean_complete(path: pathlib.Path) -> None:
  """Cleans a complete store, unless a process is erasing rows of it right now."""
  flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
  # Errors are ignored: without permission to clean, the store is still complete.
  with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
    if os.path.lexists(path / format.LOCK):
      handle = os.open(path / format.LOCK, flags)
      stack.callback(os.close, handle)
      fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    clean(path)


def holds_nothing_else(path: pathlib.Path) -> bool:
  """Whether a folder holds only files that a killed process of ours may leave.

  Earlier versions created `encodings.part` before `partial.json`.
  """
  return all(name == format.GROWING or _is_temporary(name) for name in os.listdir(path))


def _is_temporary(name: str) -> bool:
  known = (
    format.META,
    format.PARTIAL,
    marks.FILE,
    *(f"{array}.npy" for array in (*format.ARRAYS, format.SEALS, format.SALTS)),
  )
  return any(files.is_temporary(name, of) for of in known)
