r"""W_j = floor(2^g B_j (A_j + s_j I)^-1 + 1/2): *the* answer, whatever computes it.

Correct rounding as in correctly rounded maths libraries (Ziv, 1991). Any float solver
gives an estimate V of the real solution. Its residual r gives a bound of its error, for
no eigenvalue of M = A + s I is below s:

    r = 2^g B - V M        ||V - 2^g B M^-1|| = ||r M^-1|| <= ||r|| / s

If no entry of V lies as near to a rounding boundary as that bound, rounding V gives the
answer. Otherwise V is refined (V += r M^-1) and looked at again, first in float64, then
in integers of growing length. An entry on a boundary, an exact tie, is found as well:
entries are fractions with denominator det M, so two numbers nearer than 1 / (2 det M)
are equal. docs/portable.md has the proofs.

So no bit of W_j depends on the BLAS, its threads, the processor, or on V.
"""

from collections.abc import Callable
from fractions import Fraction
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
import scipy.linalg

from legonet_jax import errors

Matrix = NDArray[np.float64]
Solve = Callable[[Matrix], Matrix]

_EXACT = 2.0**52  # integers below it, and sums of them, are exact in float64
_FLOAT_ROUNDS = 3
_UNSOLVED = "a ridge system is too ill-conditioned to solve; raise solver.penalty"
_MOST_IDLE = 4  # rounds without progress
_STEP = 32  # bits that one round of refinement in integers adds


class System(NamedTuple):
  """V M = 2^g B, for one adapter.

  Attributes:
    gram: A [d, d] float64, integers; only the part on and right of the diagonal is
      read.
    shift: s, at least 1.
    cross: B [C, d] int32.
    grid: g.
    members: m, of how many vectors A is the sum of squares; 0 if that is not known.
  """

  gram: Matrix
  shift: int
  cross: NDArray[np.int32]
  grid: int
  members: int = 0


class Rounded(NamedTuple):
  """The answer, and how it was found.

  Attributes:
    weights: W [C, d] int32.
    refined: rows of V that needed another round in float64.
    exact: rows of V that needed integers.
    ties: entries that lay on a rounding boundary.
  """

  weights: NDArray[np.int32]
  refined: int
  exact: int
  ties: int


def choose_grid(penalty: Fraction, dim: int) -> int:
  """g: the finest grid on which every weight fits in int32, whatever the members are.

  |w| <= sqrt(d / (2 λ)) for the weights of any members (docs/portable.md), so g is the
  largest integer with 4^g d <= 2 λ 4^30.
  """
  bound = 2 * penalty * 4**30 / dim
  g = 0
  while 4 ** (g + 1) <= bound:
    g += 1
  return g


def choose_shift(penalty: Fraction, trace: int, dim: int) -> int:
  """s = max(1, floor(λ tr(A) / d + 1/2))."""
  return max(1, math.floor(penalty * trace / dim + Fraction(1, 2)))


def make_solver(system: System) -> Solve:
  """A float64 Cholesky factor of M, and a function that solves V M = R with it."""
  matrix = system.gram.copy()
  matrix[np.diag_indices_from(matrix)] += float(system.shift)
  # The transpose of a row-major array is what LAPACK reads without a copy.
  factor, info = scipy.linalg.lapack.dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
  if info:
    raise errors.ConfigError(_UNSOLVED)

  def solve(right: Matrix) -> Matrix:
    found: Matrix = scipy.linalg.lapack.dpotrs(factor, right.T, lower=1)[0].T
    return found

  return solve


def solve_rounded(system: System, solve: Solve | None = None) -> Rounded:
  """W [C, d] of a system.

  Args:
    system: the system.
    solve: any function that solves V M = R approximately, for R [rows, d] float64.
  """
  solve = make_solver(system) if solve is None else _guard(solve)
  target = system.cross.astype(np.float64) * 2.0**system.grid
  v = solve(target)
  weights = np.empty(system.cross.shape, np.int32)
  open_rows = np.arange(len(target))
  refined = 0
  for round_ in range(_FLOAT_ROUNDS):
    near, r, decided = _examine(system, target[open_rows], v[open_rows])
    done = decided.all(axis=1)
    weights[open_rows[done]] = near[done]
    open_rows, r = open_rows[~done], r[~done]
    if not len(open_rows):
      break
    if round_ < _FLOAT_ROUNDS - 1:
      refined += len(open_rows)
      v[open_rows] += solve(r)
  ties = 0
  for c in open_rows.tolist():
    weights[c], on_boundary = _solve_row(system, solve, c, v[c])
    ties += on_boundary
  return Rounded(weights, refined, len(open_rows), ties)


def _guard(solve: Solve) -> Solve:
  """A solver of somebody else's: it gets a copy, and must return finite numbers."""

  def guarded(right: Matrix) -> Matrix:
    found = np.array(solve(right.copy()), np.float64)
    if not np.isfinite(found).all():
      raise errors.ConfigError(_UNSOLVED)
    return found

  return guarded


