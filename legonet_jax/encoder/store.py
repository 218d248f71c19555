"""The encoding store: every sample's encoding, computed once, in a folder.

    encodings.npy   [N, d] float16 or float32
    ids.npy         [N] int64, increasing
    labels.npy      [N] int32
    split.npy       [N] uint8, 0 train and 1 test
    meta.json       how it was made, and the sha256 of each array

A row that was erased (see `legonet_jax.runs.erasure`) has the id and label -1 and an
encoding of zeros; `open_store` leaves it out.

`meta.json` is written last and makes the store complete. Until then the folder holds
`partial.json`, which says how the store is being made and how many rows are safely on
disk, and `encodings.part`, which fills up. Only a run that makes it in the same way may
continue.
"""

from collections.abc import Mapping
import contextlib
import io
import json
import os
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors, fetch, files

VERSION = 1
_META, _PARTIAL, _GROWING = "meta.json", "partial.json", "encodings.part"
_COLUMNS = ("ids", "labels", "split")


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

  Args:
    path: the folder.
    verify: also compare the sha256 of every array (reads all of it).

  Raises:
    StoreError: if it is missing, incomplete or damaged.
  """
  if not (path / _META).is_file():
    state = "an unfinished" if (path / _PARTIAL).is_file() else "no"
    raise errors.StoreError(
      f"{path} holds {state} encoding store; run `legonet encode`"
    )
  meta = _read_json(path / _META)
  arrays = {}
  for name, sha256 in meta.get("sha256", {}).items():
    file = path / f"{name}.npy"
    try:
      arrays[name] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, FileNotFoundError) as e:
      raise errors.StoreError(f"{file} is damaged ({e}); encode again") from None
    if verify and fetch.sha256_of(file) != sha256:
      raise errors.StoreError(
        f"{file} has changed since it was made; encode again (or, if an erasure was"
        " interrupted, let any `legonet` command on its run finish it)"
      )
  if set(arrays) != {*_COLUMNS, "encodings"} or meta.get("version") != VERSION:
    raise errors.StoreError(f"{path / _META} is not of a version that can be read here")
  if len({len(array) for array in arrays.values()}) != 1:
    raise errors.StoreError(f"{path}: the arrays have different lengths; encode again")
  live = np.asarray(arrays["ids"]) >= 0
  if not live.all():
    arrays = {name: array[live] for name, array in arrays.items()}
    for array in arrays.values():
      array.setflags(write=False)
  return Encodings(meta=meta, **arrays)


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
  kind: np.dtype[np.floating] = np.dtype(dtype)
  if (path / _META).is_file():
    made = {k: v for k, v in _read_json(path / _META).items() if k not in _ADDED}
    _require_same(path, made, how)
    return None
  if (path / _PARTIAL).is_file():
    partial = _read_json(path / _PARTIAL)
    _require_same(path, partial.get("how"), how)
    return _continue(Writer(path, how, shape, kind, int(partial["rows"])))
  if path.exists() and (not path.is_dir() or any(path.iterdir())):
    raise errors.StoreError(
      f"{path} is in use for something else; give an empty folder"
    )
  path.mkdir(parents=True, exist_ok=True)
  writer = Writer(path, how, shape, kind, 0)
  size = _start_of_row(writer, shape[0])
  try:
    with (path / _GROWING).open("wb") as file:
      # All the space now: a full disk must not be found out after hours of work.
      if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
      file.write(_header(writer))
    _write_json(path / _PARTIAL, {"how": how, "rows": 0})
  except OSError as e:
    discard(writer)
    raise errors.StoreError(
      f"cannot make room for {size / 1e6:.1f} MB in {path} ({e.strerror}); free some"
      " space or use another folder"
    ) from None
  return writer


def put(writer: Writer, rows: NDArray[np.floating]) -> Writer:
  """Adds rows [m, d]; they are on disk when this returns.

  Raises:
    StoreError: if a number is NaN, or too large for the type of the store.
  """
  with np.errstate(over="ignore"):
    stored = np.ascontiguousarray(rows, writer.dtype)
  bad = np.flatnonzero(~np.isfinite(stored).all(axis=1))
  if len(bad):
    raise errors.StoreError(
      f"the encoding in row {writer.rows + bad[0]} is not finite in {writer.dtype};"
      " store float32, or check the weights"
    )
  with (writer.path / _GROWING).open("r+b") as file:
    file.seek(_start_of_row(writer, writer.rows))
    file.write(stored.data)
    file.flush()
    os.fsync(file.fileno())
  done = writer.rows + len(rows)
  _write_json(writer.path / _PARTIAL, {"how": writer.how, "rows": done})
  return writer._replace(rows=done)


def finish(
  writer: Writer,
  ids: NDArray[np.int64],
  labels: NDArray[np.int32],
  split: NDArray[np.uint8],
) -> Encodings:
  """Completes the store with its columns, then drops the marks of its making."""
  path = writer.path
  for name, column in (("ids", ids), ("labels", labels), ("split", split)):
    buffer = io.BytesIO()
    np.save(buffer, column, allow_pickle=False)
    files.write(path / f"{name}.npy", buffer.getvalue())
  if (path / _GROWING).exists():  # else an earlier attempt got this far
    (path / _GROWING).replace(path / "encodings.npy")
  names = ("encodings", *_COLUMNS)
  hashes = {name: fetch.sha256_of(path / f"{name}.npy") for name in names}
  _write_json(path / _META, {**writer.how, "version": VERSION, "sha256": hashes})
  (path / _PARTIAL).unlink()
  return open_store(path)


def discard(writer: Writer) -> None:
  """Removes a store that cannot be completed, and its folder if that is empty then."""
  for name in (_PARTIAL, _GROWING, *(f"{c}.npy" for c in (*_COLUMNS, "encodings"))):
    (writer.path / name).unlink(missing_ok=True)
  with contextlib.suppress(OSError):
    writer.path.rmdir()


_ADDED = ("version", "sha256", "erased")
# For people; what they name is compared by its sha256, and may have been renamed.
_NAMES = ("weights", "dataset", "imported")


def _continue(writer: Writer) -> Writer:
  growing = writer.path / _GROWING
  if writer.rows == writer.shape[0] and (writer.path / "encodings.npy").is_file():
    return writer
  size = growing.stat().st_size if growing.is_file() else 0
  need = _start_of_row(writer, writer.rows)
  if not 0 <= writer.rows <= writer.shape[0] or size < need:
    raise errors.StoreError(
      f"{growing} is shorter than {_PARTIAL} says; delete {writer.path} and start again"
    )
  return writer


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
    raise errors.StoreError(f"{path / _PARTIAL} is damaged; delete {path}")
  for key in dict.fromkeys((*wanted, *made)):
    if key not in _NAMES and wanted.get(key) != made.get(key):
      raise errors.StoreError(
        f"{path} was begun with {key} {_short(made.get(key))}, not"
        f" {_short(wanted.get(key))}; use another folder or delete it"
      )


def _short(value: Any) -> str:
  text = json.dumps(value)
  return text if len(text) <= 40 else text[:37] + "..."


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  try:
    value = json.loads(path.read_text())
  except ValueError as e:
    raise errors.StoreError(f"{path} is damaged ({e}); delete its folder") from None
  if not isinstance(value, dict):
    raise errors.StoreError(f"{path} is damaged; delete its folder")
  return value


def _write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
  files.write(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())
