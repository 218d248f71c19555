"""One process at a time on a run, and on a store that rows are erased from.

`flock` goes with the process: when it dies, however it dies, the lock is free.
"""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import pathlib

from legonet_jax import errors


@contextlib.contextmanager
def hold(run: pathlib.Path) -> Iterator[None]:
  """Holds the run's lock; RunBusyError at once if another process has it."""
  path = run / "lock"
  with path.open("a+") as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      file.seek(0)
      holder = file.read().strip() or "unknown"
      raise errors.RunBusyError(
        f"process {holder} works on {run}; wait for it, or leave your request to it"
        " with --queue"
      ) from None
    with contextlib.suppress(OSError):  # for people only; a full disk may lack room
      file.truncate(0)
      os.write(file.fileno(), str(os.getpid()).encode())
    yield


@contextlib.contextmanager
def folder(path: pathlib.Path) -> Iterator[None]:
  """Waits for the lock of a folder, which needs no file of its own."""
  handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
  try:
    fcntl.flock(handle, fcntl.LOCK_EX)
    yield
  finally:
    os.close(handle)
