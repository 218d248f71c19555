"""Reading an encoding store; every file in it is checked and no link is followed."""

from collections.abc import Mapping
import os
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.io import untrusted
from legonet_jax.io.files import PathLike
from legonet_jax.store import format, seals

Classes = tuple[str, ...] | None


class Encodings(NamedTuple):
  """A complete store, read-only: memory-mapped, or in memory if rows were erased."""

  ids: NDArray[np.int64]
  encodings: NDArray[np.floating]
  labels: NDArray[np.int32]
  split: NDArray[np.uint8]
  meta: Mapping[str, Any]


class Record(NamedTuple):
  """Identifies the content of a store at one moment: rows, erased rows, sha256."""

  rows: int
  erased: int
  sha256: Mapping[str, str]


def open_store(path: PathLike, *, verify: bool = False) -> Encodings:
  """The store in `path`.

  Types, lengths, ids, labels and splits are always checked; the encodings themselves
  are not read.

  Args:
    path: the folder.
    verify: also compare the sha256 of every array, and every row with its seal (reads
      all of it).

  Raises:
    StoreError: if it is missing, incomplete or damaged, or holds a symbolic link.
  """
  path = pathlib.Path(path)
  meta, arrays, live = _open_raw(path, verify)
  arrays = {name: arrays[name] for name in format.ARRAYS}
  if not live.all():
    arrays = {name: array[live] for name, array in arrays.items()}
    for array in arrays.values():
      array.setflags(write=False)
  format.check_columns(path, arrays, meta.get("classes"))
  return Encodings(meta=meta, **arrays)


def read_ids(path: pathlib.Path) -> NDArray[np.int64]:
  """The ids of a store's rows that are not erased, without reading the encodings."""
  _, arrays, live = _open_raw(path, verify=False)
  return np.asarray(arrays["ids"][live])


def read_record(path: pathlib.Path) -> Record:
  """The record of a store now, with the sha256 values from `meta.json`."""
  meta, _, live = _open_raw(path, verify=False)
  return Record(len(live), len(live) - int(live.sum()), dict(meta["sha256"]))


def encoder_of(path: PathLike) -> str:
  """The encoder of a store, in one line (see `format.identity`)."""
  path = pathlib.Path(path)
  return format.identity(open_store(path).meta)


def classes_of(path: PathLike) -> Classes:
  """The names of a store's labels, if it knows them."""
  path = pathlib.Path(path)
  names = open_store(path).meta.get("classes")
  return None if names is None else tuple(names)


def is_store(path: pathlib.Path) -> bool:
  """Whether `path` looks like an encoding store."""
  return (path / "meta.json").is_file()


def require_store(path: pathlib.Path) -> None:
  """Raises if `path` is a symbolic link or does not hold a store."""
  if path.is_symlink():
    raise errors.LinkError(
      f"the store {path} is a symbolic link; put the store itself there"
    )
  if not is_store(path):
    raise errors.StoreError(
      f"the store {path} is not there; restore it, and the next command on the run"
      " continues"
    )


def _open_raw(
  path: pathlib.Path, verify: bool
) -> tuple[dict[str, Any], dict[str, NDArray[Any]], NDArray[np.bool_]]:
  """`meta.json`, the arrays including erased rows, and which rows are not erased."""
  meta = format.read_json(path / format.META)
  if meta is None:
    state = "an unfinished" if os.path.lexists(path / format.PARTIAL) else "no"
    raise errors.StoreError(
      f"{path} holds {state} encoding store; run `legonet encode`, or `legonet"
      " import-encodings` if there are encodings already"
    )
  format.check_meta(path / format.META, meta)
  arrays, sums = {}, meta["sha256"]
  sealed = (format.SEALS, format.SALTS) if format.SEALS in sums else ()
  for name in (*format.ARRAYS, *sealed):
    file = path / f"{name}.npy"
    arrays[name] = format.read(file, untrusted.map_npy)
    format.check_type(path, name, arrays[name])
    wanted = sums.get(name) if verify else None  # there is none of salts
    if wanted is not None and format.read(file, untrusted.sha256_of) != wanted:
      raise errors.StoreError(
        f"{file} has changed since it was made; encode again (or, if an erasure was"
        " interrupted, let any `legonet` command on its run finish it)"
      )
  if len({len(array) for array in arrays.values()}) != 1:
    raise format.damaged(path, f"the arrays in {path} have different lengths")
  live = format.find_live(arrays)
  if verify and (wrong := seals.find_changed(path, arrays, live)):
    raise format.damaged(path, wrong)
  return meta, arrays, live
