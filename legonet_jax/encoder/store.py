"""The encoding store: every sample's encoding, computed once, in a folder.

    encodings.npy   [N, d] float16 or float32
    ids.npy         [N] int64, increasing
    labels.npy      [N] int32
    split.npy       [N] uint8, 0 train and 1 test
    meta.json       how it was made, and the sha256 of each array

`meta.json` is written last and makes the store complete. Until then the folder holds
`partial.json`, which says how the store is being made and how many rows are safely on
disk, and `encodings.part`, which grows. Whoever continues must make it in the same way.
"""

from collections.abc import Mapping
import contextlib
import json
import os
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors, fetch

VERSION = 1
_META, _PARTIAL, _GROWING = "meta.json", "partial.json", "encodings.part"
_COLUMNS = ("ids", "labels", "split")


class Encodings(NamedTuple):
  """A complete store, memory-mapped and read-only."""

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
      raise errors.StoreError(f"{file} has changed since it was made; encode again")
  if set(arrays) != {*_COLUMNS, "encodings"} or meta.get("version") != VERSION:
    raise errors.StoreError(f"{path / _META} is not of a version that can be read here")
  if len({len(array) for array in arrays.values()}) != 1:
    raise errors.StoreError(f"{path}: the arrays have different lengths; encode again")
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
    StoreError: if the folder holds something else.
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
  try:
    with (path / _GROWING).open("wb") as file:
      # All the space now: a full disk must not be found out after hours of work.
      os.posix_fallocate(file.fileno(), 0, max(1, shape[0] * shape[1] * kind.itemsize))
    _write_json(path / _PARTIAL, {"how": how, "rows": 0})
  except BaseException:
    discard(writer)
    raise
  return writer


def put(writer: Writer, rows: NDArray[np.floating]) -> Writer:
  """Adds rows [m, d]; they are on disk when this returns."""
  with (writer.path / _GROWING).open("r+b") as file:
    file.seek(writer.rows * writer.shape[1] * writer.dtype.itemsize)
    file.write(np.ascontiguousarray(rows, writer.dtype).data)
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
  growing = np.memmap(path / _GROWING, writer.dtype, "r", shape=writer.shape)
  columns = {"encodings": growing, "ids": ids, "labels": labels, "split": split}
  hashes = {name: _write_array(path / f"{name}.npy", a) for name, a in columns.items()}
  meta = {**writer.how, "version": VERSION, "sha256": hashes}
  _write_json(path / _META, meta)
  for name in (_PARTIAL, _GROWING):
    (path / name).unlink(missing_ok=True)
  return open_store(path)


def discard(writer: Writer) -> None:
  """Removes a store that cannot be completed, and its folder if that is empty then."""
  for name in (_PARTIAL, _GROWING, *(f"{c}.npy" for c in (*_COLUMNS, "encodings"))):
    (writer.path / name).unlink(missing_ok=True)
  with contextlib.suppress(OSError):
    writer.path.rmdir()


_ADDED = ("version", "sha256")


def _continue(writer: Writer) -> Writer:
  growing = writer.path / _GROWING
  size = growing.stat().st_size if growing.is_file() else 0
  need = writer.rows * writer.shape[1] * writer.dtype.itemsize
  if not 0 <= writer.rows <= writer.shape[0] or size < need:
    raise errors.StoreError(
      f"{growing} is shorter than {_PARTIAL} says; delete {writer.path} and start again"
    )
  return writer


def _require_same(path: pathlib.Path, made: Any, how: Mapping[str, Any]) -> None:
  """Raises with the first setting that differs."""
  wanted = json.loads(json.dumps(how))
  if not isinstance(made, dict):
    raise errors.StoreError(f"{path / _PARTIAL} is damaged; delete {path}")
  for key in sorted({*wanted, *made}):
    if wanted.get(key) != made.get(key):
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
  _replace(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())


def _write_array(path: pathlib.Path, array: NDArray[Any]) -> str:
  temporary = path.with_name(path.name + ".tmp")
  with temporary.open("wb") as file:
    np.save(file, array, allow_pickle=False)
    file.flush()
    os.fsync(file.fileno())
  temporary.replace(path)
  return fetch.sha256_of(path)


def _replace(path: pathlib.Path, data: bytes) -> None:
  temporary = path.with_name(path.name + ".tmp")
  with temporary.open("wb") as file:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
  temporary.replace(path)
