"""D: a table of samples (x_i, y_i), keyed by stable ids.

The table belongs to the caller; a state only records which samples are retained. Rows
are sorted by id, checked once, and read-only. `select`, `append` and `drop` return new
tables; drop a row after `unlearn` to remove it from memory for good.
"""

from collections.abc import Iterable
import dataclasses
import functools
import hashlib
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from legonet_jax import errors
from legonet_jax.core import features
from legonet_jax.core.config import LegoConfig, sample_fingerprint
from legonet_jax.core.data import NO_ID, Data
from legonet_jax.core.ids import Ids, find, to_words
from legonet_jax.runtime import flags

_FEWEST_ROWS = 64


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
  """N samples, sorted by id. Made by `make_samples`, which checks them.

  Attributes:
    ids: [N] int64, strictly increasing.
    codes: [N, d] int8, the mapped encodings (see `features`).
    labels: [N] int32 in 0 ... C-1.
    prints: [N, 16] uint8, a fingerprint of each row, by which a state recognises the
      samples that it was trained on.
    made_with: [32] uint8, a fingerprint of the settings that made the samples.
  """

  ids: Ids
  codes: NDArray[np.int8]
  labels: NDArray[np.int32]
  prints: NDArray[np.uint8]
  made_with: NDArray[np.uint8]

  @functools.cached_property
  def data(self) -> Data:
    """The table on the device, put there when it is first asked for.

    It has a few spare rows, so that tables of nearly the same size share executables.
    """
    return make_data(self, _round_up(len(self.ids)))

  @functools.cached_property
  def table(self) -> object:
    """Stands for this table in a state, which keeps none of its rows."""
    return object()

  @property
  def columns(self) -> tuple[NDArray[Any], ...]:
    """All arrays with a row per sample."""
    return self.ids, self.codes, self.labels, self.prints


def make_data(samples: Samples, rows: int | None = None) -> Data:
  """The samples on the device, in the order of their ids.

  Args:
    samples: N samples, from `make_samples`.
    rows: how many rows the table has, at least N; N if not given.
  """
  count = len(samples.ids)
  more = 0 if rows is None else rows - count
  if more < 0:
    raise errors.SampleError(
      f"{count} samples do not fit in {rows} rows; give at least as many rows"
    )
  words = to_words(samples.ids)
  return Data(
    jnp.asarray(np.pad(samples.codes, ((0, more), (0, 0)))),
    jnp.asarray(np.pad(samples.labels, (0, more))),
    jnp.asarray(np.pad(words, ((0, more), (0, 0)), constant_values=NO_ID)),
  )


