"""What has to be trained, and what a solver is.

`rebuild` finds out which adapters changed and how; a solver turns that into weights.
`Ridge` and `Sgd` are solvers; docs/extending.md has one of your own.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from legonet_jax.core.config import Aggregate, FeatureMap, LegoConfig
from legonet_jax.core.ids import Ids
from legonet_jax.core.membership import Changes, Members
from legonet_jax.core.samples import Samples
from legonet_jax.runtime.callbacks import Progress

FindMembers = Callable[[NDArray[np.intp]], tuple[Members, NDArray[np.intp]]]


class Task(NamedTuple):
  """Adapters to train.

  Attributes:
    samples: the table that has all members.
    adapters: [m] int, which adapters, ascending; each has at least one member.
    ids: [m] int64, their stable ids.
    sizes: [m] int, |D_aj|.
    members: gives D_aj of some adapters, in hash order, and the rows of the table. It
      looks at all routes, so a solver whose time should not grow with N avoids it.
    changes: what is different from the adapters as `notes` knew them.
    notes: [m] what the solver returned for each adapter before; None if it is new.
  """

  samples: Samples
  adapters: NDArray[np.intp]
  ids: Ids
  sizes: NDArray[np.intp]
  members: FindMembers
  changes: Changes
  notes: list[Any]


class LargeArray(NamedTuple):
  """An array that a fit takes memory for: what it is, its shape, bytes per element."""

  name: str
  shape: tuple[int, ...]
  itemsize: int


class Solver(Protocol):
  """How adapters are trained. A solver is one object that says all about itself.

  It is a frozen dataclass that inherits from this class and has at least `train`. Its
  fields are its settings, part of every digest. A field with `metadata={"free": value}`
  cannot change the weights and may differ between a state and a request; `value` stands
  for it in the digest.

  The contract is the solver's to keep: the weights of an adapter are a function of the
  settings, of its id and of the set of its members, bit for bit.

  Attributes:
    feature_map: what `LegoConfig.feature_map="auto"` becomes.
    aggregate: what `LegoConfig.aggregate="auto"` becomes.
  """

  feature_map: ClassVar[FeatureMap] = "l2"
  aggregate: ClassVar[Aggregate] = "probs"

  def train(
    self,
    cfg: LegoConfig,
    task: Task,
    weights: jax.Array,
    progress: Progress | None = None,
  ) -> tuple[jax.Array, list[Any]]:
    """Trains the adapters of `task` and leaves the others alone.

    Args:
      cfg: the settings; `cfg.solver` is this object.
      task: what to train.
      weights: W [n, C, d] of all adapters; consumed.
      progress: called with (samples passed, samples in all).

    Returns:
      W [n, C, d], and a note [m] for each adapter that was trained: whatever arrays the
      solver can use in the next request, or None. Notes hold nothing that the members
      do not determine; they are neither in the digest nor in checkpoints.
    """
    raise NotImplementedError

  def compile(self, cfg: LegoConfig, dim: int) -> None:
    """Compiles everything now, so that no later request compiles."""
    del cfg, dim

  def largest_arrays(self, cfg: LegoConfig, dim: int) -> list[LargeArray]:
    """What `train` takes memory for, so that too much is refused before it begins."""
    del cfg, dim
    return []
