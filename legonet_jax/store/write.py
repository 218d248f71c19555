"""Making an encoding store: start or resume it, put its rows, finish it.

A process may be killed at any moment (`format` explains the order of the files): the
same calls continue from there, and give the same rows.
"""

from collections.abc import Mapping
import contextlib
import errno
import io
import json
import os
import pathlib
import stat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.io import files, untrusted
from legonet_jax.store import format, leftovers, seals
from legonet_jax.store.read import Encodings, open_store

_ADDED = ("version", "sha256", "erased")
# Names for people, not compared: files may be renamed, and their sha256 is compared.
_NAMES = ("weights", "dataset", "imported", "sources")


class Writer(NamedTuple):
  """A store that is being made; its first `rows` rows are on disk."""

  path: pathlib.Path
  how: Mapping[str, Any]
  shape: tuple[int, int]
  dtype: np.dtype[np.floating]
  rows: int


def start(
  path: pathlib.Path,
  how: Mapping[str, Any],
  shape: tuple[int, int],
  dtype: str,
) -> Writer | None:
  """Begins a store, or continues one that was begun in the same way.

  Returns:
    The writer, or None if the store is complete already.

  Raises:
    StoreError: if the folder holds something else, or the disk is full.
  """
  made = format.read_json(path / format.META)
  if made is not None:
    _require_same(path, {k: v for k, v in made.items() if k not in _ADDED}, how)
    open_store(path)
    leftovers.clean_complete(path)
    return None
  writer = Writer(path, how, shape, np.dtype(dtype), 0)
  partial = format.read_json(path / format.PARTIAL)
  if partial is not None:
    _require_same(path, partial.get("how"), how)
    writer = writer._replace(rows=_safe_rows(writer, partial.get("rows")))
  elif os.path.lexists(path) and not (
    path.is_dir() and leftovers.holds_nothing_else(path)
  ):
    raise errors.StoreError(
      f"{path} is in use for something else; give an empty folder"
    )
  files.make_folder(path)
  leftovers.clean(path)
  return writer if writer.rows else _begin(writer)


def put(writer: Writer, rows: NDArray[np.floating]) -> Writer:
  """Adds rows [m, d]; they are on disk when this returns.

  Raises:
    StoreError: if a number is NaN, or too large for the type of the store.
  """
  if not len(rows):
    return writer
  with np.errstate(over="ignore"):
    stored = np.ascontiguousarray(rows, writer.dtype)
  done = writer.rows + len(stored)
  if stored.shape[1:] != writer.shape[1:] or done > writer.shape[0]:
    raise errors.StoreError(
      f"rows of shape {stored.shape} do not fit in {writer.path} of shape"
      f" {writer.shape} after {writer.rows} rows; put every row once"
    )
  bad = np.flatnonzero(~np.isfinite(stored).all(axis=1))
  if len(bad):
    raise errors.StoreError(
      f"the encoding in row {writer.rows + bad[0]} is not finite in {writer.dtype};"
      " store float32, or check the weights"
    )
  handle = _open_to_write(writer.path / format.GROWING)
  try:
    os.lseek(handle, _start_of_row(writer, writer.rows), os.SEEK_SET)
    files.write_all(handle, stored)
    files.flush(handle)
  finally:
    os.close(handle)
  writer = writer._replace(rows=done)
  _note(writer)
  return writer


def finish(
  writer: Writer,
  ids: NDArray[np.int64],
  labels: NDArray[np.int32],
  split: NDArray[np.uint8],
) -> Encodings:
  """Completes the store with its columns, then removes `partial.json`.

  Raises:
    StoreError: if rows are missing, or a column is wrong; then nothing is written.
  """
  path = writer.path
  there = (format.read_json(path / format.PARTIAL) or {}).get("rows")
  if there != writer.shape[0]:
    raise errors.StoreError(
      f"{path} has {there} of {writer.shape[0]} rows; put the others first"
    )
  columns: dict[str, NDArray[Any]] = {"ids": ids, "labels": labels, "split": split}
  for name, column in columns.items():
    format.check_type(path, name, column)
    if len(column) != writer.shape[0]:
      raise errors.StoreError(
        f"{path}: {len(column)} {name} for {writer.shape[0]} rows; give one for each"
      )
  format.check_columns(path, columns, writer.how.get("classes"))
  if os.path.lexists(path / format.GROWING):  # else an earlier attempt got this far
    (path / format.GROWING).replace(path / format.WHOLE)
  rows = format.read(path / format.WHOLE, untrusted.map_npy)
  salts, sealed = seals.make((rows, *(columns[name] for name in format.COLUMNS)))
  for name, column in {**columns, format.SALTS: salts, format.SEALS: sealed}.items():
    buffer = io.BytesIO()
    np.save(buffer, column, allow_pickle=False)
    files.write(path / f"{name}.npy", buffer.getvalue())
  files.sync_folder(path)
  hashes = {
    name: format.read(path / f"{name}.npy", untrusted.sha256_of)
    for name in (*format.ARRAYS, format.SEALS)
  }
  format.write_json(
    path / format.META, {**writer.how, "version": format.VERSION, "sha256": hashes}
  )
  (path / format.PARTIAL).unlink()
  files.sync_folder(path)
  return open_store(path)


