"""How one adapter is trained: pure functions from its members to its weights.

A solver is a frozen dataclass. Its fields are its settings, part of every digest; its
functions are traced, so they work under jit, vmap and scan, in `functional` and in the
host API alike. It is a fold over the members in blocks,

    carry = init(cfg, dim, adapter)
    carry = update(cfg, carry, batch, adapter)      `passes` times over all blocks
    W_j, undecided = solve(cfg, carry)

or, for a start, one function `train` of all members at once. If `update` also subtracts
a member, exactly, the solver is `additive`: a state can keep the carry, and a request
need not read the other members.

Every solver must keep the contract: W_j depends, bit for bit, only on the settings, on
the adapter's id and on the set of its members.
"""

from typing import Any, ClassVar, NamedTuple

import jax
from jax.typing import ArrayLike
from numpy.typing import NDArray

from legonet_jax.core.config import Aggregate, FeatureMap, LegoConfig


class Batch(NamedTuple):
  """A block of members of one adapter.

  Attributes:
    codes: x [B, d] int8; zero in a row of padding.
    labels: y [B] int32; -1 in a row of padding.
    signs: [B] int8: 1 for a member, -1 for one that left, 0 for padding.
  """

  codes: jax.Array
  labels: jax.Array
  signs: jax.Array


class Members(NamedTuple):
  """D_aj, or the samples that joined and left it, as rows of a table.

  Attributes:
    codes: [N, d] int8, the table.
    labels: [N] int32, its labels.
    rows: [M] int32, the members first, in hash order; then anything. None if they are
      the first rows of the table, and all others are zero.
    signs: [M] int8, 1 or -1.
    size: int32, how many there are.
  """

  codes: Any
  labels: Any
  rows: Any
  signs: Any
  size: Any


class Adapter(NamedTuple):
  """What a solver may know of an adapter besides its members.

  Attributes:
    key: a PRNG key made of the seed and the adapter's stable id.
    options: settings of the solver that are traced, such as a learning rate.
  """

  key: jax.Array
  options: dict[str, jax.Array]


class Solution(NamedTuple):
  """The weights of one adapter, or of n of them.

  Attributes:
    weights: W_j [C, d]: int32 if the solver is portable, else float32.
    undecided: int32, how many entries certified rounding left open; -1 if the sums do
      not fit in 32 bits, or if weights are not finite.
    statistics: the carry of an additive solver, or None.
  """

  weights: Any
  undecided: Any
  statistics: Any


class LargeArray(NamedTuple):
  """A large array that a fit allocates: its name, shape and bytes per element."""

  name: str
  shape: tuple[int, ...]
  itemsize: int


class Solver:
  """Trains one adapter; inherit from it, as a frozen dataclass.

  A field with `metadata={"free": value}` cannot change the weights and may differ
  between a state and a request; `value` replaces it in the digest.

  Attributes:
    feature_map: the map that `LegoConfig.feature_map="auto"` selects.
    aggregate: the mean that `LegoConfig.aggregate="auto"` selects.
    portable: whether weights are integers that mathematics defines, the same on every
      machine. Otherwise a state equals its refit on one environment.
    additive: whether `update` subtracts a member with the sign -1, exactly, and gives
      the same carry for blocks of any size.
    takes_options: whether it reads `Adapter.options`.
    lanes: adapters trained side by side on an accelerator.
    keep: whether a state keeps the carry of an additive solver.
  """

  feature_map: ClassVar[FeatureMap] = "l2"
  aggregate: ClassVar[Aggregate] = "probs"
  portable: ClassVar[bool] = False
  additive: ClassVar[bool] = False
  takes_options: ClassVar[bool] = True
  lanes = 16
  keep = True

  @property
  def block(self) -> int:
    """Members in one call of `update`; 0 if there is `train` instead."""
    return 0

  @property
  def passes(self) -> int:
    """How often `update` sees each member."""
    return 1

  def train(
    self,
    cfg: LegoConfig,
    codes: jax.Array,
    labels: jax.Array,
    mask: jax.Array,
    adapter: Adapter,
  ) -> jax.Array:
    """W_j [C, d] of all members at once; a pure function.

    Args:
      cfg: the settings; those that cannot matter for one adapter are stand-ins.
      codes: x [M, d] int8, in hash order. M is at least |D_aj|: one of a few sizes.
      labels: y [M] int32.
      mask: [M] bool, False for padding, whose codes are 0 and whose labels are -1.
      adapter: its PRNG key, and options that are traced.
    """
    raise NotImplementedError(
      f"{type(self).__name__} has no function train; see docs/extending.md"
    )

  def init(self, cfg: LegoConfig, dim: int, adapter: Adapter | None) -> Any:
    """The carry before the first member; of no adapter in particular if `additive`."""
    raise NotImplementedError(
      f"{type(self).__name__} has a block, but no function init; see docs/extending.md"
    )

  def update(self, cfg: LegoConfig, carry: Any, batch: Batch, adapter: Adapter) -> Any:
    """The carry after a block of members."""
    raise NotImplementedError(
      f"{type(self).__name__} has a block, but no function update; see"
      " docs/extending.md"
    )

  def fits(self, carry: Any) -> ArrayLike:
    """Whether the carry is still right; asked after every block."""
    del carry
    return True

  def solve(self, cfg: LegoConfig, carry: Any) -> tuple[jax.Array, ArrayLike]:
    """W_j [C, d], and how many of its entries are undecided."""
    raise NotImplementedError(
      f"{type(self).__name__} has a block, but no function solve; see docs/extending.md"
    )

  def finish(self, cfg: LegoConfig, carry: Any, members: int) -> NDArray[Any]:
    """W_j [C, d], decided on the host, where `solve` left entries open."""
    raise NotImplementedError(f"{type(self).__name__} has no function finish")

  def logit_unit(self, dim: int) -> float:
    """What one unit of an integer sum W_j · codes is as a logit, if `portable`."""
    del dim
    return 1.0

  def largest_arrays(self, cfg: LegoConfig, dim: int) -> list[LargeArray]:
    """The arrays that training allocates, so that too large a fit is refused early."""
    del cfg, dim
    return []
