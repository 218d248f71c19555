"""Locks: one process at a time works on a run or its queue, or erases rows of a store.

The system releases an `flock` when its process ends, for whatever reason. Anyone who
can open a file, even only for reading, can hold its lock. So only users who may write a
lock file can read it, and nobody else can keep us waiting.
"""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import pathlib
import stat
import time

from legonet_jax import errors
from legonet_jax.io.files import PathLike

WORK, QUEUE = "lock", "queue.lock"
STORE_SECONDS = 60.0
_TICK = 0.05


@contextlib.contextmanager
def hold(
  folder: PathLike, name: str = WORK, wait: float = 0.0, advice: str = ""
) -> Iterator[None]:
  """Holds the lock `name` of a folder.

  Args:
    folder: the run or the store.
    name: which of its locks.
    wait: for how many seconds to try.
    advice: what to do instead of waiting, for the message.

  Raises:
    RunBusyError: if another process holds the lock all that time; the message says
      which process.
  """
  handle = _open(pathlib.Path(folder) / name)
  try:
    deadline = time.monotonic() + wait
    while not _take(handle):
      if time.monotonic() >= deadline:
        holder = _holder(handle)
        waited = f" (waited {wait:g} s)" if wait else ""
        raise errors.RunBusyError(
          f"process {holder} works on {folder}{waited};"
          f" {advice or 'wait for it, or leave your request to it with --queue'}"
        )
      time.sleep(_TICK)
    with contextlib.suppress(OSError):  # informs people only; the disk may be full
      os.ftruncate(handle, 0)
      os.pwrite(handle, str(os.getpid()).encode(), 0)
    yield
  finally:
    os.close(handle)


def holder(folder: pathlib.Path, name: str = WORK) -> str:
  """The process that holds a lock now, or "" if none does or it is unknown."""
  try:
    handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
  except OSError:
    return ""
  try:
    fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return ""
  except BlockingIOError:
    return _holder(handle)
  finally:
    os.close(handle)


def _open(path: pathlib.Path) -> int:
  flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
  if path.is_symlink():
    raise errors.LinkError(f"{path} is a symbolic link, not a lock; remove it")
  handle = os.open(path, flags, 0o666)
  try:
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
      raise errors.LinkError(f"{path} is not a regular file; remove it")
    mode = stat.S_IMODE(found.st_mode)
    for write, read in ((0o020, 0o040), (0o002, 0o004)):
      if not mode & write:
        mode &= ~read
    if mode != stat.S_IMODE(found.st_mode) and found.st_uid == os.geteuid():
      os.fchmod(handle, mode)
  except BaseException:
    os.close(handle)
    raise
  return handle


def _take(handle: int) -> bool:
  try:
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  return True


def _holder(handle: int) -> str:
  text = os.pread(handle, 20, 0).decode(errors="replace").strip()
  return text if text.isdecimal() else "unknown"
