"""A fault at the N-th file operation below a folder, whatever thread it comes from.

    kill       from the N-th operation on, every operation raises `Killed`: what a
               process that is killed there leaves, as its cleanup code does nothing
    torn       as `kill`, but the N-th operation is a write of which half has landed
    power      as `kill`, and what was never synced is lost, names and bytes
    blank      as `kill`, and what was never synced is lost, bytes only (see `disk`)
    fail       the N-th operation raises an OSError, everything else works
    full       from the N-th operation on, all that needs room raises ENOSPC, if it is a
               write after half of it; what gives room back works
    interrupt  the N-th operation raises KeyboardInterrupt, everything else works
    unread     the N-th opening of a file to read raises an OSError; here only these
               count, and nowhere else

What counts as an operation is in `hooks`. Orbax writes from C++, out of reach; so
saving an array tree counts as one operation, and torn it leaves half of its files.
"""

from collections.abc import Callable
import errno
import os
import pathlib
import threading
from typing import Any

from experiments.faults.disk import Disk

KINDS = ("kill", "torn", "power", "blank", "fail", "full", "interrupt", "unread")
DEADLY, POWER = ("kill", "torn", "power", "blank"), ("power", "blank")
WRITES, READ = ("write", "pwrite", "save"), "read"
_NEED_ROOM = (*WRITES, "create", "mkdir", "link", "symlink", "posix_fallocate")
_ERRORS = (errno.EIO, errno.ENOSPC)


class Killed(BaseException):
  """The process is gone; nothing may catch this and go on."""


class Injector:
  """Counts the operations below a folder and spoils one of them.

  Attributes:
    asked: names of the operations so far, the one with the fault included.
    hit: the name of the operation that had the fault, or "" if there were too few.
    disk: is told what was synced, if somebody wants to know.
  """

  def __init__(self, root: pathlib.Path, kind: str, at: int, disk: Disk | None = None):
    """See the module for `kind`; `at` counts from 1, and 0 is no fault at all."""
    self.asked: list[str] = []
    self.hit = ""
    self.disk = disk
    self._root, self._kind, self._at = os.path.realpath(root), kind, at
    self._dead, self._passing = False, False
    self._lock = threading.Lock()

  def concerns(self, thing: Any, folder: int | None = None) -> bool:
    """Whether a path, or the file of a handle, is below the folder that is watched."""
    if self._passing:
      return False
    if isinstance(thing, int):
      path = os.readlink(f"/proc/self/fd/{thing}")
    else:
      start = "" if folder is None else os.readlink(f"/proc/self/fd/{folder}")
      path = os.path.abspath(os.path.join(start, os.fspath(thing)))
    return path == self._root or path.startswith(f"{self._root}/")

  def permit(self, name: str) -> bool:
    """Counts an operation; returns whether it must do half of its work only.

    Raises:
      Killed: if the process is gone.
      OSError: if the operation fails.
    """
    with self._lock:
      if self._dead and name != READ:
        raise Killed
      if (name == READ) != (self._kind == "unread"):
        return False
      self.asked.append(name)
      number = len(self.asked)
      if not self._at or number < self._at:
        return False
      if number == self._at:
        self.hit = name
      if self._kind in DEADLY:
        self._dead = True
        if self._kind == "torn" and name in WRITES:
          return True
        raise Killed
    if self._kind == "full":
      if number == self._at and name in ("write", "pwrite"):
        return True
      if name in _NEED_ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    elif number == self._at:
      if self._kind == "interrupt":
        raise KeyboardInterrupt
      code = _ERRORS[number % len(_ERRORS)]
      raise OSError(code, os.strerror(code))
    return False

  def write(self, name: str, call: Callable[..., int], *args: Any) -> int:
    """A write of the second of `args`, or of half of it; how many bytes it were."""
    if not self.permit(name):
      return call(*args)
    half = memoryview(args[1]).cast("B")
    done = call(args[0], half[: len(half) // 2], *args[2:])
    if self._dead:
      raise Killed
    return done

  def save(self, call: Callable[..., None], path: Any, arrays: Any) -> None:
    """Saves arrays by orbax, as one operation."""
    try:
      torn = self.permit("save")
    except OSError:
      if self._kind == "fail":  # orbax fails in the middle of its work
        self._pass(call, path, arrays)
        _ruin(pathlib.Path(path))
      raise
    self._pass(call, path, arrays)
    if torn:
      _ruin(pathlib.Path(path))
      raise Killed

  def _pass(self, call: Callable[..., None], *args: Any) -> None:
    self._passing = True
    try:
      call(*args)
    finally:
      self._passing = False


def _ruin(path: pathlib.Path) -> None:
  """Leaves a folder with every other file missing or cut off."""
  files = sorted(p for p in path.rglob("*") if p.is_file())
  for number, file in enumerate(files):
    if number % 4 == 1:
      file.unlink()
    elif number % 4 == 3:
      os.truncate(file, file.stat().st_size // 2)
