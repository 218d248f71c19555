"""Other float solvers below the certified rounding of `Ridge`, which must not matter.

own           what the library has: a Cholesky factor in float64
noise-SIZE    its solutions, each entry times 1 + SIZE · a number in -1 ... 1
lu            an LU factor in float64
float32       a Cholesky factor in float32
"""

from collections.abc import Callable
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from legonet_jax.core import finish
from legonet_jax.solvers import rounding_f64

Solve = Callable[[jax.Array], jax.Array]


def use(name: str) -> Callable[[], dict[str, int]]:
  """Puts a solver in the place of the library's, in this process, before it compiles.

  Returns:
    A function that counts systems solved so far (one of an adapter, and one more for
    each refinement), and adapters that were left to the host.
  """
  own, decide = rounding_f64.make_solver, finish.decide
  others = {"own": own, "lu": _by_lu, "float32": _in_float32(own)}
  make = others.get(name) or _with_noise(name, own)
  solves, left = itertools.count(), itertools.count()  # from several threads

  def counted(matrix: jax.Array) -> Solve:
    solve = make(matrix)

    def call(right: jax.Array) -> jax.Array:
      jax.debug.callback(lambda: next(solves))
      return solve(right)

    return call

  def noted(*args: Any) -> Any:
    next(left)
    return decide(*args)

  rounding_f64.make_solver = counted
  finish.decide = noted
  return lambda: {"solves": next(solves), "on_host": next(left)}


def _by_lu(matrix: jax.Array) -> Solve:
  return lambda right: jnp.linalg.solve(matrix, right.T).T


def _with_noise(name: str, make: Callable[[jax.Array], Solve]) -> Any:
  size = float(name.removeprefix("noise-"))

  def make_noisy(matrix: jax.Array) -> Solve:
    solve = make(matrix)

    def noisy(right: jax.Array) -> jax.Array:
      v = solve(right)
      noise = jnp.sin(1.7 * jnp.arange(v.size, dtype=v.dtype)).reshape(v.shape)
      return v * (1 + size * noise)

    return noisy

  return make_noisy


def _in_float32(make: Callable[[jax.Array], Solve]) -> Callable[[jax.Array], Solve]:
  def make_small(matrix: jax.Array) -> Solve:
    solve_small = make(matrix.astype(jnp.float32))

    def solve(right: jax.Array) -> jax.Array:
      size = jnp.maximum(jnp.abs(right).max(), 1.0)  # so that float32 cannot overflow
      v = solve_small((right / size).astype(jnp.float32))
      return v.astype(matrix.dtype) * size

    return solve

  return make_small
