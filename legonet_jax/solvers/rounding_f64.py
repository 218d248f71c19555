r"""W_j = floor(2^g B_j (A_j + s_j I)^-1 + 1/2) inside jit, in float64.

The certified rounding of `rounding`, as a pure function: an estimate V, its residual r,
and the bound ||r|| / s of its error. With H = rint(V) and F = V - H,

    r = (2^g B - H M) - F M,        M = A + s I

whose first part is exact, because all its numbers are integers below 2^52, and whose
second part is off by at most γ tr(M) ||F||. An entry farther from a rounding boundary
than the bound is the answer. The others are refined (V <- V + r M^-1) and, in the end,
left undecided.

Float64 is enabled inside this function only; the caller's flags stay. Contexts of that
kind are fragile in JAX, so `flags.float64_works` tries a known answer first.
"""

from collections.abc import Callable
from fractions import Fraction
import functools
from typing import Any

import jax
import jax.numpy as jnp

from legonet_jax.solvers import rounding, rounding_limbs

_EXACT = 2.0**52  # integers below it, and sums of them, are exact in float64
_ROUNDS = 3


def solve_rounded(
  penalty: Fraction, gram: jax.Array, cross: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """W_j of one adapter, as far as certain; for use under jit, vmap, scan and shard_map.

  Args:
    penalty: λ, static.
    gram: A_j [d, d] int32, both halves.
    cross: B_j [C, d] int32.

  Returns:
    Weights [C, d] int32, 0 where undecided, and undecided [C, d] bool.
  """
  dim = gram.shape[0]
  sure = jnp.bool_(True)
  with jax.enable_x64(True):
    shift = _choose_shift(penalty, gram)
    if shift is None:
      limbs, sure = rounding_limbs.choose_shift(penalty, gram)
      # No array of powers: a constant of float64 would be in a TPU's program, too.
      shift = sum(limb.astype(jnp.float64) * 256.0**i for i, limb in enumerate(limbs))
    matrix = gram.astype(jnp.float64)
    largest = dim * jnp.max(jnp.diagonal(matrix)) + shift
    matrix = matrix + shift * jnp.eye(dim, dtype=jnp.float64)
    target = cross.astype(jnp.float64) * 2.0 ** rounding.choose_grid(penalty, dim)
    trace = jnp.sum(jnp.diagonal(matrix))
    gamma = 1.01 * (dim + 8) * 2.0**-53
    solve = make_solver(matrix)

    def examine(v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
      near = jnp.round(v)
      rest = v - near
      # One product, so that M is read once. Without `preferred_element_type`, which a
      # batching rule, outside of this context, would cut to float32.
      products = jax.lax.dot(
        jnp.concatenate([near, rest]), matrix, precision=jax.lax.Precision.HIGHEST
      )
      r = target - products[: len(v)] - products[len(v) :]
      bound = _norms(r) + gamma * (trace * _norms(rest) + _norms(r))
      bound = bound * (1 + 2.0**-30) / shift  # pays for the errors of this line
      exact = (largest * jnp.max(jnp.abs(near)) < _EXACT) & (
        jnp.max(jnp.abs(target)) < _EXACT
      )
      # A comparison with NaN, from a factor that failed, is False.
      return near, r, (0.5 - jnp.abs(rest) > bound) & exact

    def refine(now: Any) -> Any:
      i, v, answer, r, decided = now
      v = v + solve(r)
      near, r, certain = examine(v)
      return i + 1, v, jnp.where(decided, answer, near), r, decided | certain

    v = solve(target)
    start = (jnp.int32(1), v, *examine(v))
    _, _, answer, _, decided = jax.lax.while_loop(
      lambda now: (now[0] < _ROUNDS) & ~jnp.all(now[4]), refine, start
    )
    decided = decided & sure
    return jnp.where(decided, answer, 0.0).astype(jnp.int32), ~decided


def make_solver(matrix: jax.Array) -> Callable[[jax.Array], jax.Array]:
  """A function that solves V M = R for V [C, d], about, by a Cholesky factor of M."""
  factor = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)

  def solve(right: jax.Array) -> jax.Array:
    back = functools.partial(
      jax.lax.linalg.triangular_solve, factor, left_side=False, lower=True
    )
    return back(back(right, transpose_a=True))

  return solve


def _choose_shift(penalty: Fraction, gram: jax.Array) -> jax.Array | None:
  """s_j = max(1, floor(λ tr(A_j) / d + 1/2)), or None if 64 bits cannot hold it all."""
  dim = gram.shape[0]
  ratio = penalty / dim
  p, q = 2 * ratio.numerator, ratio.denominator
  if max(p * dim * 2**31 + q, 2 * q) >= 2**62:
    return None
  trace = jnp.sum(jnp.diagonal(gram).astype(jnp.int64))
  return jnp.maximum((p * trace + q) // (2 * q), 1).astype(jnp.float64)


def _norms(rows: jax.Array) -> jax.Array:
  """||r|| [C, 1] of r [C, d]."""
  return jnp.sqrt(jnp.sum(rows * rows, axis=1, keepdims=True))
