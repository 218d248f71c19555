r"""θ_j = argmin Σ_{D_aj} ||y - W x||² + s_j ||W||²: the closed form, in integers.

    W_j = round(2^g B_j (A_j + s_j I)^-1),    s_j = max(1, round(λ tr(A_j)/d))

A_j and B_j are exact sums, and W_j is *the* correctly rounded solution (`rounding`), so
the bits of an adapter depend on its members and settings alone: not on the machine, on
JAX, on other adapters, or on the requests that led there.
"""

import dataclasses
from fractions import Fraction
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax.core.config import Aggregate, FeatureMap, LegoConfig
from legonet_jax.core.plain import make_plain, need
from legonet_jax.core.solver import Adapter, Batch, LargeArray, Solver
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
  takes_options: ClassVar[bool] = False
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

  @property
  def block(self) -> int:
    """Members that are summed at a time."""
    return 512

  def init(self, cfg: LegoConfig, dim: int, adapter: Adapter | None) -> Sums:
    """A_j and B_j of no member."""
    del adapter
    return exact_sums.zeros(cfg, dim)

  def update(
    self, cfg: LegoConfig, carry: Sums, batch: Batch, adapter: Adapter
  ) -> Sums:
    """A_j + Σ ± x xᵀ and B_j + Σ ± y xᵀ."""
    del cfg, adapter
    return exact_sums.add_block(carry, *batch)

  def fits(self, carry: Sums) -> jax.Array:
    """Whether the sums fit in 32 bits."""
    return exact_sums.fits(carry)

  def solve(self, cfg: LegoConfig, carry: Sums) -> tuple[jax.Array, jax.Array]:
    """W_j [C, d] int32, and how many of its entries are undecided."""
    del cfg
    weights, undecided = certified.solve_rounded(
      self.exact_penalty, exact_sums.unpack(carry), carry.cross, self.arithmetic
    )
    return weights, jnp.sum(undecided, dtype=jnp.int32)

  def finish(self, cfg: LegoConfig, carry: Sums, members: int) -> NDArray[np.int32]:
    """W_j [C, d] int32, whatever it takes."""
    del cfg
    cross = np.asarray(carry.cross)
    gram, dim = exact_sums.to_matrix(carry.gram, cross.shape[1]), cross.shape[1]
    penalty = self.exact_penalty
    shift = rounding.choose_shift(penalty, int(gram.diagonal().sum()), dim)
    grid = rounding.choose_grid(penalty, dim)
    system = rounding.System(gram, shift, cross, grid, members)
    return rounding.solve_rounded(system).weights

  @property
  def exact_penalty(self) -> Fraction:
    """λ, the decimal number that `penalty` is written as: 1/100 for 0.01."""
    return Fraction(repr(self.penalty))

  def logit_unit(self, dim: int) -> float:
    """What one unit of the integer sum W_j · codes is as a logit."""
    return self.scale / 2.0 ** rounding.choose_grid(self.exact_penalty, dim)

  def largest_arrays(self, cfg: LegoConfig, dim: int) -> list[LargeArray]:
    """The sums of one adapter."""
    return [LargeArray("sums [width, width] of one adapter", (dim, dim), 8)]