def _examine(
  system: System, target: Matrix, v: Matrix
) -> tuple[Matrix, Matrix, NDArray[np.bool_]]:
  """The nearest integers H of V, the residual r, and which entries H are certain.

  r = (2^g B - H M) - F M with F = V - H. The first part is exact, because all its
  numbers are integers below 2^52. The second is off by at most γ tr(M) ||F||.
  """
  dim, shift = system.gram.shape[0], float(system.shift)
  near = np.rint(v)
  rest = v - near
  diagonal = system.gram.diagonal()
  size = float(np.abs(near).max(initial=1.0))
  exact = (dim * diagonal.max() + shift) * size < _EXACT
  if not (exact and np.abs(target).max(initial=0.0) < _EXACT):
    return near, target - _multiply(system, v), np.zeros(v.shape, bool)
  # One product, so that A is read from memory once.
  products = _multiply(system, np.concatenate([near, rest]))
  r = target - products[: len(near)] - products[len(near) :]
  trace = diagonal.sum() + dim * shift
  gamma = 1.01 * (dim + 8) * 2.0**-53
  bound = _norms(r) + gamma * (trace * _norms(rest) + _norms(r))
  bound *= (
    1 + 2.0**-30
  ) / shift  # pays for the rounding errors of this line and of norms
  decided = 0.5 - np.abs(rest) > bound[:, None]
  return near, r, decided


def _multiply(system: System, v: Matrix) -> Matrix:
  """V M [rows, d]."""
  product: Matrix = scipy.linalg.blas.dsymm(1.0, system.gram.T, v.T, lower=1).T
  product += float(system.shift) * v
  return product


def _norms(rows: Matrix) -> NDArray[np.float64]:
  norms: NDArray[np.float64] = np.sqrt(np.einsum("cd,cd->c", rows, rows))
  return norms


def _solve_row(
  system: System, solve: Solve, c: int, v: NDArray[np.float64]
) -> tuple[NDArray[np.int32], int]:
  """One row [d] of W in integers of growing length, and its number of exact ties.

  `fine` is V in units of 2^-t, and `r` is 2^t times its residual; both exact.
  """
  enough = _separations(system)
  t = _STEP
  fine = _to_integers(v, t)
  target = [int(b) << (system.grid + t) for b in system.cross[c].tolist()]
  r = np.array(target, object) - _multiply_exactly(system, fine)
  last, idle = 0, 0
  while True:
    # ||V - answer|| in units of 2^-t, rounded up; exact if nothing is left
    square = int((r * r).sum())
    error = -(-(math.isqrt(square) + 1) // system.shift) if square else 0
    half = 1 << (t - 1)
    low, high = (fine + half - error) >> t, (fine + half + error) >> t
    undecided = low != high
    # At a distance below 2^-enough from a boundary, the entry is on it and goes up.
    if not undecided.any() or error << int(enough[undecided].max()) < 1 << t:
      if not error:
        undecided = (fine + half) & ((1 << t) - 1) == 0
      return high.astype(np.int64).astype(np.int32), int(undecided.sum())
    # A round should halve the error at least, in units that are 2^32 times smaller.
    idle = idle + 1 if last and error >= last << (_STEP - 1) else 0
    if idle == _MOST_IDLE:
      raise errors.ConfigError(_UNSOLVED)
    last = error
    scale = max(0, max(int(abs(x)).bit_length() for x in r) - 1000)
    small = np.array([float(x >> scale) for x in r])
    step = solve(small[None])[0]
    change = _to_integers(step, _STEP + scale)
    fine = (fine << _STEP) + change
    r = (r << _STEP) - _multiply_exactly(system, change)
    t += _STEP


def _separations(system: System) -> NDArray[np.int64]:
  """[d]: an entry nearer to a half-integer than 2^-this is equal to it.

  Entries of a block of M that nothing couples to the others are fractions with the
  denominator det <= Π M_ii of that block (Hadamard). As they are 2^g Y^T (X X^T + s
  I)^-1 X, they also have the denominator det(X X^T + s I) <= (tr A / m + s)^m (the mean
  of eigenvalues).
  """
  from scipy.sparse import csgraph, csr_array  # a tenth of a second, rarely needed

  diagonal = [int(a) for a in system.gram.diagonal()]
  bits = [(a + system.shift).bit_length() for a in diagonal]
  upper = csr_array(np.triu(system.gram))
  _, block = csgraph.connected_components(upper, directed=False)
  most = np.bincount(block, bits)[block].astype(np.int64)
  if m := system.members:
    most = np.minimum(most, m * (sum(diagonal) // m + system.shift + 1).bit_length())
  found: NDArray[np.int64] = most + 2
  return found


def _to_integers(values: NDArray[np.float64], shift: int) -> NDArray[Any]:
  """⌊2^shift · values⌋ [d], as Python integers."""
  mantissa, exponent = np.frexp(values)
  whole = np.rint(np.ldexp(mantissa, 53)).astype(np.int64).tolist()
  places = (exponent.astype(np.int64) - 53 + shift).tolist()
  pairs = zip(whole, places, strict=True)
  return np.array([m << e if e >= 0 else m >> -e for m, e in pairs], object)


def _multiply_exactly(system: System, v: NDArray[Any]) -> NDArray[Any]:
  """V M [d] of one row of Python integers: float64 products of short pieces of V."""
  largest = max(1, int(system.gram.diagonal().max()))
  bits = 51 - (len(v) * largest).bit_length()  # sums of products stay below 2^52
  longest = max(int(abs(x)).bit_length() for x in v)
  pieces, rest = [], v
  for _ in range(-(-longest // bits)):
    low = rest & ((1 << bits) - 1)
    pieces.append(low)
    rest = (rest - low) >> bits
  pieces.append(rest)  # 0, or -1 for a negative number
  stacked = np.stack(pieces).astype(np.float64)
  found = scipy.linalg.blas.dsymm(1.0, system.gram.T, stacked.T, lower=1).T
  product = system.shift * v
  for i, part in enumerate(found.astype(np.int64)):
    product = product + (part.astype(object) << (bits * i))
  return product
