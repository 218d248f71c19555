r"""θ_j = argmin Σ_{D_aj} ||y - W x||² + λ tr(A_j)/d ||W||²: the closed form, solved.

    W_j = B_j (A_j + s I)^-1,    s = λ tr(A_j)/d

by Cholesky, 64 rows at a time. LAPACK only ever factors a 64 x 64 block: on the whole
matrix its bits depend on how many threads it finds, and its triangular solver starts
threads that wait for each other when the machine is busy. The rest is products of fixed
shapes. One executable solves every adapter, alone, in fit and in requests, so no
adapter's bits depend on another's.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors, features, statistics, workers
from legonet_jax.config import LegoConfig, for_one_adapter
from legonet_jax.solvers import Ridge
from legonet_jax.statistics import Sums
from legonet_jax.task import Progress, Task, train

_STEP = 64


def solve(cfg: LegoConfig, sums: Sums) -> jax.Array:
  """W_j [C, d] float32 from the statistics of one adapter."""
  dim = sums.cross.shape[1]
  solver: Ridge = cfg.solver
  diagonal = statistics.diagonal(sums.gram, dim).astype(jnp.float32)
  # At least one step of the codes, for an adapter whose members are all zeros.
  shift = jnp.maximum(solver.penalty * jnp.sum(diagonal) / dim, 1.0)
  right, inverse = _factor(sums.gram.astype(jnp.float32), shift, dim)
  pad = statistics.padded(dim) - dim
  b = jnp.pad(sums.cross.astype(jnp.float32), ((0, 0), (0, pad)))
  w = _substitute(right, inverse, b)[:, :dim]
  return solver.scale / features.unit(cfg, dim) * w


def _factor(
  gram: jax.Array, shift: jax.Array, dim: int
) -> tuple[list[jax.Array], list[jax.Array]]:
  """A + s I = Uᵀ U, 64 rows at a time.

  Returns:
    For each step, U's rows right of the diagonal block [64, D - r - 64], and L^-1
    [64, 64], where U has Lᵀ in the diagonal block.
  """
  size = statistics.padded(dim)
  eye = jnp.eye(_STEP, dtype=jnp.float32)
  above = jnp.zeros((0, size), jnp.float32)  # U's rows so far, from this column on
  right, inverse = [], []
  for r in range(0, size, _STEP):
    band, inside = divmod(r, statistics.BAND)
    at = statistics.bands(dim)[band][1]
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
  """a @ b for [m, s, s]; a tiny product costs less written out."""
  if a.shape[1] >= 8:
    return a @ b
  return jnp.sum(a[:, :, :, None] * b[:, None, :, :], axis=2)


def _substitute(
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


_solve = jax.jit(solve, static_argnums=0)


def compile_all(cfg: LegoConfig, dim: int) -> None:
  """Compiles once what the workers would otherwise all compile at the same time."""
  statistics.compile_all(cfg, dim)
  _solve(for_one_adapter(cfg), statistics.zeros(cfg, dim))


@functools.partial(jax.jit, donate_argnums=0)
def _place(weights: jax.Array, adapter: jax.Array, w: jax.Array) -> jax.Array:
  """W [n, C, d] with W_j [C, d] in its place."""
  placed: jax.Array = jax.lax.dynamic_update_index_in_dim(weights, w, adapter, 0)
  return placed


@train.register
def _(
  solver: Ridge,
  cfg: LegoConfig,
  task: Task,
  weights: jax.Array,
  progress: Progress | None = None,
) -> tuple[jax.Array, list[Any]]:
  """Brings the statistics of each adapter up to date and solves it."""
  spans, shared = _members(task), for_one_adapter(cfg)

  def solved(i: int) -> tuple[Sums, jax.Array, bool]:
    adapter, size = int(task.adapters[i]), int(task.sizes[i])
    if adapter in spans:
      start, rows = statistics.zeros(cfg, task.samples.codes.shape[1]), spans[adapter]
      signs = np.ones(len(rows), np.int8)
    else:
      start, (rows, signs) = task.notes[i], task.changes.of(adapter)
    sums = statistics.sum_rows(cfg, task.samples, start, rows, signs, size)
    w = _solve(shared, sums)
    return sums, w, bool(np.isfinite(w).all())

  total, done = int(task.sizes.sum()), 0
  notes: list[Any] = []
  for i, (sums, w, sound) in enumerate(workers.each(solved, range(len(task.adapters)))):
    if not sound:
      raise errors.ConfigError(
        "a ridge system is too ill-conditioned to solve; raise solver.penalty"
      )
    weights = _place(weights, np.int32(task.adapters[i]), w)
    notes.append(sums if solver.keep else None)
    done += int(task.sizes[i])
    if progress is not None:
      progress(done, total)
  return weights, notes


def _members(task: Task) -> dict[int, NDArray[np.intp]]:
  """Rows of the members of each adapter that is to be summed up from nothing."""

  def afresh(adapter: int, size: int, note: Any) -> bool:
    rows, _ = task.changes.of(adapter)
    return note is None or bool((rows < 0).any()) or len(rows) >= size

  each = zip(task.adapters.tolist(), task.sizes.tolist(), task.notes, strict=True)
  wanted = [adapter for adapter, size, note in each if afresh(adapter, size, note)]
  if not wanted:
    return {}
  members, rows = task.members(np.array(wanted))
  return dict(zip(wanted, np.split(rows, members.offsets[1:-1]), strict=True))
