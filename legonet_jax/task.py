"""What has to be trained, and the one function that every solver provides.

`rebuild` finds out which adapters changed and how; a solver turns that into weights. To
add one, write a frozen dataclass for its settings and register its `train`:

    @train.register
    def _(solver: MySolver, cfg, task, weights, progress): ...

The contract is then the solver's to keep: the weights of an adapter are a function of
the settings, of its id and of the set of its members, bit for bit.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from legonet_jax.config import LegoConfig
from legonet_jax.ids import Ids
from legonet_jax.membership import Members
from legonet_jax.samples import Samples

Progress = Callable[[int, int], None]
FindMembers = Callable[[NDArray[np.intp]], tuple[Members, NDArray[np.intp]]]


class Changes(NamedTuple):
  """Who joined and who left adapters that there were before.

  Attributes:
    adapters: [c] int, which adapter, ascending.
    rows: [c] int, the sample's row in the table, or -1 if the table has it no more.
    signs: [c] int8, 1 for a sample that joined, -1 for one that left.
  """

  adapters: NDArray[np.intp]
  rows: NDArray[np.intp]
  signs: NDArray[np.int8]

  def of(self, adapter: int) -> tuple[NDArray[np.intp], NDArray[np.int8]]:
    """Rows and signs of one adapter."""
    start, end = np.searchsorted(self.adapters, [adapter, adapter + 1])
    return self.rows[start:end], self.signs[start:end]


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


@functools.singledispatch
def train(
  solver: Any,
  cfg: LegoConfig,
  task: Task,
  weights: jax.Array,
  progress: Progress | None = None,
) -> tuple[jax.Array, list[Any]]:
  """Trains the adapters of `task` and leaves the others alone.

  Args:
    solver: `cfg.solver`, by whose type the function is chosen.
    cfg: the settings.
    task: what to train.
    weights: W [n, C, d] of all adapters; consumed.
    progress: called with (samples passed, samples in all).

  Returns:
    W [n, C, d], and a note [m] for each adapter that was trained: whatever arrays the
    solver can use in the next request, or None. Notes hold nothing that the members do
    not determine; they are neither in the digest nor in checkpoints.
  """
  raise TypeError(f"{type(solver).__name__} is not a solver; register its `train`")
