"""The encoding store: every sample's encoding, computed once, in a folder.

    encodings.npy   [N, d] float16, float32 or float64
    ids.npy         [N] int64, increasing
    labels.npy      [N] int32
    split.npy       [N] uint8, 0 train and 1 test
    meta.json       how it was made, the names of its classes if they are known, and the
                    sha256 of each array

A row that was erased (see `legonet_jax.store.erase`) has the id and label -1 and an
encoding of zeros; `open_store` leaves it out.

`meta.json` is written last and makes the store complete. Until then the folder holds
`partial.json`, which says how the store is being made and how many rows are safely on
disk, and `encodings.part`, which fills up. Only a run that makes it in the same way may
continue. `partial.json` comes before everything else and goes after everything else, so
a process may be killed at any moment: the same command goes on, to the same bytes.

Whoever can write to a store can put a symbolic link there. None is followed: every file
of a store must be a regular one.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import errno
import fcntl
import io
import json
import os
import pathlib
import stat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.data import names
from legonet_jax.io import files, untrusted

VERSION = 1
_META, _PARTIAL, _GROWING = "meta.json", "partial.json", "encodings.part"
_WHOLE, _LOCK = "encodings.npy", "lock"
_COLUMNS = ("ids", "labels", "split")
_ARRAYS = ("encodings", *_COLUMNS)
_TYPES = {
  "encodings": ("float16", "float32", "float64"),
  "ids": ("int64",),
  "labels": ("int32",),
  "split": ("uint8",),
}
_ERASED = -1


class Encodings(NamedTuple):
  """A complete store: memory-mapped, read-only, or in memory if rows were erased."""

  ids: NDArray[np.int64]
  encodings: NDArray[np.floating]
  labels: NDArray[np.int32]
  split: NDArray[np.uint8]
  meta: Mapping[str, Any]


class Writer(NamedTuple):
  """A store that is being made; `rows` of it are on disk."""

  path: pathlib.Path
  how: Mapping[str, Any]
  shape: tuple[int, int]
  dtype: np.dtype[np.floating]
  rows: int


def open_store(path: pathlib.Path, *, verify: bool = False) -> Encodings:
  """The store in `path`.

  Types, lengths, ids, labels and splits are always checked; the encodings themselves
  are not read.

  Args:
    path: the folder.
    verify: also compare the sha256 of every array (reads all of it).

  Raises:
    StoreError: if it is missing, incomplete or damaged, or holds a symbolic link.
  """
  meta, arrays, live = _open_raw(path, verify)
  if not live.all():
    arrays = {name: array[live] for name, array in arrays.items()}
    for array in arrays.values():
      array.setflags(write=False)
  _check_columns(path, arrays, meta.get("classes"))
  return Encodings(meta=meta, **arrays)


def read_ids(path: pathlib.Path) -> NDArray[np.int64]:
  """The ids of a store's rows that are not erased, without reading the encodings."""
  _, arrays, live = _open_raw(path, verify=False)
  return np.asarray(arrays["ids"][live])


class Record(NamedTuple):
  """What tells one moment of a store from another: rows, erased ones, sums."""

  rows: int
  erased: int
  sha256: Mapping[str, str]


def read_record(path: pathlib.Path) -> Record:
  """The record of a store as its files are now, the sums as `meta.json` has them."""
  meta, _, live = _open_raw(path, verify=False)
  return Record(len(live), len(live) - int(live.sum()), dict(meta["sha256"]))


def _open_raw(
  path: pathlib.Path, verify: bool
) -> tuple[dict[str, Any], dict[str, NDArray[Any]], NDArray[np.bool_]]:
  """`meta.json`, the arrays with erased rows in them, and which rows are not erased."""
  meta = _read_json(path / _META)
  if meta is None:
    state = "an unfinished" if os.path.lexists(path / _PARTIAL) else "no"
    raise errors.StoreError(
      f"{path} holds {state} encoding store; run `legonet encode`"
    )
  _check_meta(path / _META, meta)
  arrays = {}
  for name in _ARRAYS:
    file = path / f"{name}.npy"
    arrays[name] = _read(file, untrusted.map_npy)
    _check_type(path, name, arrays[name])
    if verify and _read(file, untrusted.sha256_of) != meta["sha256"][name]:
      raise errors.StoreError(
        f"{file} has changed since it was made; encode again (or, if an erasure was"
        " interrupted, let any `legonet` command on its run finish it)"
      )
  if len({len(array) for array in arrays.values()}) != 1:
    raise _damaged(path, f"the arrays in {path} have different lengths")
  return meta, arrays, _find_live(arrays)


