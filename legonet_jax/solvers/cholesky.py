r"""A + s I = Uᵀ U and W Uᵀ U = B, 64 rows at a time, by products of fixed shapes.

LAPACK only ever factors a 64 x 64 block: on the whole matrix its bits depend on how
many threads it finds, and its triangular solver starts threads that wait for each other
when the machine is busy.
"""

import jax
import jax.numpy as jnp

from legonet_jax.solvers import exact_sums

_STEP = 64


def factor(
  gram: jax.Array, shift: jax.Array, dim: int
) -> tuple[list[jax.Array], list[jax.Array]]:
  """A + s I = Uᵀ U, 64 rows at a time.

  Returns:
    For each step, U's rows right of the diagonal block [64, D - r - 64], and L^-1
    [64, 64], where Lᵀ is U's diagonal block.
  """
  size = exact_sums.padded(dim)
  eye = jnp.eye(_STEP, dtype=jnp.float32)
  above = jnp.zeros((0, size), jnp.float32)  # U's rows so far, from this column on
  right, inverse = [], []
  for r in range(0, size, _STEP):
    band, inside = divmod(r, exact_sums.BAND)
    at = exact_sums.bands(dim)[band][1]
    rows = gram[inside : inside + _STEP, at + inside : at + inside + size - r]
    rows = rows - above[:, :_STEP].T @ above
    block = jax.lax.linalg.cholesky(
      rows[:, :_STEP] + shift * eye, symmetrize_input=False
    )
    inverse.append(_invert(block))
    right.append(inverse[-1] @ rows[:, _STEP:])
    above = jnp.concatenate([above[:, _STEP:], right[-1]])
  return right, inverse


def _invert(lower: jax.Array) -> jax.Array:
  """L^-1 of a triangular L [64, 64], from its diagonal blocks of 1, 2, 4, ... rows.

  Two neighbours L1, L2 with X below L1 make a block whose inverse has -L2^-1 X L1^-1
  below L1^-1. All blocks of one size are done at once.
  """
  inverse = 1 / jnp.diagonal(lower)[:, None, None]
  while (size := inverse.shape[1]) < len(lower):
    first, second = inverse[0::2], inverse[1::2]
    starts = range(0, len(lower), 2 * size)
    x = jnp.stack([lower[i + size : i + 2 * size, i : i + size] for i in starts])
    x = -_product(second, _product(x, first))
    above = jnp.concatenate([first, jnp.zeros_like(x)], axis=2)
    inverse = jnp.concatenate([above, jnp.concatenate([x, second], axis=2)], axis=1)
  whole: jax.Array = inverse[0]
  return whole


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
  """a @ b for [m, s, s]; tiny products are cheaper when written out."""
  if a.shape[1] >= 8:
    return a @ b
  return jnp.sum(a[:, :, :, None] * b[:, None, :, :], axis=2)


def substitute(
  right: list[jax.Array], inverse: list[jax.Array], b: jax.Array
) -> jax.Array:
  """W [C, D] with W Uᵀ U = B, forwards and then backwards."""
  rest, found = b, []
  for part, block in zip(right, inverse, strict=True):
    found.append(rest[:, :_STEP] @ block.T)
    rest = rest[:, _STEP:] - found[-1] @ part
  w = jnp.zeros((b.shape[0], 0), jnp.float32)
  for part, block, y in zip(right[::-1], inverse[::-1], found[::-1], strict=True):
    w = jnp.concatenate([(y - w @ part.T) @ block, w], axis=1)
  return w
