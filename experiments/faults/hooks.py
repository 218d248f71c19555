"""Where an `Injector` comes in: every call that changes files or waits for the disk.

These are the calls of `os`, opening a file, and every write of a Python file object,
from whatever thread; `pathlib`, `shutil` and numpy end in them. Saving an array tree by
orbax is one more, and so is reading it.
"""

import builtins
from collections.abc import Callable, Iterator
import contextlib
import io
import os
import pathlib
from typing import Any
from unittest import mock

from experiments.faults.disk import Disk
from experiments.faults.inject import READ, WRITES, Injector
from legonet_jax.io import arrays

_BY_PATH = (
  "rename", "replace", "unlink", "remove", "mkdir", "rmdir", "truncate", "link",
  "symlink", "chmod",
)  # fmt: skip
_BY_HANDLE = (
  "write", "pwrite", "fsync", "fdatasync", "ftruncate", "posix_fallocate", "fchmod",
)  # fmt: skip
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class _File(io.FileIO):
  """A file that asks before each write; a dead process writes no buffer out later."""

  injector: Injector

  def write(self, data: Any, /) -> int:
    return self.injector.write("write", io.FileIO.write, self, data)


@contextlib.contextmanager
def injected(
  root: pathlib.Path, kind: str, at: int, disk: Disk | None = None
) -> Iterator[Injector]:
  """Spoils the `at`-th operation below `root` of what happens inside."""
  injector = Injector(root, kind, at, disk)
  with contextlib.ExitStack() as stack:

    def put(place: Any, name: str, made: Any) -> None:
      stack.enter_context(mock.patch.object(place, name, made))

    for name in _BY_PATH:
      put(os, name, _by_path(injector, name, getattr(os, name)))
    for name in _BY_HANDLE:
      put(os, name, _by_handle(injector, name, getattr(os, name)))
    put(os, "open", _opening_handles(injector, os.open))
    opening = _opening_files(injector, io.open)
    put(io, "open", opening)
    put(builtins, "open", opening)
    put(arrays, "_checkpointer", _saving(injector, arrays._checkpointer))
    yield injector


def _by_path(injector: Injector, name: str, call: Callable[..., Any]) -> Any:
  def operation(path: Any, *args: Any, **kwargs: Any) -> Any:
    folder = kwargs.get("dir_fd", kwargs.get("src_dir_fd"))
    if injector.concerns(path, folder):
      injector.permit(name)
    return call(path, *args, **kwargs)

  return operation


def _by_handle(injector: Injector, name: str, call: Callable[..., Any]) -> Any:
  def operation(handle: int, *args: Any) -> Any:
    if not injector.concerns(handle):
      return call(handle, *args)
    if name in WRITES:
      return injector.write(name, call, handle, *args)
    injector.permit(name)
    if name in ("fsync", "fdatasync"):
      # A killed process leaves what the system holds, so no disk need be waited for.
      return None if injector.disk is None else injector.disk.sync(handle)
    return call(handle, *args)

  return operation


def _opening_handles(injector: Injector, call: Callable[..., int]) -> Any:
  def operation(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
    folder = kwargs.get("dir_fd")
    if injector.concerns(path, folder):
      name = "open" if flags & _CHANGES else READ
      if flags & os.O_CREAT and not _exists(path, folder):
        name = "create"
      injector.permit(name)
    return call(path, flags, *args, **kwargs)

  return operation


def _exists(path: Any, folder: int | None) -> bool:
  try:
    os.stat(path, dir_fd=folder, follow_symlinks=False)
  except FileNotFoundError:
    return False
  return True


def _opening_files(injector: Injector, call: Callable[..., Any]) -> Any:
  def operation(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
  ) -> Any:
    ours, reads = injector.concerns(file), not {*mode} & {*"wax+"}
    if ours and not isinstance(file, int):
      name = "open" if os.path.lexists(file) else "create"
      injector.permit(READ if reads else name)
    if not ours or reads:
      return call(file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw = _File(file, mode.replace("t", ""), closefd, opener)
    raw.injector = injector
    if not buffering:
      return raw
    buffered: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    if "b" in mode:
      return buffered
    return io.TextIOWrapper(buffered, encoding, errors, newline)

  return operation


def _saving(injector: Injector, make: Callable[[], Any]) -> Any:
  class Saver:
    """Orbax's, with a save that can be spoilt."""

    def __init__(self) -> None:
      self._real = make()

    def save(self, path: Any, arrays: Any) -> None:
      injector.save(self._real.save, path, arrays)

    def restore(self, path: Any) -> Any:
      injector.permit(READ)
      return self._real.restore(path)

  return Saver
