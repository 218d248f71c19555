"""Writing and erasing files so that every step reaches the disk and survives a crash.

A name is durable only when its folder is synced: `files.atomic` makes a file complete,
these functions make it durable. `shred` overwrites a file before it removes its name.
On a file system that writes in place (ext4, XFS) the old bytes are then gone from the
file's blocks; a copy-on-write file system, a snapshot, a backup or an SSD's spare
blocks may still hold them, and no program can change that (docs/runs.md).

No function here follows a symbolic link: somebody who can put a link into a run must
not be able to make us overwrite its target.
"""

from collections.abc import Callable, Iterable
import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import stat
from typing import TypeVar

from legonet_jax import errors
from legonet_jax.io import files, untrusted

T = TypeVar("T")
R = TypeVar("R")
_ZEROS = bytes(1 << 20)


def require_plain(root: pathlib.Path) -> None:
  """Raises if anything below `root` is not a plain file or folder.

  Raises:
    LinkError: if there is a symbolic link, a file with a second name (hard link), a
      FIFO, a socket or a device.
  """
  folders = [os.fspath(root)]
  while folders:
    with os.scandir(folders.pop()) as entries:
      for entry in entries:
        # Another process may have removed the entry since it was listed.
        with contextlib.suppress(FileNotFoundError):
          _require_plain_entry(entry)
          if entry.is_dir(follow_symlinks=False):
            folders.append(entry.path)


def _require_plain_entry(entry: "os.DirEntry[str]") -> None:
  mode = entry.stat(follow_symlinks=False)
  if stat.S_ISLNK(mode.st_mode):
    raise errors.LinkError(
      f"{entry.path} is a symbolic link, and a run holds plain files only; remove the"
      " link, or put what it points to in its place"
    )
  if stat.S_ISDIR(mode.st_mode):
    return
  if not stat.S_ISREG(mode.st_mode):
    raise errors.LinkError(f"{entry.path} is not a regular file; remove it")
  if mode.st_nlink > 1:
    raise errors.LinkError(
      f"{entry.path} has a second name elsewhere (a hard link), so erasing it would"
      " empty both; delete one of the two, or copy instead of linking"
    )


def sync_folder(path: pathlib.Path) -> None:
  """Makes the names in a folder durable."""
  handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
  try:
    files.flush(handle)
  finally:
    os.close(handle)


def sync_tree(path: pathlib.Path) -> None:
  """Makes all files and names in a folder and its subfolders durable."""
  for_all(sync_file, files_below(path))
  for_all(sync_folder, [pathlib.Path(folder) for folder, _, _ in os.walk(path)])


def write(path: pathlib.Path, data: bytes, mode: int = 0o666) -> None:
  """Writes a file completely or not at all, durable when this returns.

  Args:
    path: the file.
    data: its contents.
    mode: its permissions, less the umask.
  """
  files.write(path, data, mode)
  sync_folder(path.parent)


def make_folder(path: pathlib.Path) -> None:
  """Makes a folder and its parents, durable when this returns."""
  files.make_folder(path)


def shred(path: pathlib.Path) -> None:
  """Overwrites a file with zeros and removes it; the caller syncs the folder.

  Of a link, it removes the name and leaves the target alone.
  """
  _shred_at((None, os.fspath(path)))


def _shred_at(place: tuple[int | None, str]) -> None:
  """Shreds the file at (handle of its folder, name) or (None, full path)."""
  folder, name = place
  with contextlib.suppress(FileNotFoundError):
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
      flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
      handle = os.open(name, flags, dir_fd=folder)
      try:
        left = os.fstat(handle).st_size
        while left:
          left -= os.write(handle, _ZEROS[:left])
        files.flush(handle)
      finally:
        os.close(handle)
    os.unlink(name, dir_fd=folder)


def shred_tree(path: pathlib.Path) -> None:
  """Shreds every file below a folder and removes the folder, durable on return.

  If `path` is a plain file, shreds that file.
  """
  if not path.is_symlink() and path.is_dir():
    # Through folder handles, so that nobody can swap a folder for a link meanwhile.
    with contextlib.ExitStack() as stack:
      places: list[tuple[int | None, str]] = []
      for _, _, names, folder in os.fwalk(path):
        kept = os.dup(folder)
        stack.callback(os.close, kept)
        places += [(kept, name) for name in names]
      for_all(_shred_at, places)
    shutil.rmtree(path)
  elif os.path.lexists(path):
    shred(path)
  else:
    return
  sync_folder(path.parent)


def hashes_of(path: pathlib.Path) -> dict[str, str]:
  """The sha256 of every file below a folder, by its relative name."""
  found = sorted(files_below(path))
  names = [file.relative_to(path).as_posix() for file in found]
  return dict(zip(names, for_all(untrusted.sha256_of, found), strict=True))


def files_below(path: pathlib.Path) -> list[pathlib.Path]:
  """All files in a folder and its subfolders."""
  found = os.walk(path)
  return [pathlib.Path(folder, name) for folder, _, names in found for name in names]


def for_all(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
  """Calls `function` on all items in threads: a disk can sync many files at once."""
  work = list(items)
  if len(work) < 2:
    return [function(item) for item in work]
  with concurrent.futures.ThreadPoolExecutor(min(16, len(work))) as pool:
    return list(pool.map(function, work))


def sync_file(path: pathlib.Path) -> None:
  """Makes the bytes of a file durable."""
  handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
  try:
    files.flush(handle)
  finally:
    os.close(handle)
