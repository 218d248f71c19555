r"""A_j = Σ x xᵀ and B_j = Σ y xᵀ over D_aj: sums of integers, exact in any order.

Codes are integers of at most 127 (see `features`), so a float32 product of up to 1,040
rows is exact however it is summed: 127² · 1,040 < 2^24. Blocks of that size run on the
fast float matmul and are added up in int32. To forget a sample, add it with the sign
-1: the result is the sum over the other samples, bit for bit.

A_j is symmetric, so only its upper part is kept, as bands of 128 rows that start at the
diagonal and lie side by side:

    band 0: rows 0 ... 127,    columns 0 ... D-1
    band 1: rows 128 ... 255,  columns 128 ... D-1     and so on;  D = d, padded with 0

The bound: an entry of A_j is at most its largest diagonal entry (Cauchy-Schwarz), which
is a sum of |D_aj| squares, so |D_aj| · 127² < 2^31 is always safe; beyond that (133,144
members) the diagonal itself is checked.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import features
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.samples import Samples
from legonet_jax.runtime import blocks, flags

BAND = 128
# All sizes give the same integers; small blocks save work when there are few rows.
_BLOCKS = (1024, 256, 16)
_MAX_SUM = 2**31
_FEW = 4


class Sums(NamedTuple):
  """The statistics of one adapter.

  Attributes:
    gram: A_j [128, t] int32, the bands of its upper part; on the host or of JAX.
    cross: B_j [C, d] int32.
  """

  gram: Any
  cross: Any


def padded(dim: int) -> int:
  """D: d, rounded up to whole bands."""
  return -(-dim // BAND) * BAND


def bands(dim: int) -> list[tuple[int, int]]:
  """(first row of A_j, first column within `gram`) of each band."""
  firsts, at = [], 0
  for row in range(0, padded(dim), BAND):
    firsts.append((row, at))
    at += padded(dim) - row
  return firsts


def zeros(cfg: LegoConfig, dim: int) -> Sums:
  """The sums over no sample."""
  row, at = bands(dim)[-1]
  width = at + padded(dim) - row
  return Sums(
    jnp.zeros((BAND, width), jnp.int32), jnp.zeros((cfg.num_classes, dim), jnp.int32)
  )


@jax.jit
def absorb(
  sums: Sums, codes: jax.Array, labels: jax.Array, signs: jax.Array
) -> tuple[Sums, jax.Array]:
  """`add_block`, and the largest diagonal entry as uint32, which cannot wrap."""
  new = add_block(sums, codes, labels, signs)
  return new, jnp.max(diagonal(new.gram, codes.shape[1]).astype(jnp.uint32))


def add_block(
  sums: Sums, codes: jax.Array, labels: jax.Array, signs: jax.Array
) -> Sums:
  """The sums with a block of samples added.

  Args:
    sums: the statistics so far.
    codes: [R, d] int8, R at most 1,040.
    labels: [R] int32.
    signs: [R] int8: 1 to add, -1 to subtract, 0 for padding.
  """
  dim = codes.shape[1]
  x = jnp.pad(codes.astype(jnp.float32), ((0, 0), (0, padded(dim) - dim)))
  signed = x * signs.astype(jnp.float32)[:, None]
  # This order, not its transpose, is twice as fast on CPU.
  parts = [_product(signed[:, r : r + BAND].T, x[:, r:]) for r, _ in bands(dim)]
  gram = sums.gram + jnp.concatenate(parts, axis=1).astype(jnp.int32)
  classes = jnp.arange(sums.cross.shape[0], dtype=labels.dtype)
  hit = (classes[:, None] == labels[None, :]).astype(jnp.float32)
  cross = sums.cross + _product(hit, signed[:, :dim]).astype(jnp.int32)
  return Sums(gram, cross)


def fits(sums: Sums) -> jax.Array:
  """Whether the sums, after one more block, still fit in 32 bits."""
  dim = sums.cross.shape[1]
  # An entry of the diagonal grows by less than 2^24 a block: it cannot jump past 2^32.
  return jnp.all(diagonal(sums.gram, dim) >= 0)


def unpack(sums: Sums) -> jax.Array:
  """A_j [d, d] int32, both halves."""
  dim = sums.cross.shape[1]
  size = padded(dim)
  full = jnp.zeros((size, size), jnp.int32)
  for row, at in bands(dim):
    full = full.at[row : row + BAND, row:].set(sums.gram[:, at : at + size - row])
  upper = jnp.triu(full)[:dim, :dim]
  return upper + jnp.triu(upper, 1).T


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
  return jnp.matmul(a, b, precision=flags.PRECISION)


def compile_all(cfg: LegoConfig, dim: int) -> None:
  """Compiles for every block size."""
  for size in _BLOCKS:
    y, s = np.zeros(size, np.int32), np.zeros(size, np.int8)
    absorb(zeros(cfg, dim), np.zeros((size, dim), np.int8), y, s)


def diagonal(gram: jax.Array, dim: int) -> jax.Array:
  """The diagonal [D] of A_j."""
  own = [jnp.diagonal(gram[:, at : at + BAND]) for _, at in bands(dim)]
  return jnp.concatenate(own)


def to_matrix(
  gram: jax.Array, dim: int, out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
  """A_j [d, d] float64; what lies left of its diagonal bands is not set."""
  packed, matrix = np.asarray(gram), np.empty((dim, dim)) if out is None else out
  for row, at in bands(dim):
    end = min(row + BAND, dim)
    matrix[row:end, row:] = packed[: end - row, at : at + dim - row]
  return matrix


def sum_rows(
  samples: Samples,
  start: Sums,
  rows: NDArray[np.intp],
  signs: NDArray[np.int8],
  size: int,
) -> Sums:
  """`start` with the table's `rows` [m] added, or subtracted, by `signs` [m].

  Args:
    samples: the table.
    start: the sums so far; not changed.
    rows: [m] rows of the table.
    signs: [m] 1 or -1.
    size: |D_aj| after the change, which tells whether the sums might be too large.

  Raises:
    ConfigError: if the sums do not fit in 32 bits.
  """
  if len(rows) <= _FEW and jax.default_backend() == "cpu":
    return _sum_few(samples, start, rows, signs, size)
  sums, peak = start, None
  at = 0
  while at < len(rows):
    left = len(rows) - at
    block = next((b for b in _BLOCKS if left > b // 2), _BLOCKS[-1])
    part = rows[at : at + block]
    codes = blocks.pad(samples.codes[part], block)
    labels = blocks.pad(samples.labels[part], block, np.int32)
    sign = blocks.pad(signs[at : at + block], block, np.int8)
    sums, peak = absorb(sums, codes, labels, sign)
    at += block
    if size * features.MAX_CODE**2 >= _MAX_SUM:
      _check(peak, size)
  return sums


def _sum_few(
  samples: Samples,
  start: Sums,
  rows: NDArray[np.intp],
  signs: NDArray[np.int8],
  size: int,
) -> Sums:
  """`sum_rows` of a few rows on the host: less work than a block of 16."""
  dim = samples.codes.shape[1]
  gram, cross = np.array(start.gram), np.array(start.cross)
  for row, sign in zip(rows.tolist(), signs.tolist(), strict=True):
    x = np.zeros(padded(dim), np.int32)
    x[:dim] = samples.codes[row]
    for first, at in bands(dim):
      band = gram[:, at : at + len(x) - first]
      band += (sign * x[first : first + BAND])[:, None] * x[first:]
    cross[samples.labels[row]] += sign * x[:dim]
  own = np.concatenate([gram[:, at : at + BAND].diagonal() for _, at in bands(dim)])
  _check(own.view(np.uint32).max(), size)
  return Sums(gram, cross)


def _check(peak: Any, size: int) -> None:
  if int(peak) >= _MAX_SUM:
    raise errors.ConfigError(
      f"an adapter has {size} members, too many for exact sums in 32 bits; use more"
      " adapters or a larger feature_range"
    )
