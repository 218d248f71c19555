"""What a folder looks like after the power has failed.

The system may write what was not synced in any order, or not at all. Two ends of that:
nothing of it has reached the disk, or all names have and none of the bytes, which is
how empty and outdated files come about. (That everything has reached the disk is what a
killed process leaves.)
"""

import os
import pathlib
import shutil
import threading
from typing import NamedTuple


class _Entry(NamedTuple):
  inode: int
  is_folder: bool


class _File(NamedTuple):
  data: bytes
  mode: int


class Disk:
  """All that was synced below a folder; what is there at the start counts as synced.

  Attributes:
    root: the folder.
    held: handles that are kept open.
  """

  def __init__(self, root: pathlib.Path):
    """Reads all there is below `root`."""
    self.root = root
    self._files: dict[int, _File] = {}
    self._folders: dict[int, dict[str, _Entry]] = {}
    self.held: set[int] = set()
    self._lock = threading.Lock()
    for folder, _, names in os.walk(root):
      for path in (folder, *(os.path.join(folder, name) for name in names)):
        handle = os.open(path, os.O_RDONLY)
        self.sync(handle)
        os.close(handle)

  def sync(self, handle: int) -> None:
    """Takes in a file or the names of a folder, as `fsync` does."""
    with self._lock:
      # Open until the end, so that no later file gets the number of this one.
      self.held.add(os.dup(handle))
      found = os.fstat(handle)
      path = os.readlink(f"/proc/self/fd/{handle}")
      if os.path.isdir(path):
        with os.scandir(path) as entries:
          self._folders[found.st_ino] = {
            e.name: _Entry(e.inode(), e.is_dir(follow_symlinks=False)) for e in entries
          }
      else:
        with open(f"/proc/self/fd/{handle}", "rb") as file:
          self._files[found.st_ino] = _File(file.read(), found.st_mode & 0o777)

  def fail(self, keep_names: bool) -> None:
    """Makes the folder what it is after the power has failed.

    Args:
      keep_names: all names are as they are now, and only bytes are lost.
    """
    made = self.root.with_name(f"{self.root.name}.synced")
    self._restore(self.root.stat().st_ino, self.root, made, keep_names)
    shutil.rmtree(self.root)
    made.rename(self.root)

  def _restore(
    self, inode: int, now: pathlib.Path, made: pathlib.Path, keep_names: bool
  ) -> None:
    made.mkdir()
    names = self._folders.get(inode, {})
    if keep_names:
      with os.scandir(now) as entries:
        names = {e.name: _Entry(e.inode(), e.is_dir()) for e in entries}
    for name, entry in names.items():
      if entry.is_folder:
        self._restore(entry.inode, now / name, made / name, keep_names)
        continue
      file = self._files.get(entry.inode, _File(b"", 0o644))
      (made / name).write_bytes(file.data)
      (made / name).chmod(file.mode)

  def close(self) -> None:
    """Lets go of all files."""
    for handle in self.held:
      os.close(handle)
    self.held.clear()