def _round_up(count: int) -> int:
  """`count`, rounded up to a multiple of a quarter of the power of two below it."""
  step = max(_FEWEST_ROWS, 1 << max(0, count.bit_length() - 3))
  return max(1, -(-count // step)) * step


@flags.host_only()
def make_samples(
  cfg: LegoConfig, encodings: ArrayLike, labels: ArrayLike, ids: ArrayLike | None = None
) -> Samples:
  """Checks and maps samples.

  Args:
    cfg: the settings; its feature map is applied here, once.
    encodings: e [N, d], any float type, finite. int8 is refused: it stands for codes.
    labels: y [N], integers in 0 ... C-1.
    ids: [N] distinct integers of at least 0; the row numbers if not given.

  Returns:
    The table, sorted by id.

  Raises:
    SampleError: on a wrong shape or type, NaN or infinity, or a label out of range.
    DuplicateIdError: if an id occurs twice.
  """
  if getattr(encodings, "dtype", None) == np.int8:
    raise errors.SampleError(
      "encodings are int8, which stands for codes; give the encoder's output as floats"
    )
  codes = features.encode_array(cfg, encodings)
  y = _integers("labels", labels, len(codes))
  bad = np.flatnonzero((y < 0) | (y >= cfg.num_classes))
  if len(bad):
    raise errors.SampleError(
      f"label {y[bad[0]]} in row {bad[0]} is not in 0 ... {cfg.num_classes - 1};"
      " correct the label or num_classes"
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
      f"id {twice[0]} occurs twice; each sample needs its own id"
    )
  prints = [
    hashlib.blake2b(b"%d,%d:" % (i, c) + row.tobytes(), digest_size=16).digest()
    for i, c, row in zip(keys.tolist(), y.tolist(), codes, strict=True)
  ]
  table = np.frombuffer(b"".join(prints), np.uint8).reshape(-1, 16)
  made_with = sample_fingerprint(cfg)
  return _freeze((keys, codes, y.astype(np.int32), table), made_with)


def rows_of(samples: Samples, ids: Ids) -> NDArray[np.intp]:
  """Rows [m] of `ids` [m] in the table; UnknownIdError if one is missing."""
  return find(samples.ids, ids)


def select(samples: Samples, ids: ArrayLike) -> Samples:
  """The table with only `ids`, each named once."""
  rows = np.sort(rows_of(samples, check_ids(ids)))
  return _freeze((column[rows] for column in samples.columns), samples.made_with)


def drop(samples: Samples, ids: ArrayLike) -> Samples:
  """The table without `ids`, each named once: the rows themselves are gone."""
  rows = rows_of(samples, check_ids(ids))
  left = (np.delete(column, rows, axis=0) for column in samples.columns)
  return _freeze(left, samples.made_with)


def append(samples: Samples, new: Samples) -> Samples:
  """The table with the samples of `new` added; none of their ids may exist already."""
  if new.codes.shape[1] != samples.codes.shape[1]:
    raise errors.SampleError(
      f"new encodings have width {new.codes.shape[1]}, the others"
      f" {samples.codes.shape[1]}; use the same encoder"
    )
  if not np.array_equal(new.made_with, samples.made_with):
    raise errors.SamplesMismatchError(
      "the new samples were made with another encoder, feature map or number of"
      " classes; make them with the settings of the others"
    )
  known = new.ids[np.isin(new.ids, samples.ids)]
  if len(known):
    raise errors.DuplicateIdError(
      f"id {known[0]} is in the table already; drop it first or use another id"
    )
  at = np.searchsorted(samples.ids, new.ids)
  pairs: Iterable[tuple[NDArray[Any], NDArray[Any]]] = zip(
    samples.columns, new.columns, strict=True
  )
  merged = (np.insert(a, at, b, axis=0) for a, b in pairs)
  return _freeze(merged, samples.made_with)


def check_ids(ids: ArrayLike) -> Ids:
  """The ids [m] of a request as int64; raises if one occurs twice."""
  wanted = np.atleast_1d(np.asarray(ids))
  if not wanted.size:
    return np.zeros(0, np.int64)
  if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
    raise errors.SampleError(
      f"ids have shape {wanted.shape} and type {wanted.dtype}; give a list of integers"
    )
  unique, counts = np.unique(wanted, return_counts=True)
  if len(unique) < len(wanted):
    raise errors.DuplicateIdError(
      f"id {unique[counts > 1][0]} is named twice; name each sample once"
    )
  return wanted.astype(np.int64)


def _integers(name: str, values: ArrayLike, count: int) -> NDArray[np.int64]:
  array = np.asarray(values)
  if array.shape != (count,):
    raise errors.SampleError(
      f"{name} have shape {array.shape}; {count} encodings need ({count},)"
    )
  if array.dtype.kind not in "iu":
    raise errors.SampleError(f"{name} have type {array.dtype}; they must be integers")
  if array.size and int(array.max()) >= 2**63:
    raise errors.SampleError(f"{name} hold {array.max()}; they must be below 2**63")
  return array.astype(np.int64)


def _freeze(columns: Iterable[NDArray[Any]], made_with: NDArray[np.uint8]) -> Samples:
  ids, codes, labels, prints = columns
  samples = Samples(ids, codes, labels, prints, made_with)
  for column in (*samples.columns, made_with):
    column.setflags(write=False)
  return samples
