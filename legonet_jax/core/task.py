"""The interface of solvers: `Task` lists the adapters to train, a `Solver` trains them.

`rebuild` finds out which adapters changed and how; a solver turns that into weights.
`Ridge` and `Sgd` are solvers; docs/extending.md shows how to write your own.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from legonet_jax.core.config import Aggregate, FeatureMap, LegoConfig
from legonet_jax.core.ids import Ids
from legonet_jax.core.membership import Changes, Members
from legonet_jax.core.samples import Samples
from legonet_jax.core.solver import Adapter, Members as OneAdapter, train_by_size
from legonet_jax.runtime.callbacks import Progress

FindMembers = Callable[[NDArray[np.intp]], tuple[Members, NDArray[np.intp]]]


class Task(NamedTuple):
  """Adapters to train.

  Attributes:
    samples: the table that has all members.
    adapters: [m] int, which adapters, ascending; each has at least one member.
    ids: [m] int64, their stable ids.
    sizes: [m] int, |D_aj|.
    members: returns D_aj of given adapters, in hash order, and their rows in the table.
      It reads all routes, so a solver whose time should not grow with N avoids it.
    changes: the samples that joined or left the adapters since `notes` were made.
    notes: [m] the note that the solver last returned for each adapter; None for a new
      adapter.
  """

  samples: Samples
  adapters: NDArray[np.intp]
  ids: Ids
  sizes: NDArray[np.intp]
  members: FindMembers
  changes: Changes
  notes: list[Any]


class LargeArray(NamedTuple):
  """A large array that a fit allocates: its name, shape and bytes per element."""

  name: str
  shape: tuple[int, ...]
  itemsize: int


class Solver:
  """Trains adapters. A solver is one object that holds all its settings and functions.

  It is a frozen dataclass that inherits from this class and has at least `train`. Its
  fields are its settings, part of every digest. A field with `metadata={"free": value}`
  cannot change the weights and may differ between a state and a request; `value`
  replaces it in the digest.

  Every solver must keep the contract: the weights of an adapter depend, bit for bit,
  only on the settings, on its id and on the set of its members.

  Attributes:
    feature_map: the map that `LegoConfig.feature_map="auto"` selects.
    aggregate: the mean that `LegoConfig.aggregate="auto"` selects.
    portable: whether weights are integers that mathematics defines, and therefore the
      same on every machine. Then `train` takes and returns `Weights`, and the solver
      has a method `logit_unit(dim)`. Otherwise a state equals its refit on one
      environment (see `environment`).
    additive: whether it has statistics, `absorb`, `fits` and `solve` (see
      `core.solver`) instead of `train`.
  """

  feature_map: ClassVar[FeatureMap] = "l2"
  aggregate: ClassVar[Aggregate] = "probs"
  portable: ClassVar[bool] = False
  additive: ClassVar[bool] = False
  lanes = 16  # adapters side by side on an accelerator
  keep = True  # whether a state holds the statistics of an additive solver

  def train(
    self,
    cfg: LegoConfig,
    codes: jax.Array,
    labels: jax.Array,
    mask: jax.Array,
    adapter: Adapter,
  ) -> jax.Array:
    """W_j [C, d] of the members of one adapter; a pure function.

    Args:
      cfg: the settings; those that cannot matter for one adapter are stand-ins.
      codes: x [M, d] int8, in hash order; M is at least |D_aj|, and the same for all
        adapters of about that size.
      labels: y [M] int32.
      mask: [M] bool, False for padding, whose codes are 0 and whose labels are -1.
      adapter: its PRNG key, and options that are traced.
    """
    raise NotImplementedError(
      f"{type(self).__name__} has no method train; see docs/extending.md"
    )

  def train_members(
    self, cfg: LegoConfig, members: OneAdapter, adapter: Adapter
  ) -> jax.Array:
    """W_j [C, d] of members that are read in parts; by default, `train` of them all."""
    return train_by_size(cfg, members, adapter)

  def train_on_host(
    self,
    cfg: LegoConfig,
    task: Task,
    weights: Any,
    progress: Progress | None = None,
  ) -> tuple[Any, list[Any]]:
    """Trains the adapters of `task` and leaves the others alone.

    Args:
      cfg: the settings; `cfg.solver` is this object.
      task: the adapters to train.
      weights: W [n, C, d] of all adapters; consumed.
      progress: called with (samples passed, samples in all).

    Returns:
      W [n, C, d], and a note [m] for each trained adapter, which is any arrays that
      the solver can use in the next request, or None. Notes must depend on the members
      only; they are neither in the digest nor in checkpoints.
    """
    raise NotImplementedError(
      f"{type(self).__name__} has no method train_on_host; see docs/extending.md"
    )

  def logit_unit(self, dim: int) -> float:
    """What one unit of an integer sum W_j · codes is as a logit, if `portable`."""
    del dim
    return 1.0

  def compile(self, cfg: LegoConfig, dim: int) -> None:
    """Compiles everything now, so that no later request compiles."""
    del cfg, dim

  def largest_arrays(self, cfg: LegoConfig, dim: int) -> list[LargeArray]:
    """The arrays that `train` allocates, so that too large a fit is refused early."""
    del cfg, dim
    return []
