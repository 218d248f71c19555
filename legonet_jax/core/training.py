"""M_j = argmin Σ_{D_aj} L (paper, eq. 4): the adapters that changed, in groups.

One executable trains any adapters, in any number. A group has a fixed width, so that no
adapter's bits depend on its neighbours; an empty lane changes nothing.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from legonet_jax.core.config import LegoConfig, for_one_adapter
from legonet_jax.core.data import Data
from legonet_jax.core.fold import blank_solution, make_adapter, solve_members
from legonet_jax.core.net import Change, State
from legonet_jax.core.solver import Members, Solution
from legonet_jax.runtime import flags


class Work(NamedTuple):
  """What the training of a group of adapters reads.

  Attributes:
    data: the table.
    order: [N] rows in hash order.
    routes: [N, k], of the new set.
    lost: [N, k], adapters that each row left; None if statistics are not to be mended.
    won: [N, k], adapters that each row joined, or None.
    seed: uint32.
    options: as in `State`.
    names: [n, 2].
    sizes: [n] int32, |D_aj| of the new set.
    first: int32, the index of this device's first adapter.
    mendable: [m] bool, whether the statistics of its m adapters can be mended by what
      was lost and won, or None.
  """

  data: Data
  order: jax.Array
  routes: jax.Array
  lost: Any
  won: Any
  seed: jax.Array
  options: dict[str, jax.Array]
  names: jax.Array
  sizes: jax.Array
  first: jax.Array
  mendable: Any


def work_of(data: Data, state: State, change: Change, known: bool) -> Work:
  """What training reads on the way to `state`; `known` if there are statistics."""
  return Work(
    data, state.order, state.routes, change.lost if known else None,
    change.won if known else None, state.seed,
    state.options, state.names, state.sizes, jnp.int32(0), None,
  )  # fmt: skip


def members_of(order: jax.Array, hit: jax.Array) -> jax.Array:
  """Rows [N], those where `hit` [N] first, in hash order."""
  hit = hit[order]
  at = jnp.where(hit, jnp.cumsum(hit) - 1, len(order))
  return jnp.zeros_like(order).at[at].set(order, mode="drop")


def train_one(
  cfg: LegoConfig,
  few: bool,
  work: Work,
  job: jax.Array,
  held: Any,
  mendable: jax.Array,
) -> Solution:
  """M_j = argmin Σ_{D_aj} L of one adapter with members.

  Args:
    cfg: the settings.
    few: whether the table has only the rows that were lost and won.
    work: what training reads.
    job: int32, which adapter of this device.
    held: its statistics before, or None.
    mendable: whether they can be mended by what it lost and won.
  """
  one_cfg = for_one_adapter(cfg)
  codes, labels, _ = work.data
  j, start = work.first + job, None

  def as_members() -> tuple[jax.Array, jax.Array]:
    return (work.routes == j).any(axis=1), jnp.ones(len(codes), jnp.int8)

  def as_changes() -> tuple[jax.Array, jax.Array]:
    gone = (work.lost == j).any(axis=1)
    return gone | (work.won == j).any(axis=1), jnp.where(gone, -1, 1).astype(jnp.int8)

  blank = blank_solution(cfg, codes.shape[1]).statistics
  if work.lost is None:
    hit, signs = as_members()
    start = blank
  else:
    if few:
      hit, signs = as_changes()
    else:
      hit, signs = jax.lax.cond(mendable, as_changes, as_members)
      mendable = mendable & (hit.sum(dtype=jnp.int32) < work.sizes[j])
      hit, signs = jax.lax.cond(mendable, lambda: (hit, signs), as_members)
    start = jax.tree.map(lambda a, b: jnp.where(mendable, a, b), held, blank)
  rows = members_of(work.order, hit)
  members = Members(codes, labels, rows, signs[rows], hit.sum(dtype=jnp.int32))
  adapter = make_adapter(work.seed, work.names[j], work.options)
  return solve_members(one_cfg, members, adapter, start)


def train(
  cfg: LegoConfig,
  lanes: int,
  defer: bool,
  few: bool,
  work: Work,
  jobs: jax.Array,
  at: jax.Array,
  count: jax.Array,
  solutions: Solution,
) -> Solution:
  """M_j = argmin Σ_{D_aj} L of the first `count` adapters in `jobs`, group by group.

  Args:
    cfg: the settings.
    lanes: adapters in a group, side by side under `vmap`.
    defer: whether to leave the adapters without weights.
    few: as for `train_one`.
    work: what training reads.
    jobs: [g] adapters of this device; beyond `count` anything.
    at: [g] their places in `solutions` and `work.mendable`.
    count: int32.
    solutions: with the statistics before; what to write into. The other slices stay.
  """
  blank = blank_solution(cfg, work.data.codes.shape[1])

  def one(i: jax.Array, statistics: Any) -> Solution:
    some = (i < count) & (work.sizes[work.first + jobs[i]] > 0) & (not defer)
    held = jax.tree.map(
      lambda a: jax.lax.dynamic_index_in_dim(a, at[i], keepdims=False), statistics
    )
    found: Solution = jax.lax.cond(
      some,
      lambda: train_one(cfg, few, work, jobs[i], held, work.mendable[at[i]]),
      lambda: blank,
    )
    return found

  def group(g: jax.Array, solutions: Solution) -> Solution:
    lane = g * lanes + jnp.arange(lanes, dtype=jnp.int32)
    written: Solution
    if lanes == 1:
      put = jax.lax.dynamic_update_index_in_dim
      written = jax.tree.map(
        lambda table, new: put(table, new, at[g], 0),
        solutions,
        one(g, solutions.statistics),
      )
      return written
    found = jax.vmap(one, in_axes=(0, None))(lane, solutions.statistics)
    place = jnp.where(lane < count, at[jnp.minimum(lane, len(at) - 1)], len(work.sizes))
    written = jax.tree.map(
      lambda table, new: table.at[place].set(new, mode="drop"), solutions, found
    )
    return written

  groups = (count + lanes - 1) // lanes
  done: Solution = jax.lax.fori_loop(0, groups, group, solutions)
  return done


def run(
  cfg: LegoConfig, lanes: int | None, defer: bool, few: bool, *work: Any
) -> Solution:
  """`train` one by one on a CPU, where lanes gain nothing, and in groups elsewhere."""

  def alone(*work: Any) -> Solution:
    with flags.pinned():
      return train(cfg, 1, defer, few, *work)

  width = min(lanes or cfg.solver.lanes, cfg.num_adapters)
  if lanes is not None:
    return train(cfg, width, defer, few, *work)
  # In turn under a caller's vmap: the bits of a single call, and no idle lanes.
  in_turn: Any = jax.custom_batching.sequential_vmap
  found: Solution = jax.lax.platform_dependent(
    *work,
    cpu=in_turn(alone),
    default=functools.partial(train, cfg, width, defer, few),
  )
  return found
