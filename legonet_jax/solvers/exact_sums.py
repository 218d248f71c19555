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

from legonet_jax.core.config import LegoConfig
from legonet_jax.runtime import flags

BAND = 128


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
