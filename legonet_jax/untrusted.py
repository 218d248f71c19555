"""Files from outside: plain files only, and no more memory than their size allows.

A file is hostile until it is checked. So every reader here

- opens regular files only: a FIFO would hang, a device would never end;
- compares what a file claims (shapes, sizes of archive members) with the bytes that are
  there before it takes memory for them;
- runs nothing that a file says: no pickles.
"""

from collections.abc import Iterator
import contextlib
import io
import json
import os
import pathlib
import stat
from typing import Any, BinaryIO
import zipfile
import zlib

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors

# Arrays of real numbers hardly compress; masks and labels do.
_MAX_RATIO, _FREE_BYTES = 100, 64 << 20
_MAX_TEXT = 256 << 20


@contextlib.contextmanager
def open_plain(path: pathlib.Path, *, follow: bool = True) -> Iterator[BinaryIO]:
  """Opens a regular file for reading.

  Args:
    path: the file.
    follow: whether a symbolic link may stand for the file. Links are everyday things
      among a user's own files, and never belong in a run or a store.

  Raises:
    DataError: if it is a link (without `follow`), a folder, a FIFO or a device.
    OSError: if it is not there or may not be read.
  """
  flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO opens, and is refused
  if not follow:
    if path.is_symlink():
      raise errors.DataError(f"{path} is a symbolic link; put the file itself there")
    flags |= os.O_NOFOLLOW
  handle = os.open(path, flags)
  with os.fdopen(handle, "rb") as file:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
      raise errors.DataError(f"{path} is not a regular file; give one")
    yield file


def read_bytes(
  path: pathlib.Path, *, follow: bool = True, limit: int = _MAX_TEXT
) -> bytes:
  """All bytes of a regular file of at most `limit` bytes."""
  with open_plain(path, follow=follow) as file:
    size = os.fstat(file.fileno()).st_size
    if size > limit:
      raise errors.DataError(
        f"{path} has {size:,} bytes, and at most {limit:,} are read; check the path"
      )
    return file.read(limit)


def read_text(path: pathlib.Path, *, follow: bool = True) -> str:
  """A text file in UTF-8."""
  try:
    return read_bytes(path, follow=follow).decode()
  except UnicodeDecodeError:
    raise errors.DataError(f"{path} is not a text file; check the path") from None


def read_json(path: pathlib.Path, *, follow: bool = True) -> dict[str, Any]:
  """The JSON object in a file.

  Raises:
    DataError: if the file holds anything else.
  """
  return parse_json(read_bytes(path, follow=follow), str(path))


def parse_json(text: bytes, name: str) -> dict[str, Any]:
  """The JSON object in `text`; `name` is for messages."""
  try:
    value = json.loads(text)
  except (ValueError, RecursionError) as e:
    why = "nested too deeply" if isinstance(e, RecursionError) else str(e)
    raise errors.DataError(f"{name} is not JSON ({why})") from None
  if not isinstance(value, dict):
    raise errors.DataError(f"{name} is not a JSON object")
  return value


def read_npy(path: pathlib.Path, *, follow: bool = True) -> NDArray[Any]:
  """The array in an `.npy` file."""
  with open_plain(path, follow=follow) as file:
    size = os.fstat(file.fileno()).st_size
    return _read_array(file, size, str(path))


def read_npz(path: pathlib.Path, *, follow: bool = True) -> dict[str, NDArray[Any]]:
  """All arrays of an `.npz` file, by name.

  Raises:
    DataError: if it is no such file, is damaged or encrypted, or if an array claims
      more bytes than the file can hold.
  """
  try:
    with open_plain(path, follow=follow) as file:
      return _read_archive(file, path)
  except (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, KeyError,
    ValueError, RuntimeError, NotImplementedError, OverflowError,
  ) as e:  # fmt: skip
    if isinstance(e, errors.LegoError):
      raise
    raise errors.DataError(
      f"{path} is not a readable .npz of arrays ({' '.join(str(e).split())})"
    ) from None


def _read_archive(file: BinaryIO, path: pathlib.Path) -> dict[str, NDArray[Any]]:
  size = os.fstat(file.fileno()).st_size
  with zipfile.ZipFile(file) as archive:
    members = archive.infolist()
    total = sum(member.file_size for member in members)
    if total > _MAX_RATIO * size + _FREE_BYTES:
      raise errors.DataError(
        f"{path} would unpack to {total:,} bytes from {size:,}; save it uncompressed"
      )
    arrays = {}
    for member in members:
      if member.flag_bits & 1:
        raise errors.DataError(f"{path} is encrypted; save it without a password")
      name = member.filename.removesuffix(".npy")
      if name == member.filename:
        raise errors.DataError(f"{path}: {name} in it is not an array")
      with archive.open(member) as part:
        # One more than claimed is asked for, so that a false claim shows.
        data = part.read(member.file_size + 1)
      if len(data) != member.file_size:
        raise errors.DataError(f"{path}: {name} has another size than it claims")
      arrays[name] = _read_array(io.BytesIO(data), len(data), f"{path}: {name}")
  return arrays


def _read_array(file: BinaryIO, size: int, name: str) -> NDArray[Any]:
  """The array in a file of `size` bytes in numpy's format, its header checked."""
  try:
    version = np.lib.format.read_magic(file)
    read = {
      (1, 0): np.lib.format.read_array_header_1_0,
      (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, fortran, dtype = read(file)
  except (ValueError, KeyError, EOFError, OSError, SyntaxError, TypeError) as e:
    why = " ".join(str(e).split())[:120]
    raise errors.DataError(f"{name} is not an array of numpy ({why})") from None
  if dtype.hasobject:
    raise errors.DataError(f"{name} holds pickled objects, which are never loaded")
  count = 1
  for length in shape:
    count *= int(length)
  claimed = count * dtype.itemsize
  if min(shape, default=0) < 0 or not dtype.itemsize or claimed != size - file.tell():
    raise errors.DataError(
      f"{name} claims shape {shape} of {dtype}, which is not the size of its data"
    )
  if not count:
    return np.zeros(shape, dtype)
  flat = np.frombuffer(bytearray(file.read()), dtype, count)
  return flat.reshape(shape, order="F" if fortran else "C")
