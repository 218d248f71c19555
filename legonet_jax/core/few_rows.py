"""A few rows leave or come, and no key moves: a request whose time is flat in N.

Only the adapters of those rows change. Their slices are gathered, mended and put back;
a loop that writes into the whole table would copy it at every step.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from legonet_jax.core import ids as ids_lib, routing, training
from legonet_jax.core.data import NO_ID, Data, is_sample
from legonet_jax.core.doors import check, check_rows
from legonet_jax.core.fold import keeps
from legonet_jax.core.net import Info, State, own, report
from legonet_jax.core.training import Work
from legonet_jax.runtime import flags


def exchange(
  update: Callable[..., tuple[State, Info]],
  data: Data,
  state: State,
  rows: jax.Array,
  come: bool,
  donate: bool,
  **where: Any,
) -> tuple[State, Info]:
  """The state with the samples in `rows` [R] gone or, if `come`, there.

  Args:
    update: what to do if a key moves.
    data: the table.
    state: the state before.
    rows: int32.
    come: whether to learn them.
    donate: whether the memory of `state` may be used.
    **where: `lanes` and `axis_name`, as for `update`.
  """
  axis_name = where.get("axis_name")
  state = jax.tree.map(jnp.asarray, state)
  check(data, state, axis_name)
  rows = check_rows(rows, len(state.retained))
  plain, near = look(data, state, rows, jnp.bool_(come), axis_name=axis_name)
  mask = state.retained.at[rows].set(come, mode="drop")

  def few() -> tuple[State, Info]:
    call = _few_in_place if donate else _few
    found: tuple[State, Info] = call(data, state, rows, near, jnp.bool_(come), **where)
    return found

  def whole() -> tuple[State, Info]:
    return update(data, state, mask, **where)

  if isinstance(plain, jax.core.Tracer):
    chosen: tuple[State, Info] = jax.lax.cond(plain, few, whole)
    return chosen
  return few() if plain else whole()


@functools.partial(jax.jit, static_argnames="axis_name")
def look(
  data: Data,
  state: State,
  rows: jax.Array,
  come: jax.Array,
  *,
  axis_name: str | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Whether no key moves and all statistics can be mended, and routes [R, k] of `rows`.

  A program of its own, because one that reads and writes the same routes copies them.
  Routes of rows that have nothing to do are n.
  """
  cfg, n, count = state.cfg, state.cfg.num_adapters, len(state.retained)
  with flags.pinned():
    at = jnp.clip(rows, 0, count - 1)
    index = jnp.arange(len(rows), dtype=jnp.int32)
    earlier = index[:, None] > index[None, :]
    again = ((rows[:, None] == rows[None, :]) & earlier).any(axis=1)
    valid = (rows == at) & ~again & (state.retained[at] != come)
    there = is_sample(data)[at]
    present = state.names[:, 0] != NO_ID
    valid = valid & (there | ~come)
    found = routing.route_among(cfg, data.codes[at], state.keys, present)
    near = jnp.where(come, found, state.routes[at])
    plain = jnp.all(there | ~valid)
    if cfg.key_policy != "given":  # `keep` has anchors for good once it has them all
      plain = plain & present[-1]
    if cfg.key_policy == "replace":
      anchor = ids_lib.precedes(state.seed, data.ids[at], state.names[-1])
      plain = plain & ~jnp.any(valid & anchor)
    near = jnp.where(valid[:, None], near, n)
    _, mine = own(state, axis_name)
    idle = jnp.any(_touched(near, n)[mine] & ~state.live & (state.sizes[mine] > 0))
    if axis_name is not None:
      idle = jax.lax.pmax(idle.astype(jnp.int32), axis_name) > 0  # type: ignore[no-untyped-call]
    return plain & ~idle, near


def _touched(near: jax.Array, n: int) -> jax.Array:
  """Which adapters [n] are in routes [R, k]."""
  return jnp.zeros(n + 1, bool).at[near.ravel()].set(True)[:n]


def move(
  data: Data,
  state: State,
  rows: jax.Array,
  near: jax.Array,
  come: jax.Array,
  *,
  few: bool,
) -> tuple[State, Work]:
  """Routes and sizes with `rows` [R] gone or there, under the same keys.

  Args:
    data: the table.
    state: the state before.
    rows: int32.
    near: [R, k] their routes, from `look`.
    come: whether they come.
    few: whether training mends sums, so that it has to read only these rows.

  Returns:
    The new state, its weights still those of the old one, and what training reads.
  """
  n, count = state.cfg.num_adapters, len(state.retained)
  to = jnp.where((near < n).any(axis=1), rows, count)
  none = jnp.full_like(near, n)
  routes = state.routes.at[to].set(jnp.where(come, near, none), mode="drop")
  moves = jnp.zeros(n + 1, jnp.int32).at[near.ravel()].add(jnp.where(come, 1, -1))
  lost: jax.Array | None = None
  won: jax.Array | None = None
  if few:
    lost, won = jnp.where(come, none, near), jnp.where(come, near, none)
    at = jnp.clip(rows, 0, count - 1)
    table: Data = jax.tree.map(lambda a: a[at], data)
    order, known = jnp.arange(len(rows), dtype=jnp.int32), near
  else:
    table, known = data, routes
    order = ids_lib.sort_by_hash(state.seed, data.ids, state.order)
  new = dataclasses.replace(
    state,
    order=state.order if few else order,
    retained=state.retained.at[to].set(come, mode="drop"),
    routes=routes,
    sizes=state.sizes + moves[:n],
  )
  work = Work(
    table, order, known, lost, won, state.seed, state.options, state.names, new.sizes,
    jnp.int32(0), None,
  )  # fmt: skip
  return new, work


def _exchange_few(
  data: Data,
  state: State,
  rows: jax.Array,
  near: jax.Array,
  come: jax.Array,
  *,
  lanes: int | None = None,
  axis_name: str | None = None,
) -> tuple[State, Info]:
  """`exchange` under the same keys, of rows [R] with the routes `near` [R, k]."""
  cfg, n, few = state.cfg, state.cfg.num_adapters, keeps(state.cfg)
  with flags.pinned():
    new, work = move(data, state, rows, near, come, few=few)
    first, mine = own(state, axis_name)
    touched = _touched(near, n)[mine]
    (jobs,) = jnp.nonzero(touched, size=min(len(mine), near.size), fill_value=len(mine))
    held = jax.tree.map(lambda a: a[jobs], state.solutions)  # beyond m, the last
    work = work._replace(first=first, mendable=jnp.ones(len(jobs), bool))
    place = jnp.arange(len(jobs), dtype=jnp.int32)
    number = jnp.sum(touched, dtype=jnp.int32)
    found = training.run(cfg, lanes, False, few, work, jobs, place, number, held)
    solutions = jax.tree.map(
      lambda whole, new: whole.at[jobs].set(new, mode="drop"), state.solutions, found
    )
    sound = (new.sizes[mine] > 0) & (solutions.undecided >= 0)
    new = dataclasses.replace(
      new, live=jnp.where(touched, sound, state.live), solutions=solutions
    )
    return new, report(new, touched & sound, jnp.zeros(n, bool), mine, axis_name)


_STATIC = ("lanes", "axis_name")
_few = jax.jit(_exchange_few, static_argnames=_STATIC)
_few_in_place = jax.jit(_exchange_few, static_argnames=_STATIC, donate_argnames="state")