def identity(meta: Mapping[str, Any]) -> str:
  """What made the encodings of a store, in one line: equal lines, equal encoders.

  Args:
    meta: of the store, see `Encodings`.

  Returns:
    For a store of `legonet encode` the network, how images are prepared for it, the
    type that it computes in, and the sha256 of its weights; for an imported store the
    name that was given; "" if there is none.
  """
  if not meta.get("weights_sha256"):
    return str(meta.get("encoder") or "")
  parts = {
    "encoder": meta.get("encoder"),
    "size": f"{meta.get('size')}px",
    "resize": meta.get("resize"),
    "mean": f"mean {_spaced(meta.get('mean', ()))}",
    "std": f"std {_spaced(meta.get('std', ()))}",
    "compute": meta.get("compute"),
    "weights_sha256": f"sha256:{meta['weights_sha256']}",
  }
  return " ".join(str(part) for key, part in parts.items() if key in meta)


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
  made = _read_json(path / _META)
  if made is not None:
    _require_same(path, {k: v for k, v in made.items() if k not in _ADDED}, how)
    open_store(path)
    _clean_complete(path)
    return None
  writer = Writer(path, how, shape, np.dtype(dtype), 0)
  partial = _read_json(path / _PARTIAL)
  if partial is not None:
    _require_same(path, partial.get("how"), how)
    writer = writer._replace(rows=_safe_rows(writer, partial.get("rows")))
  elif os.path.lexists(path) and not (path.is_dir() and _holds_leftovers_only(path)):
    raise errors.StoreError(
      f"{path} is in use for something else; give an empty folder"
    )
  files.make_folder(path)
  clean(path)
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
  handle = _open_to_write(writer.path / _GROWING)
  try:
    os.lseek(handle, _start_of_row(writer, writer.rows), os.SEEK_SET)
    files.write_all(handle, stored)
    os.fsync(handle)
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
  """Completes the store with its columns, then drops the marks of its making.

  Raises:
    StoreError: if rows are missing, or a column is wrong; then nothing is written.
  """
  path = writer.path
  there = (_read_json(path / _PARTIAL) or {}).get("rows")
  if there != writer.shape[0]:
    raise errors.StoreError(
      f"{path} has {there} of {writer.shape[0]} rows; put the others first"
    )
  columns: dict[str, NDArray[Any]] = {"ids": ids, "labels": labels, "split": split}
  for name, column in columns.items():
    _check_type(path, name, column)
    if len(column) != writer.shape[0]:
      raise errors.StoreError(
        f"{path}: {len(column)} {name} for {writer.shape[0]} rows; give one for each"
      )
  _check_columns(path, columns, writer.how.get("classes"))
  for name, column in columns.items():
    buffer = io.BytesIO()
    np.save(buffer, column, allow_pickle=False)
    files.write(path / f"{name}.npy", buffer.getvalue())
  if os.path.lexists(path / _GROWING):  # else an earlier attempt got this far
    (path / _GROWING).replace(path / _WHOLE)
  files.sync_folder(path)
  hashes = {name: _read(path / f"{name}.npy", untrusted.sha256_of) for name in _ARRAYS}
  _write_json(path / _META, {**writer.how, "version": VERSION, "sha256": hashes})
  (path / _PARTIAL).unlink()
  files.sync_folder(path)
  return open_store(path)


def discard(writer: Writer) -> None:
  """Removes a store that cannot be completed, and its folder if that is empty then."""
  # The note that this folder is a store's goes last: after a kill in between, the same
  # command finds rows missing and starts again.
  for name in (_GROWING, *(f"{array}.npy" for array in _ARRAYS)):
    (writer.path / name).unlink(missing_ok=True)
  clean(writer.path)
  (writer.path / _PARTIAL).unlink(missing_ok=True)
  with contextlib.suppress(OSError):
    writer.path.rmdir()
    files.sync_folder(writer.path.parent)


def clean(
  path: pathlib.Path, remove: Callable[[pathlib.Path], None] = pathlib.Path.unlink
) -> None:
  """Removes what processes that were killed have left in a store.

  These are temporaries of its files and, in a complete store, `partial.json`. No other
  process may be writing to the store meanwhile.

  Args:
    path: the folder.
    remove: removes a file.
  """
  stale = [path / name for name in os.listdir(path) if _is_temporary(name)]
  if os.path.lexists(path / _META) and os.path.lexists(path / _PARTIAL):
    stale.append(path / _PARTIAL)
  for file in stale:
    if file.is_symlink() or not file.is_dir():
      remove(file)
  if stale:
    files.sync_folder(path)


