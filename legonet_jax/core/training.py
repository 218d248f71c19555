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
from legonet_jax.core.fold import blank_solution, keeps, make_adapter, solve_members
from legonet_jax.core.solver import Members, Solution
from legonet_jax.runtime import flags


class Work(NamedTuple):
  """What the training of a group of adapters reads.

  Attributes:
    data: the table.
    order: [N] rows in hash order.
    routes: [N, k], of the new set.
    lost: [N, k], adapters that each row left.
    won: [N, k], adapters that each row joined.
    seed: uint32.
    options: as in `State`.
    names: [n, 2].
    sizes: [n] int32, |D_aj| of the new set.
    first: int32, the index of this device's first adapter.
    statistics: [m, ...] of its m adapters before, or None.
    mendable: [m] bool, whether statistics can be mended by what was lost and won.
  """

  data: Data
  order: jax.Array
  routes: jax.Array
  lost: jax.Array
  won: jax.Array
  seed: jax.Array
  options: dict[str, jax.Array]
  names: jax.Array
  sizes: jax.Array
  first: jax.Array
  statistics: Any
  mendable: jax.Array


def members_of(order: jax.Array, hit: jax.Array) -> jax.Array:
  """Rows [N], those where `hit` [N] first, in hash order."""
  hit = hit[order]
  at = jnp.where(hit, jnp.cumsum(hit) - 1, len(order))
  return jnp.zeros_like(order).at[at].set(order, mode="drop")


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
    few: whether the table has only the rows that were lost and won.
    work: what training reads.
    jobs: [g] adapters of this device; beyond `count` anything.
    at: [g] their places in `solutions` and `work.statistics`.
    count: int32.
    solutions: what to write into; the other slices stay.
  """
  one_cfg = for_one_adapter(cfg)
  blank = blank_solution(cfg, work.data.codes.shape[1])
  codes, labels, _ = work.data

  def one(i: jax.Array) -> Solution:
    j = work.first + jobs[i]
    size = jnp.where(i < count, work.sizes[j], 0)
    start = blank.statistics

    def as_members() -> tuple[jax.Array, jax.Array]:
      return (work.routes == j).any(axis=1), jnp.ones(len(codes), jnp.int8)

    def as_changes() -> tuple[jax.Array, jax.Array]:
      gone = (work.lost == j).any(axis=1)
      return gone | (work.won == j).any(axis=1), jnp.where(gone, -1, 1).astype(jnp.int8)

    if keeps(cfg):
      mend = work.mendable[at[i]]
      if few:
        hit, signs = as_changes()
      else:
        hit, signs = jax.lax.cond(mend, as_changes, as_members)
        mend = mend & (hit.sum(dtype=jnp.int32) < size)
        hit, signs = jax.lax.cond(mend, lambda: (hit, signs), as_members)
      held = jax.tree.map(lambda a: a[at[i]], work.statistics)
      start = jax.tree.map(lambda a, b: jnp.where(mend, a, b), held, start)
    else:
      hit, signs = as_members()

    def solve() -> Solution:
      rows = members_of(work.order, hit)
      number = hit.sum(dtype=jnp.int32)
      adapter = make_adapter(work.seed, work.names[j], work.options)
      members = Members(codes, labels, rows, signs[rows], number)
      return solve_members(one_cfg, members, adapter, start)

    found: Solution = jax.lax.cond((size > 0) & (not defer), solve, lambda: blank)
    return found

  def group(g: jax.Array, solutions: Solution) -> Solution:
    lane = g * lanes + jnp.arange(lanes, dtype=jnp.int32)
    if lanes == 1:
      found = jax.tree.map(lambda a: a[None], one(lane[0]))
    else:
      found = jax.vmap(one)(lane)
    place = jnp.where(lane < count, at[jnp.minimum(lane, len(at) - 1)], len(work.sizes))
    written: Solution = jax.tree.map(
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

  if lanes is not None:
    return train(cfg, lanes, defer, few, *work)
  # In turn under a caller's vmap: the bits of a single call, and no idle lanes.
  in_turn: Any = jax.custom_batching.sequential_vmap
  found: Solution = jax.lax.platform_dependent(
    *work,
    cpu=in_turn(alone),
    default=functools.partial(train, cfg, cfg.solver.lanes, defer, few),
  )
  return found
