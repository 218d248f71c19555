"""Files from outside: plain files only, and no more memory than their size allows.

A file counts as hostile until it is checked. So every reader here

- opens regular files only: a FIFO would hang, a device would never end;
- compares the shapes and sizes that a file claims with its actual bytes before it
  allocates memory;
- executes nothing from a file: no pickles.
"""

from collections.abc import Iterator
import contextlib
import hashlib
import io
import json
import math
import os
import pathlib
import stat
from typing import IO, Any
import warnings
import zipfile

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.io import zips

# Arrays of real numbers hardly compress; masks and labels do.
_MAX_RATIO, _FREE_BYTES = 100, 64 << 20
_MAX_TEXT = 256 << 20
_MAX_HEADER = 10_000  # bytes; numpy's own bound for the header of an array
_CHUNK = 16 << 20
_HEADERS = {
  b"\x93NUMPY\x01\x00": (np.lib.format.read_array_header_1_0, 2),
  b"\x93NUMPY\x02\x00": (np.lib.format.read_array_header_2_0, 4),
}


def one_line(text: object, limit: int = 120) -> str:
  """A text from a file or its parser, made short and printable for a message."""
  words = " ".join(str(text).split())[:limit]
  return "".join(c if c.isprintable() else "?" for c in words)


@contextlib.contextmanager
def open_plain(
  path: pathlib.Path, *, follow: bool = True
) -> Iterator[io.BufferedReader]:
  """Opens a regular file for reading.

  Args:
    path: the file.
    follow: whether `path` may be a symbolic link. Links are common among a user's own
      files, but never belong in a run or a store.

  Raises:
    DataError: if it is a link (without `follow`), a folder, a FIFO or a device.
    OSError: if it is missing or may not be read.
  """
  # Before it is opened: opening alone starts some devices, and the writer of a FIFO.
  _check_regular(path, os.stat(path, follow_symlinks=follow))
  flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
  handle = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
  try:
    _check_regular(path, os.fstat(handle))  # the file may have been swapped since
    file = os.fdopen(handle, "rb")
  except BaseException:
    os.close(handle)
    raise
  with file:
    yield file


def _check_regular(path: pathlib.Path, found: os.stat_result) -> None:
  if stat.S_ISLNK(found.st_mode):
    raise errors.DataError(f"{path} is a symbolic link; put the file itself there")
  if not stat.S_ISREG(found.st_mode):
    raise errors.DataError(f"{path} is not a regular file; give one")


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
    return file.read(size)


def sha256_of(path: pathlib.Path, *, follow: bool = False) -> str:
  """The sha256 of a regular file, in hexadecimal."""
  with open_plain(path, follow=follow) as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


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
  """The JSON object in `text`; `name` is for messages.

  A name that occurs twice is refused: parsers differ in which of the two they take.
  """
  try:
    value = json.loads(
      text, object_pairs_hook=_require_names_once, parse_constant=_refuse_constant
    )
  except (ValueError, RecursionError) as e:
    why = "nested too deeply" if isinstance(e, RecursionError) else one_line(e)
    raise errors.DataError(f"{name} is not JSON ({why})") from None
  if not isinstance(value, dict):
    raise errors.DataError(f"{name} is not a JSON object")
  return value


def _require_names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  value = dict(pairs)
  if len(value) < len(pairs):
    raise ValueError("a name occurs twice")
  return value


def _refuse_constant(name: str) -> float:
  raise ValueError(f"{name} is not a number of JSON")


def is_a(value: Any, kind: Any) -> bool:
  """Whether a value from JSON is strictly of a kind: True is not a number.

  Args:
    value: the value.
    kind: `int`, `float` (whole numbers as well), `bool`, `str`, `dict`, or `list` for a
      list of texts; {name: kind, ...} for an object with these fields and perhaps
      others; {...: kind} for an object whose values are all of a kind.
  """
  if isinstance(kind, dict):
    if not isinstance(value, dict):
      return False
    if ... in kind:
      return all(is_a(part, kind[...]) for part in value.values())
    return all(name in value and is_a(value[name], of) for name, of in kind.items())
  if kind is list:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)
  kinds = (int, float) if kind is float else kind
  return isinstance(value, kinds) and (kind is bool or not isinstance(value, bool))


def read_npy(path: pathlib.Path, *, follow: bool = True) -> NDArray[Any]:
  """The array in an `.npy` file."""
  with open_plain(path, follow=follow) as file:
    size = os.fstat(file.fileno()).st_size
    return _read_array(file, size, str(path))


