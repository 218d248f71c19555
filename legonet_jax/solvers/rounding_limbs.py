r"""W_j = floor(2^g B_j (A_j + s_j I)^-1 + 1/2) inside jit, without float64.

The certified rounding of `rounding`, for devices that have only float32 and int32, and
for vmap over adapters. What decides is exact: the estimate V and its residual r are
integers in units of 2^-40, held in limbs (`limbs`). What is inexact only proposes: a
float32 Cholesky factor of M = A + s I. One round is

    D = rint(2^(40-t) r M^-1)     float32; 23 bits, t chosen for each row
    V <- V + 2^(t-40) D           exact
    r <- r - 2^(t-40) D M         exact: matmuls of digits

and V + r M^-1 = 2^g B M^-1 holds always, from V = 0, r = 2^g B on. No eigenvalue of M
is below s, so no entry of V is off by more than β = ||r|| / s. Let V + 1/2 = h + φ with
an integer h and 0 <= φ < 1. If β < φ and β <= 1 - φ, the answer is h. Here φ is cut to
24 bits, so that it and its distance from both ends are exact in float32, and

    u <= 2^24 φ < u + 1,   min(u, 2^24 - 1 - u) > (1 + 1/32) 2^24 β̂    =>   h is certain

where β̂ is β in float32. Its relative error is below 1/64: 2^-17 for each of r and s
(`limbs`), d 2^-24 <= 2^-12 for the sum of d squares, and a few units in the last place
for divisions and roots, which are not correctly rounded on every device.

A round gains about 8 to 20 bits, as the condition of M permits. An entry that does not
become certain, such as an exact tie, is flagged, and `finish` decides it on the host.
"""

from fractions import Fraction
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from legonet_jax.solvers import limbs, rounding

MAX_DIM = 4096
_UNIT = 40  # V and r are in units of 2^-40, whole limbs
_TOP = _UNIT + 8  # the largest t: D counts 2^8 then, and V reaches 2^31
_STEP = 23  # bits of D
_LARGEST = 2**31  # entries of A and B are below it
_ROUNDS = 12
_MOST = 20  # limbs of r: it stays below 2^120, where float32 does not overflow
_SLACK = 1 + 1 / 32


class _Progress(NamedTuple):
  """The estimate after some rounds.

  Attributes:
    rounds: how many.
    rest: r [n, C, d] in limbs.
    found: V [n, C, d] in limbs.
    weights: [C, d] int32.
    undecided: [C, d] bool.
    worst: β of the worst row with undecided entries.
    go: whether another round may help.
  """

  rounds: jax.Array
  rest: jax.Array
  found: jax.Array
  weights: jax.Array
  undecided: jax.Array
  worst: jax.Array
  go: jax.Array


