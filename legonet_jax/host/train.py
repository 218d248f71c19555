"""Adapters that changed, dispatched side by side to the one jitted step of training.

The steps of one adapter are a chain of small operations, so on a CPU each core trains
adapters of its own, with the same executable. An accelerator trains a group of
adapters, of a fixed width, at a time.
"""

from collections.abc import Iterator
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import finish, training
from legonet_jax.core.config import LegoConfig, for_one_adapter
from legonet_jax.core.data import Data
from legonet_jax.core.fold import blank_solution, keeps
from legonet_jax.core.net import State
from legonet_jax.core.solver import Solution
from legonet_jax.core.training import Work
from legonet_jax.runtime import flags, parallel
from legonet_jax.runtime.callbacks import Progress


class Job(NamedTuple):
  """Adapters to train.

  Attributes:
    cfg: the settings.
    data: the whole table.
    net: the state whose weights are wanted.
    work: what training reads.
    few: whether that is only the rows of the request.
    adapters: [m] int, which adapters; each has at least one member.
    sizes: [m] |D_aj|.
    held: [m] the statistics of each before, or None.
    mendable: [m] bool, whether statistics can be mended.
  """

  cfg: LegoConfig
  data: Data
  net: State
  work: Work
  few: bool
  adapters: NDArray[np.intp]
  sizes: NDArray[np.int32]
  held: list[Any]
  mendable: NDArray[np.bool_]


def train(job: Job, progress: Progress | None = None) -> Iterator[Solution]:
  """The solution of each adapter, in order.

  Raises:
    ConfigError: if sums do not fit in 32 bits, or if training diverged.
  """
  cfg, m = for_one_adapter(job.cfg), len(job.adapters)
  lanes = min(cfg.solver.lanes, job.cfg.num_adapters)
  if jax.default_backend() == "cpu":
    lanes = 1
  passes = cfg.solver.passes
  held = job.held
  if any(statistics is None for statistics in held):
    blank = blank_solution(cfg, job.data.codes.shape[1]).statistics
    held = [blank if statistics is None else statistics for statistics in held]

  def train_group(start: int) -> list[Solution]:
    at = np.minimum(np.arange(start, start + lanes), m - 1)
    before = tuple(held[i] for i in at.tolist())
    jobs, mendable = job.adapters[at].astype(np.int32), job.mendable[at]
    found = _train_group(cfg, job.few, job.work, jobs, before, mendable)
    some = zip(job.adapters[start : start + lanes].tolist(), found, strict=False)
    return [_decide(job, j, solution) for j, solution in some]

  total, done = passes * int(job.sizes.sum()), 0
  with parallel.one_blas_thread(), flags.pinned():
    # The first group alone, so that the cores do not all compile the same step.
    first, rest = range(0, m, lanes)[:1], range(0, m, lanes)[1:]
    groups = itertools.chain(map(train_group, first), parallel.each(train_group, rest))
    for i, solution in enumerate(s for group in groups for s in group):
      yield solution
      done += passes * int(job.sizes[i])
      if progress is not None:
        progress(done, total)


@functools.partial(jax.jit, static_argnums=(0, 1), compiler_options=flags.DETERMINISTIC)
def _train_group(
  cfg: LegoConfig,
  few: bool,
  work: Work,
  jobs: jax.Array,
  held: tuple[Any, ...],
  mendable: jax.Array,
) -> tuple[Solution, ...]:
  """The solutions of a group of adapters [g], in arrays of their own."""
  one = functools.partial(training.train_one, cfg, few, work)
  if len(held) == 1:
    return (one(jobs[0], held[0], mendable[0]),)
  stacked = jax.tree.map(lambda *a: jnp.stack(a), *held)
  found = jax.vmap(one)(jobs, stacked, mendable)
  return tuple(jax.tree.map(lambda a, i=i: a[i], found) for i in range(len(held)))


def _decide(job: Job, j: int, found: Solution) -> Solution:
  """A solution on the host, with what was undecided decided."""
  weights, undecided = np.asarray(found.weights), int(found.undecided)
  if undecided < 0:
    raise errors.ConfigError(
      "an adapter has too many members for exact sums in 32 bits; use more adapters"
      " or a larger feature_range"
      if job.cfg.solver.portable
      else "the training of an adapter diverged: its weights are not finite numbers;"
      " lower learning_rate, or correct the other options of the solver"
    )
  if undecided > 0:
    weights = finish.decide(job.cfg, job.data, job.net, j)
  weights.setflags(write=False)
  kept = found.statistics if keeps(job.cfg) else None
  return Solution(weights, np.int32(0), kept)
