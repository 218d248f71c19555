r"""θ_j = argmin Σ_{D_aj} ||y - W x||² + s_j ||W||²: the closed form, in integers.

    W_j = round(2^g B_j (A_j + s_j I)^-1),    s_j = max(1, round(λ tr(A_j)/d))

A_j and B_j are exact sums, and W_j is *the* correctly rounded solution (`rounding`), so
the bits of an adapter depend on its members and settings alone: not on the machine, on
JAX, on other adapters, or on the requests that led there.
"""

import dataclasses
from fractions import Fraction
import queue
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax.core import weights as weights_lib
from legonet_jax.core.config import Aggregate, FeatureMap, LegoConfig
from legonet_jax.core.plain import make_plain, need
from legonet_jax.core.solver import Batch
from legonet_jax.core.task import LargeArray, Solver, Task
from legonet_jax.core.weights import Weights
from legonet_jax.runtime import parallel
from legonet_jax.runtime.callbacks import Progress
from legonet_jax.solvers import certified, exact_sums, rounding
from legonet_jax.solvers.certified import Arithmetic
from legonet_jax.solvers.exact_sums import Sums


@dataclasses.dataclass(frozen=True)
class Ridge(Solver):
  """The closed form: W_j = B_j (A_j + λ tr(A_j)/d I)^-1, A_j = Σ x xᵀ, B_j = Σ y xᵀ.

  A_j and B_j are sums of integers, exact in any order. To forget a sample, subtract it
  and solve again, without a pass over the other members. Weights are integers on a
  fixed grid, the same on every machine (docs/portable.md).

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
  portable: ClassVar[bool] = True
  additive: ClassVar[bool] = True
  arithmetic: ClassVar[Arithmetic] = "auto"  # of certified rounding, see `certified`

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

  def statistics(self, cfg: LegoConfig, dim: int) -> Sums:
    """A_j and B_j of no member."""
    return exact_sums.zeros(cfg, dim)

  def absorb(self, cfg: LegoConfig, sums: Sums, batch: Batch) -> Sums:
    """A_j + Σ ± x xᵀ and B_j + Σ ± y xᵀ."""
    del cfg
    return exact_sums.add_block(sums, *batch)

  def fits(self, sums: Sums) -> jax.Array:
    """Whether the sums fit in 32 bits."""
    return exact_sums.fits(sums)

  def solve(self, cfg: LegoConfig, sums: Sums) -> tuple[jax.Array, jax.Array]:
    """W_j [C, d] int32, and how many of its entries are undecided."""
    del cfg
    weights, undecided = certified.solve_rounded(
      self.exact_penalty, exact_sums.unpack(sums), sums.cross, self.arithmetic
    )
    return weights, jnp.sum(undecided, dtype=jnp.int32)

  def train_on_host(
    self,
    cfg: LegoConfig,
    task: Task,
    weights: Any,
    progress: Progress | None = None,
  ) -> tuple[Weights, list[Any]]:
    """Brings the statistics of each adapter up to date and solves it."""
    spans, dim = _find_members(task), task.samples.codes.shape[1]
    desks: queue.SimpleQueue[NDArray[np.float64]] = queue.SimpleQueue()
    for _ in range(parallel.count()):
      desks.put(np.empty((2, dim, dim)))

    def solve_one(i: int) -> tuple[Sums, NDArray[np.int32]]:
      adapter, size = int(task.adapters[i]), int(task.sizes[i])
      if adapter in spans:
        start, rows = exact_sums.zeros(cfg, dim), spans[adapter]
        signs = np.ones(len(rows), np.int8)
      else:
        start, (rows, signs) = task.notes[i], task.changes.of(adapter)
      sums = exact_sums.sum_rows(task.samples, start, rows, signs, size)
      desk = desks.get()
      try:
        return sums, self.solve_on_host(sums, desk)
      finally:
        desks.put(desk)

    total, done = int(task.sizes.sum()), 0
    notes: list[Any] = []
    new: dict[int, NDArray[np.int32]] = {}
    with parallel.one_blas_thread():
      solutions = parallel.each(solve_one, range(len(task.adapters)))
      for i, (sums, w) in enumerate(solutions):
        new[int(task.adapters[i])] = w
        notes.append(sums if self.keep else None)
        done += int(task.sizes[i])
        if progress is not None:
          progress(done, total)
    return weights_lib.replace(weights, new), notes

  def solve_on_host(
    self, sums: Sums, desk: NDArray[np.float64] | None = None
  ) -> NDArray[np.int32]:
    """W_j [C, d] int32 from the statistics of one adapter.

    Args:
      sums: the statistics.
      desk: memory [2, d, d] to work in; its contents do not matter.
    """
    dim = sums.cross.shape[1]
    space, scratch = np.empty((2, dim, dim)) if desk is None else desk
    gram = exact_sums.to_matrix(sums.gram, dim, space)
    penalty = self.exact_penalty
    shift = rounding.choose_shift(penalty, int(gram.diagonal().sum()), dim)
    grid = rounding.choose_grid(penalty, dim)
    cross = np.asarray(sums.cross)
    system = rounding.System(gram, shift, cross, grid, scratch)
    return rounding.solve_rounded(system).weights

  @property
  def exact_penalty(self) -> Fraction:
    """λ, the decimal number that `penalty` is written as: 1/100 for 0.01."""
    return Fraction(repr(self.penalty))

  def logit_unit(self, dim: int) -> float:
    """What one unit of the integer sum W_j · codes is as a logit."""
    return self.scale / 2.0 ** rounding.choose_grid(self.exact_penalty, dim)

  def compile(self, cfg: LegoConfig, dim: int) -> None:
    """Compiles everything now, so that the workers do not all compile it at once."""
    exact_sums.compile_all(cfg, dim)

  def largest_arrays(self, cfg: LegoConfig, dim: int) -> list[LargeArray]:
    """The sums of one adapter."""
    return [LargeArray("sums [width, width] of one adapter", (dim, dim), 8)]


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