def discard(writer: Writer) -> None:
  """Removes a store that cannot be completed, and its folder if it is then empty."""
  # `partial.json`, which marks the folder as a store's, goes last: after a kill in
  # between, the same command finds rows missing and starts again.
  made = (*format.ARRAYS, format.SEALS, format.SALTS)
  for name in (format.GROWING, *(f"{array}.npy" for array in made)):
    (writer.path / name).unlink(missing_ok=True)
  leftovers.clean(writer.path)
  (writer.path / format.PARTIAL).unlink(missing_ok=True)
  with contextlib.suppress(OSError):
    writer.path.rmdir()
    files.sync_folder(writer.path.parent)


def _begin(writer: Writer) -> Writer:
  """Reserves disk space for all rows."""
  path, size = writer.path, _start_of_row(writer, writer.shape[0])
  try:
    _note(writer)  # first: an `encodings.part` of zeros must never pass for rows
    (path / format.GROWING).unlink(missing_ok=True)
    handle = files.create(path / format.GROWING)
    try:
      # All the space now, so that a full disk shows up before hours of work.
      if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
      files.write_all(handle, _header(writer))
      files.flush(handle)
    finally:
      os.close(handle)
    files.sync_folder(path)
  except OSError as e:
    discard(writer)
    raise errors.StoreError(
      f"cannot make room for {size / 1e6:.1f} MB in {path} ({e.strerror}); free some"
      " space or use another folder"
    ) from None
  return writer


def _safe_rows(writer: Writer, rows: Any) -> int:
  """How many rows an unfinished store has; 0 if its file lacks some of them."""
  total = writer.shape[0]
  if type(rows) is not int or not 0 <= rows <= total:
    raise format.damaged(
      writer.path, f"{writer.path / format.PARTIAL} counts {format.short(rows)} rows"
    )
  need = _start_of_row(writer, rows)
  if _starts_soundly(writer, format.GROWING, need):
    return rows
  # `finish` may have given the file its final name already.
  done = rows == total and not os.path.lexists(writer.path / format.GROWING)
  return rows if done and _starts_soundly(writer, format.WHOLE, need) else 0


def _starts_soundly(writer: Writer, name: str, need: int) -> bool:
  """Whether a file has the header of the whole array and at least `need` bytes."""
  head = _header(writer)
  try:
    with untrusted.open_plain(writer.path / name, follow=False) as file:
      size = os.fstat(file.fileno()).st_size
      return size >= need and file.read(len(head)) == head
  except FileNotFoundError:
    return False
  except errors.DataError as e:
    raise format.damaged(writer.path, str(e)) from None


def _header(writer: Writer) -> bytes:
  """The header of an .npy file of the whole array."""
  buffer = io.BytesIO()
  descr = np.lib.format.dtype_to_descr(writer.dtype)
  head = {"descr": descr, "fortran_order": False, "shape": writer.shape}
  np.lib.format.write_array_header_1_0(buffer, head)
  return buffer.getvalue()


def _start_of_row(writer: Writer, row: int) -> int:
  """Where a row starts in the file, in bytes."""
  return len(_header(writer)) + row * writer.shape[1] * writer.dtype.itemsize


def _require_same(path: pathlib.Path, made: Any, how: Mapping[str, Any]) -> None:
  """Raises StoreError with the first setting that differs."""
  wanted = json.loads(json.dumps(how))
  if not isinstance(made, dict):
    raise format.damaged(
      path, f"{path / format.PARTIAL} does not say how the store is made"
    )
  if "classes" not in made:  # earlier versions did not store them
    wanted.pop("classes", None)
  for key in dict.fromkeys((*wanted, *made)):
    if key not in _NAMES and wanted.get(key) != made.get(key):
      raise errors.StoreError(
        f"{path} was begun with {key} {format.short(made.get(key))}, not"
        f" {format.short(wanted.get(key))}; use another folder or delete it"
      )


def _open_to_write(path: pathlib.Path) -> int:
  """Opens an existing regular file for writing."""
  flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
  try:
    handle = os.open(path, flags)
  except OSError as e:
    if e.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
      raise
    raise format.damaged(path.parent, f"{path} is not a regular file") from None
  if not stat.S_ISREG(os.fstat(handle).st_mode):
    os.close(handle)
    raise format.damaged(path.parent, f"{path} is not a regular file")
  return handle


def _note(writer: Writer) -> None:
  """Records in `partial.json` how the store is made, and how many rows are on disk."""
  format.write_json(
    writer.path / format.PARTIAL, {"how": writer.how, "rows": writer.rows}
  )