def map_npy(path: pathlib.Path, *, follow: bool = True) -> NDArray[Any]:
  """The array in an `.npy` file, read-only; bytes are read on access."""
  with open_plain(path, follow=follow) as file:
    size = os.fstat(file.fileno()).st_size
    shape, fortran, dtype = _read_header(file, size, str(path))
    if 0 in shape:  # nothing to map
      empty = np.zeros(shape, dtype)
      empty.setflags(write=False)
      return empty
    return np.memmap(file, dtype, "r", file.tell(), shape, "F" if fortran else "C")


def read_npz(path: pathlib.Path, *, follow: bool = True) -> dict[str, NDArray[Any]]:
  """All arrays of an `.npz` file, by name.

  Raises:
    DataError: if it is not an `.npz` file, is damaged or encrypted, or if an array
      claims more bytes than the file can hold.
  """
  with open_plain(path, follow=follow) as file:
    try:
      return _read_archive(file, path)
    except zips.DAMAGED as e:
      if isinstance(e, errors.LegoError):
        raise
      raise errors.DataError(
        f"{path} is not a readable .npz of arrays ({one_line(e)})"
      ) from None


def _read_archive(
  file: io.BufferedReader, path: pathlib.Path
) -> dict[str, NDArray[Any]]:
  size = os.fstat(file.fileno()).st_size
  with zipfile.ZipFile(file) as archive:
    members = zips.check_members(archive, size)
    total = sum(member.file_size for member in members.values())
    if total > _MAX_RATIO * size + _FREE_BYTES:
      raise errors.DataError(
        f"{path} would unpack to {total:,} bytes from {size:,}; save it uncompressed"
      )
    arrays = {}
    for file_name, member in members.items():
      name = file_name.removesuffix(".npy")
      title = f"{path}: {one_line(name)}"
      if name == file_name:
        raise errors.DataError(f"{title} is not an array")
      with archive.open(member) as part:
        arrays[name] = _read_array(part, member.file_size, title)
  return arrays


def _read_array(file: IO[bytes], size: int, name: str) -> NDArray[Any]:
  """The array in a file of `size` bytes in numpy's format, its header checked."""
  shape, fortran, dtype = _read_header(file, size, name)
  if 0 in shape:
    return np.zeros(shape, dtype)
  data = np.empty(math.prod(shape) * dtype.itemsize, np.uint8)
  # In pieces, so that the data of an archive is in memory only once.
  for start in range(0, len(data), _CHUNK):
    piece = file.read(min(_CHUNK, len(data) - start))
    if len(piece) != min(_CHUNK, len(data) - start):
      raise errors.DataError(f"{name} ends before its data does; get it again")
    data[start : start + len(piece)] = np.frombuffer(piece, np.uint8)
  return data.view(dtype).reshape(shape, order="F" if fortran else "C")


def _read_header(
  file: IO[bytes], size: int, name: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
  """Shape, whether in Fortran order, and type; leaves the file at the array's data."""
  start = file.read(8)
  read, width = _HEADERS.get(start, (None, 0))
  length = file.read(width)
  count = int.from_bytes(length, "little")
  if read is None or len(length) != width or count > _MAX_HEADER:
    raise errors.DataError(f"{name} is not an array of numpy; save it with np.save")
  header = io.BytesIO(length + file.read(count))
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")  # numpy's on Python 2, Python's on escapes
      shape, fortran, dtype = read(header)
    plain = not dtype.hasobject and dtype.names is None and dtype.subdtype is None
    np.zeros((0, *shape), dtype)  # raises if numpy does not support the shape
  except Exception as e:  # the header is an expression, which can fail in many ways
    raise errors.DataError(
      f"{name} is not an array of numpy ({one_line(e) or 'an odd header'})"
    ) from None
  if dtype.hasobject:
    raise errors.DataError(f"{name} holds pickled objects, which are never loaded")
  if not plain:
    raise errors.DataError(f"{name} has fields; save each as an array of its own")
  claimed = math.prod(shape) * dtype.itemsize
  there = size - len(start) - width - count
  if min(shape, default=0) < 0 or not dtype.itemsize or claimed != there:
    raise errors.DataError(
      f"{name} claims {one_line(f'shape {shape} of {dtype}')}, which is not the size of"
      " its data"
    )
  return shape, fortran, dtype
