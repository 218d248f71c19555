"""D: a table of samples (x_i, y_i), keyed by stable ids.

The table is the caller's; a state only says which of its samples are retained. Rows
are sorted by id, checked once, and read-only. `select`, `append` and `drop` return new
tables; dropping a row after `unlearn` is what removes it from memory for good.
"""

from collections.abc import Iterable
import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from legonet_jax import errors, features
from legonet_jax.config import LegoConfig
from legonet_jax.ids import Ids


class Samples(NamedTuple):
  """N samples, sorted by id. Made by `make_samples`, which checks them.

  Attributes:
    ids: [N] int64, strictly increasing.
    codes: [N, d] int8, the mapped encodings (see `features`).
    labels: [N] int32 in 0 ... C-1.
    prints: [N, 16] uint8, a fingerprint of each row, by which a state recognises the
      samples that it was trained on.
  """

  ids: Ids
  codes: NDArray[np.int8]
  labels: NDArray[np.int32]
  prints: NDArray[np.uint8]


def make_samples(
  cfg: LegoConfig, encodings: ArrayLike, labels: ArrayLike, ids: ArrayLike | None = None
) -> Samples:
  """Checks and maps samples.

  Args:
    cfg: the settings; its feature map is applied here, once.
    encodings: e [N, d], any float type, finite.
    labels: y [N], integers in 0 ... C-1.
    ids: [N] distinct integers of at least 0; the row numbers if not given.

  Returns:
    The table, sorted by id.

  Raises:
    SampleError: on a wrong shape or type, NaN or infinity, or a label out of range.
    DuplicateIdError: if an id occurs twice.
  """
  codes = features.encode_array(cfg, encodings)
  y = _integers("labels", labels, len(codes))
  bad = np.flatnonzero((y < 0) | (y >= cfg.num_classes))
  if len(bad):
    raise errors.SampleError(
      f"label {y[bad[0]]} in row {bad[0]} is not in 0 ... {cfg.num_classes - 1};"
      " mend the label or num_classes"
    )
  keys = np.arange(len(codes)) if ids is None else _integers("ids", ids, len(codes))
  if len(keys) and keys.min() < 0:
    raise errors.SampleError(
      f"id {keys.min()} is negative; ids are integers of at least 0"
    )
  order = np.argsort(keys, kind="stable")
  keys, codes, y = keys[order], codes[order], y[order]
  twice = keys[1:][keys[1:] == keys[:-1]]
  if len(twice):
    raise errors.DuplicateIdError(
      f"id {twice[0]} occurs twice; each sample needs its own"
    )
  prints = [
    hashlib.blake2b(b"%d,%d:" % (i, c) + row.tobytes(), digest_size=16).digest()
    for i, c, row in zip(keys.tolist(), y.tolist(), codes, strict=True)
  ]
  table = np.frombuffer(b"".join(prints), np.uint8).reshape(-1, 16)
  return _frozen(keys, codes, y.astype(np.int32), table)


def rows_of(samples: Samples, ids: Ids) -> NDArray[np.intp]:
  """Rows [m] of `ids` [m] in the table; UnknownIdError if one is not there."""
  rows = np.searchsorted(samples.ids, ids)
  hit = rows < len(samples.ids)
  hit[hit] = samples.ids[rows[hit]] == ids[hit]
  if not hit.all():
    raise errors.UnknownIdError(
      f"no sample has id {ids[~hit][0]}; check the request's ids"
    )
  return rows


def select(samples: Samples, ids: ArrayLike) -> Samples:
  """The table with only `ids`."""
  rows = np.sort(rows_of(samples, np.asarray(ids, np.int64)))
  return _frozen(*(column[rows] for column in samples))


def drop(samples: Samples, ids: ArrayLike) -> Samples:
  """The table without `ids`: the rows themselves are gone."""
  rows = rows_of(samples, np.asarray(ids, np.int64))
  return _frozen(*(np.delete(column, rows, axis=0) for column in samples))


def append(samples: Samples, new: Samples) -> Samples:
  """The table with the samples of `new` added, all of them under ids of their own."""
  if new.codes.shape[1] != samples.codes.shape[1]:
    raise errors.SampleError(
      f"new encodings have width {new.codes.shape[1]}, the others"
      f" {samples.codes.shape[1]}; use the same encoder"
    )
  known = new.ids[np.isin(new.ids, samples.ids)]
  if len(known):
    raise errors.DuplicateIdError(
      f"id {known[0]} is in the table already; drop it first or use another id"
    )
  at = np.searchsorted(samples.ids, new.ids)
  pairs: Iterable[tuple[NDArray[Any], NDArray[Any]]] = zip(samples, new, strict=True)
  return _frozen(*(np.insert(a, at, b, axis=0) for a, b in pairs))


def _integers(name: str, values: ArrayLike, count: int) -> NDArray[np.int64]:
  array = np.asarray(values)
  if array.shape != (count,):
    raise errors.SampleError(
      f"{name} have shape {array.shape}; {count} encodings need ({count},)"
    )
  if array.dtype.kind not in "iu":
    raise errors.SampleError(f"{name} have type {array.dtype}; they must be integers")
  return array.astype(np.int64)


def _frozen(*columns: NDArray[Any]) -> Samples:
  for column in columns:
    column.setflags(write=False)
  return Samples(*columns)