_ADDED = ("version", "sha256", "erased")
# For people; what they name is compared by its sha256, and may have been renamed.
_NAMES = ("weights", "dataset", "imported")


def _begin(writer: Writer) -> Writer:
  """Makes room for all rows."""
  path, size = writer.path, _start_of_row(writer, writer.shape[0])
  try:
    _note(writer)  # first: an `encodings.part` of zeros must never pass for rows
    (path / _GROWING).unlink(missing_ok=True)
    handle = files.create(path / _GROWING)
    try:
      # All the space now: a full disk must not be found out after hours of work.
      if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
      files.write_all(handle, _header(writer))
      os.fsync(handle)
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
  """How many rows an unfinished store has; 0 if those that it should have are gone."""
  total = writer.shape[0]
  if type(rows) is not int or not 0 <= rows <= total:
    raise _damaged(writer.path, f"{writer.path / _PARTIAL} counts {_short(rows)} rows")
  need = _start_of_row(writer, rows)
  if _starts_soundly(writer, _GROWING, need):
    return rows
  # `finish` may have given the file its last name already.
  done = rows == total and not os.path.lexists(writer.path / _GROWING)
  return rows if done and _starts_soundly(writer, _WHOLE, need) else 0


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
    raise _damaged(writer.path, str(e)) from None


def _clean_complete(path: pathlib.Path) -> None:
  """Cleans a complete store, unless a process is erasing rows of it right now."""
  flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
  # Also without the permission to do so the store is complete.
  with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
    if os.path.lexists(path / _LOCK):
      handle = os.open(path / _LOCK, flags)
      stack.callback(os.close, handle)
      fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    clean(path)


def _is_temporary(name: str) -> bool:
  known = (_META, _PARTIAL, *(f"{array}.npy" for array in _ARRAYS))
  return any(files.is_temporary(name, of) for of in known)


def _holds_leftovers_only(path: pathlib.Path) -> bool:
  """Whether a folder holds nothing but what a killed process of ours may leave.

  Versions before this one made `encodings.part` before `partial.json`.
  """
  return all(name == _GROWING or _is_temporary(name) for name in os.listdir(path))


def _header(writer: Writer) -> bytes:
  """What an .npy file of the whole array starts with."""
  buffer = io.BytesIO()
  descr = np.lib.format.dtype_to_descr(writer.dtype)
  head = {"descr": descr, "fortran_order": False, "shape": writer.shape}
  np.lib.format.write_array_header_1_0(buffer, head)
  return buffer.getvalue()


def _start_of_row(writer: Writer, row: int) -> int:
  """Where a row starts in the file, in bytes."""
  return len(_header(writer)) + row * writer.shape[1] * writer.dtype.itemsize


def _require_same(path: pathlib.Path, made: Any, how: Mapping[str, Any]) -> None:
  """Raises with the first setting that differs."""
  wanted = json.loads(json.dumps(how))
  if not isinstance(made, dict):
    raise _damaged(path, f"{path / _PARTIAL} does not say how the store is made")
  if "classes" not in made:  # versions before this one did not keep them
    wanted.pop("classes", None)
  for key in dict.fromkeys((*wanted, *made)):
    if key not in _NAMES and wanted.get(key) != made.get(key):
      raise errors.StoreError(
        f"{path} was begun with {key} {_short(made.get(key))}, not"
        f" {_short(wanted.get(key))}; use another folder or delete it"
      )


def _short(value: Any) -> str:
  try:
    text = json.dumps(value)
  except RecursionError:
    return "(nested too deeply)"
  return text if len(text) <= 40 else text[:37] + "..."


def _check_meta(file: pathlib.Path, meta: Mapping[str, Any]) -> None:
  """Raises StoreError if a field that is used has a wrong type."""
  version = meta.get("version")
  if type(version) is not int or version != VERSION:
    raise errors.StoreError(
      f"{file} is of version {_short(version)}, and only {VERSION} can be read here;"
      " encode again, or use the legonet-jax that made it"
    )
  hashes, erased = meta.get("sha256"), meta.get("erased", 0)
  sound = {
    "sha256": isinstance(hashes, dict)
    and set(hashes) == set(_ARRAYS)
    and all(isinstance(value, str) for value in hashes.values()),
    "erased": type(erased) is int and erased >= 0,
    "size": type(meta.get("size", 0)) is int,
    "classes": isinstance(meta.get("classes", []), list),
  }
  for key in ("encoder", "weights_sha256", "resize", "compute"):
    sound[key] = isinstance(meta.get(key, ""), str)
  for key in ("mean", "std"):
    sound[key] = _are_numbers(meta.get(key, []))
  for key, right in sound.items():
    if not right:
      raise _damaged(file.parent, f"'{key}' in {file} is missing or of a wrong type")
  line = identity(meta)
  if line and not names.is_one_line(line, 1000):
    raise _damaged(file.parent, f"{file} names the encoder {line[:60]!a}, not one line")


