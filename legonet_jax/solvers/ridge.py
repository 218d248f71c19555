r"""θ_j = argmin Σ_{D_aj} ||y - W x||² + λ tr(A_j)/d ||W||²: the closed form.

    W_j = B_j (A_j + s I)^-1,    s = λ tr(A_j)/d

One executable solves one adapter at a time, in fits and in requests, so no adapter's
bits depend on another's.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import features
from legonet_jax.core.config import Aggregate, FeatureMap, LegoConfig, for_one_adapter
from legonet_jax.core.plain import make_plain, need
from legonet_jax.core.task import LargeArray, Solver, Task
from legonet_jax.runtime import parallel
from legonet_jax.runtime.callbacks import Progress
from legonet_jax.solvers import cholesky, exact_sums
from legonet_jax.solvers.exact_sums import Sums


@dataclasses.dataclass(frozen=True)
class Ridge(Solver):
  """The closed form: W_j = B_j (A_j + λ tr(A_j)/d I)^-1, A_j = Σ x xᵀ, B_j = Σ y xᵀ.

  A_j and B_j are sums of integers, exact in any order. To forget a sample, subtract it
  and solve again, without a pass over the other members.

  Attributes:
    penalty: λ, relative to the mean eigenvalue of A_j, so that it means the same for
      small and large adapters.
    scale: logits are `scale` times the regressed values, which lie around 0 and 1. It
      changes how confident the probabilities are, but rarely which class wins.
    keep: whether the state keeps A_j and B_j between requests: 0.6 MB per adapter at
      d = 512. If not, they are summed up again from the members, to the same bits. You
      may change it between requests.
  """

  feature_map: ClassVar[FeatureMap] = "sqrt"
  aggregate: ClassVar[Aggregate] = "logits"

  penalty: float = 0.01
  scale: float = 10.0
  keep: bool = dataclasses.field(default=True, metadata={"free": True})

  def __post_init__(self) -> None:
    make_plain(self)
    # A larger penalty only changes the size of W_j, as `scale` does.
    need(
      1e-6 <= self.penalty <= 1e6,
      f"solver.penalty is {self.penalty}; it must be between 1e-6 and 1e6",
    )
    need(
      1e-6 <= self.scale <= 1e6,
      f"solver.scale is {self.scale}; it must be between 1e-6 and 1e6",
    )

  def train(
    self,
    cfg: LegoConfig,
    task: Task,
    weights: jax.Array,
    progress: Progress | None = None,
  ) -> tuple[jax.Array, list[Any]]:
    """Brings the statistics of each adapter up to date and solves it."""
    spans, shared = _find_members(task), for_one_adapter(cfg)

    def solve_one(i: int) -> tuple[Sums, jax.Array, bool]:
      adapter, size = int(task.adapters[i]), int(task.sizes[i])
      if adapter in spans:
        start, rows = exact_sums.zeros(cfg, task.samples.codes.shape[1]), spans[adapter]
        signs = np.ones(len(rows), np.int8)
      else:
        start, (rows, signs) = task.notes[i], task.changes.of(adapter)
      sums = exact_sums.sum_rows(cfg, task.samples, start, rows, signs, size)
      w = _solve(shared, sums)
      return sums, w, bool(np.isfinite(w).all())

    total, done = int(task.sizes.sum()), 0
    notes: list[Any] = []
    solutions = parallel.each(solve_one, range(len(task.adapters)))
    for i, (sums, w, sound) in enumerate(solutions):
      if not sound:
        raise errors.ConfigError(
          "a ridge system is too ill-conditioned to solve; raise solver.penalty"
        )
      weights = _place(weights, np.int32(task.adapters[i]), w)
      notes.append(sums if self.keep else None)
      done += int(task.sizes[i])
      if progress is not None:
        progress(done, total)
    return weights, notes

  def compile(self, cfg: LegoConfig, dim: int) -> None:
    """Compiles everything now, so that the workers do not all compile it at once."""
    exact_sums.compile_all(cfg, dim)
    _solve(for_one_adapter(cfg), exact_sums.zeros(cfg, dim))

  def largest_arrays(self, cfg: LegoConfig, dim: int) -> list[LargeArray]:
    """The sums of one adapter."""
    sides = (exact_sums.padded(dim), exact_sums.padded(dim))
    return [LargeArray("sums [width, width] of one adapter", sides, 4)]


def solve(cfg: LegoConfig, sums: Sums) -> jax.Array:
  """W_j [C, d] float32 from the statistics of one adapter."""
  dim = sums.cross.shape[1]
  diagonal = exact_sums.diagonal(sums.gram, dim).astype(jnp.float32)
  # At least 1, so that an adapter whose members are all zeros can be solve_one.
  shift = jnp.maximum(cfg.solver.penalty * jnp.sum(diagonal) / dim, 1.0)
  right, inverse = cholesky.factor(sums.gram.astype(jnp.float32), shift, dim)
  pad = exact_sums.padded(dim) - dim
  b = jnp.pad(sums.cross.astype(jnp.float32), ((0, 0), (0, pad)))
  w = cholesky.substitute(right, inverse, b)[:, :dim]
  scaled: jax.Array = cfg.solver.scale / features.unit(cfg, dim) * w
  return scaled


_solve = jax.jit(solve, static_argnums=0)


@functools.partial(jax.jit, donate_argnums=0)
def _place(weights: jax.Array, adapter: jax.Array, w: jax.Array) -> jax.Array:
  """W [n, C, d] with W_j [C, d] in its place."""
  placed: jax.Array = jax.lax.dynamic_update_index_in_dim(weights, w, adapter, 0)
  return placed


def _find_members(task: Task) -> dict[int, NDArray[np.intp]]:
  """The members' rows of each adapter whose sums must start from zero."""

  def starts_from_zero(adapter: int, size: int, note: Any) -> bool:
    rows, _ = task.changes.of(adapter)
    return note is None or bool((rows < 0).any()) or len(rows) >= size

  each = zip(task.adapters.tolist(), task.sizes.tolist(), task.notes, strict=True)
  wanted = [
    adapter for adapter, size, note in each if starts_from_zero(adapter, size, note)
  ]
  if not wanted:
    return {}
  members, rows = task.members(np.array(wanted))
  return dict(zip(wanted, np.split(rows, members.offsets[1:-1]), strict=True))