def solve_rounded(
  penalty: Fraction, gram: jax.Array, cross: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """W_j, and which of its entries are not certain; for use under jit and vmap.

  Args:
    penalty: λ, static.
    gram: A_j [d, d] int32, a sum of x xᵀ, both halves; d is at most 4096.
    cross: B_j [C, d] int32.

  Returns:
    Weights [C, d] int32, and undecided [C, d] bool. An entry that is not undecided is
    the answer.
  """
  weights, undecided, _ = solve_counted(penalty, gram, cross)
  return weights, undecided


@functools.partial(jax.jit, static_argnames="penalty")
def solve_counted(
  penalty: Fraction, gram: jax.Array, cross: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """As `solve_rounded`, and the number of rounds, an int32."""
  dim = gram.shape[0]
  if dim > MAX_DIM:
    raise ValueError(f"dim is {dim}; exact sums hold up to {MAX_DIM}")
  top_shift = rounding.choose_shift(penalty, dim * _LARGEST, dim)
  grid = rounding.choose_grid(penalty, dim)
  largest = 2**_STEP * (dim * _LARGEST + top_shift)  # of D M
  size = limbs.count(largest)
  # r never outgrows its limbs, even if the factor were useless.
  rest_size = limbs.count((_LARGEST << (grid + _UNIT)) + (_ROUNDS * largest << _TOP))
  found_size = limbs.count(_ROUNDS << (_STEP + _TOP))
  if rest_size > _MOST:  # no penalty of `Ridge` is as large
    return jnp.zeros_like(cross), jnp.ones(cross.shape, bool), jnp.int32(0)

  shift, sure = choose_shift(penalty, gram)
  slope = limbs.to_float(shift)
  matrix = gram.astype(jnp.float32) + slope * jnp.eye(dim, dtype=jnp.float32)
  factor = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
  digits = limbs.to_digits(gram)

  def improve(now: _Progress) -> _Progress:
    step = _solve(factor, limbs.to_float(now.rest, -_UNIT))
    d, t = _quantize(step)
    product = limbs.multiply_digits(d, digits, size) + _scale(d, shift, size)
    product = limbs.resize(limbs.tidy(product), rest_size)
    rest = limbs.tidy(now.rest - limbs.shift_left(product, t, _TOP))
    step_limbs = limbs.resize(limbs.split(d, 3), found_size)
    found = limbs.tidy(now.found + limbs.shift_left(step_limbs, t, _TOP))
    beta = _norms(limbs.to_float(rest, -_UNIT)) / slope
    near, open_ = _examine(found, beta)
    weights = jnp.where(now.undecided, near, now.weights)
    undecided = now.undecided & open_
    worst = jnp.max(jnp.where(undecided, beta, 0))
    # At the end of the grid, or with a poor factor, β no longer shrinks.
    go = jnp.any(undecided) & (worst < now.worst / 2)
    return _Progress(now.rounds + 1, rest, found, weights, undecided, worst, go)

  target = limbs.resize(limbs.split(cross, 4), rest_size)
  bits = jnp.full((1, 1), grid + _UNIT, jnp.int32)
  start = _Progress(
    jnp.int32(0),
    limbs.tidy(limbs.shift_left(target, bits, grid + _UNIT)),
    jnp.zeros((found_size, *cross.shape), jnp.int32),
    jnp.zeros(cross.shape, jnp.int32),
    jnp.ones(cross.shape, bool),
    jnp.float32(jnp.inf),
    sure,
  )
  last = jax.lax.while_loop(lambda p: p.go & (p.rounds < _ROUNDS), improve, start)
  return last.weights, last.undecided, last.rounds


def choose_shift(penalty: Fraction, gram: jax.Array) -> tuple[jax.Array, jax.Array]:
  """s_j = max(1, floor(λ tr(A_j) / d + 1/2)) as a tidy number, and whether certain.

  With λ / d = p / q in lowest terms it is the floor of (2 p tr + q) / (2 q). It is not
  certain only if q is beyond 2^200.
  """
  dim = gram.shape[0]
  ratio = penalty / dim
  p, q = 2 * ratio.numerator, ratio.denominator
  bound = p * dim * _LARGEST + q
  n = limbs.count(bound)
  if limbs.count(1024 * q) > limbs.MOST:
    return jnp.ones(1, jnp.int32), jnp.bool(False)
  trace = limbs.sum_diagonal(gram, limbs.count(dim * _LARGEST))
  scaled = limbs.multiply(trace, limbs.constant(p, limbs.count(p)), n)
  numerator = limbs.tidy(scaled + limbs.constant(q, n))
  shift, sure = limbs.divide(numerator, 2 * q)
  shift = limbs.resize(shift, limbs.count(bound // (2 * q)))
  first = limbs.constant(1, shift.shape[0])
  return jnp.where(limbs.sign(shift) > 0, shift, first), sure


def _solve(factor: jax.Array, right: jax.Array) -> jax.Array:
  """V [C, d] with V L Lᵀ = R, about; 0 where float32 fails."""
  solve = functools.partial(
    jax.lax.linalg.triangular_solve, factor, left_side=False, lower=True
  )
  found = solve(solve(right, transpose_a=True))
  return jnp.where(jnp.isfinite(found), found, 0)


def _quantize(step: jax.Array) -> tuple[jax.Array, jax.Array]:
  """D [C, d] int32 and t [C, 1] with 2^(t-40) D near a step [C, d]; |D| <= 2^23."""
  peak = jnp.max(jnp.abs(step), axis=1, keepdims=True)
  exponent = (jax.lax.bitcast_convert_type(peak, jnp.int32) >> 23) - 126  # < 2^exponent
  t = limbs.clip(exponent + _UNIT - _STEP, 0, _TOP)
  scale = jax.lax.bitcast_convert_type((_UNIT - t + 127) << 23, jnp.float32)
  d = limbs.clip(jnp.round(step * scale), -(2**_STEP), 2**_STEP)
  return d.astype(jnp.int32), t


def _scale(d: jax.Array, shift: jax.Array, size: int) -> jax.Array:
  """s D [size, C, d]; limbs of at most 3 · 128 · 129."""
  digits = limbs.resize(limbs.split(d, 3), size)
  total = jnp.zeros_like(digits)
  for i in range(min(size, shift.shape[0])):
    total = total + limbs.raise_limbs(digits, i) * shift[i]
  return total


def _norms(rows: jax.Array) -> jax.Array:
  """||r|| [C, 1] of r [C, d], without overflow."""
  peak = jnp.max(jnp.abs(rows), axis=1, keepdims=True)
  unit = rows / jnp.where(peak > 0, peak, 1)
  return peak * jnp.sqrt(jnp.sum(unit * unit, axis=1, keepdims=True))


def _examine(found: jax.Array, beta: jax.Array) -> tuple[jax.Array, jax.Array]:
  """h [C, d] int32 = floor(V + 1/2), and where [C, d] β [C, 1] leaves it in doubt."""
  low = (found[0] + (found[1] << 8)) >> 16  # floor: V's lowest 16 bits are cut off
  fraction = low + found[2] + (found[3] << 8) + (found[4] << 16) + (1 << 23)
  near = found[5] + (found[6] << 8) + (found[7] << 16) + (found[8] << 24)
  near = near + (fraction >> 24)
  u = fraction & ((1 << 24) - 1)
  distance = jnp.minimum(u, (1 << 24) - 1 - u).astype(jnp.float32)
  certain = distance > _SLACK * 2.0**24 * beta
  # A weight is at most 2^30 + 1, so an estimate beyond 2^31 is far off.
  fits = (jnp.abs(found[8]) < 100) & jnp.all(found[9:] == 0, axis=0)
  return near, ~(certain & fits)
