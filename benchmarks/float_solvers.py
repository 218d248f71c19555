"""Other float solvers below the certified rounding of `Ridge`, which must not matter.

own           what the library has: LAPACK's Cholesky factor in float64
noise-SIZE    its solutions, each entry times 1 + SIZE · a normal number
numpy         `numpy.linalg.solve`, an LU factor
float32       a Cholesky factor in float32
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
import scipy.linalg

from legonet_jax.solvers import rounding

Matrix = NDArray[np.float64]


def use(name: str) -> Callable[[], dict[str, int]]:
  """Puts a solver in the place of the library's, in this process.

  Returns:
    A function that counts the rows solved so far, and those that one look did not
    decide: refined in float64, solved in integers, exact ties.
  """
  others = {"own": rounding.make_solver, "numpy": _by_numpy, "float32": _in_float32}
  solve_rounded, found = rounding.solve_rounded, []

  def noted(system: rounding.System, solve: Any = None) -> rounding.Rounded:
    result = solve_rounded(system, solve)
    found.append((len(result.weights), *result[1:]))  # from several threads
    return result

  def count() -> dict[str, int]:
    sums = [sum(column) for column in zip(*found, strict=True)]
    return dict(zip(("rows", "refined", "exact", "ties"), sums, strict=True))

  rounding.make_solver = others.get(name) or _with_noise(name, rounding.make_solver)
  rounding.solve_rounded = noted
  return count


def _with_noise(name: str, make: Any) -> Callable[[rounding.System], rounding.Solve]:
  size = float(name.removeprefix("noise-"))

  def make_noisy(system: rounding.System) -> rounding.Solve:
    solve, rng = make(system), np.random.default_rng(system.shift)

    def noisy(right: Matrix) -> Matrix:
      v: Matrix = solve(right)
      return v * (1 + size * rng.standard_normal(v.shape))

    return noisy

  return make_noisy


def _by_numpy(system: rounding.System) -> rounding.Solve:
  matrix = _to_whole(system)
  return lambda right: np.linalg.solve(matrix, right.T).T


def _in_float32(system: rounding.System) -> rounding.Solve:
  factor = scipy.linalg.cho_factor(_to_whole(system).astype(np.float32))

  def solve(right: Matrix) -> Matrix:
    size = np.abs(right).max(initial=1.0)  # so that float32 cannot overflow
    v = scipy.linalg.cho_solve(factor, (right / size).astype(np.float32).T).T
    return v.astype(np.float64) * size

  return solve


def _to_whole(system: rounding.System) -> Matrix:
  """M [d, d], from the upper part of A."""
  upper = np.triu(system.gram)
  whole: Matrix = upper + np.triu(upper, 1).T + system.shift * np.eye(len(upper))
  return whole