def _spaced(numbers: Sequence[float]) -> str:
  return " ".join(str(float(number)) for number in numbers)


def _are_numbers(value: Any) -> bool:
  return isinstance(value, list) and all(type(v) is float for v in value)


def _check_type(path: pathlib.Path, name: str, array: NDArray[Any]) -> None:
  """Raises StoreError if an array of a store has a wrong type or number of axes."""
  file, kinds, kind = path / f"{name}.npy", _TYPES[name], array.dtype
  axes = 2 if name == "encodings" else 1
  if kind.name not in kinds or not kind.isnative or array.ndim != axes:
    found = untrusted.one_line(f"{kind}{list(array.shape)}", 60)
    raise _damaged(path, f"{file} is {found}, not {' or '.join(kinds)} in {axes}-d")
  if axes == 2 and not array.flags.c_contiguous:  # rows could not be erased in it
    raise _damaged(path, f"{file} is in Fortran order")


def _find_live(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
  """Which rows [N] are not erased.

  An erasure overwrites the encoding first, then the label, then the id. A row that has
  lost the first two is erased, too, though the process was killed before the third.
  """
  ids, labels = np.asarray(arrays["ids"]), np.asarray(arrays["labels"])
  live: NDArray[np.bool_] = ids != _ERASED
  half = np.flatnonzero(live & (labels == _ERASED))
  if len(half):
    live[half] = arrays["encodings"][half].any(axis=1)
  return live


def _check_columns(
  path: pathlib.Path, arrays: Mapping[str, NDArray[Any]], classes: Any
) -> None:
  """Raises StoreError if the columns of the rows that are not erased are wrong."""
  ids, labels, split = (arrays[name] for name in _COLUMNS)
  if not len(ids):
    return
  if ids[0] < 0 or not (ids[1:] > ids[:-1]).all():
    what = f"the ids in {path / 'ids.npy'} are negative, occur twice or do not increase"
    raise _damaged(path, what)
  if labels.min() < 0:
    raise _damaged(path, f"{path / 'labels.npy'} has the label {labels.min()}")
  if split.max() > 1:
    raise _damaged(path, f"{path / 'split.npy'} has a {split.max()}, not only 0 and 1")
  if classes is not None:
    try:
      names.check_classes(str(path / _META), classes, int(labels.max()) + 1)
    except errors.DataError as e:
      raise errors.StoreError(str(e)) from None


def _damaged(path: pathlib.Path, what: str) -> errors.StoreError:
  return errors.StoreError(
    f"{what}; restore {path} from a copy, or delete it and encode again"
  )


def _open_to_write(path: pathlib.Path) -> int:
  """The handle of a regular file that is there, for writing."""
  flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
  try:
    handle = os.open(path, flags)
  except OSError as e:
    if e.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
      raise
    raise _damaged(path.parent, f"{path} is not a regular file") from None
  if not stat.S_ISREG(os.fstat(handle).st_mode):
    os.close(handle)
    raise _damaged(path.parent, f"{path} is not a regular file")
  return handle


def _read(file: pathlib.Path, how: Callable[..., Any]) -> Any:
  """`how(file, follow=False)`, its complaints as those of a store."""
  try:
    return how(file, follow=False)
  except FileNotFoundError:
    raise _damaged(file.parent, f"{file} is missing") from None
  except errors.DataError as e:
    raise _damaged(file.parent, str(e)) from None
  except OSError as e:
    if e.errno != errno.ELOOP:
      raise
    raise _damaged(file.parent, f"{file} is a symbolic link") from None


def _read_json(file: pathlib.Path) -> dict[str, Any] | None:
  """The object in a JSON file of a store, or None if there is no such file."""
  if not os.path.lexists(file):
    return None
  value: dict[str, Any] = _read(file, untrusted.read_json)
  return value


def _write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
  """Writes a JSON file, durable when this returns."""
  files.write(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())
  files.sync_folder(path.parent)


def _note(writer: Writer) -> None:
  """Says how the store is made, and how many rows are on disk."""
  _write_json(writer.path / _PARTIAL, {"how": writer.how, "rows": writer.rows})
