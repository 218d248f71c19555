r"""LegoNet as one pure program (paper, Algorithm 1 and section 3.4).

    state' = update(data, state, retained)     retained: bool [N]
    state' = forget(data, state, rows)         a few rows leave
    state' = learn(data, state, rows)          a few rows come

A fit, an unlearning and a learning are all updates to a set of retained samples, and
the result depends on that set only: bit for bit the state of a fresh fit on it. What an
old state contributes is work that need not be done again: routes under keys that stay,
adapters whose members stay, and sums that can be mended.

    x_i = codes [N, d]            a sample, encoded and mapped once (`Data`)
    K_j = x*_j + ξ_j              keys [n, d], of the first n retained in hash order
    δ(x, a_j)  ->  top_k          routes [N, k], the k nearest adapters of a sample
    D_aj = {x : j in route(x)}    members of adapter j, in hash order
    M_j = argmin Σ_{D_aj} L       weights W_j [C, d], by `cfg.solver`
    p = 1/k Σ M_j(x)              `predict`

Everything here is a pure function of arrays, for jit, vmap, scan and shard_map. With
`axis_name`, inside a `shard_map`, each device holds and trains its own adapters, and no
weights move between devices; the rest of the state is the same on all of them.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from legonet_jax.core import doors, few_rows, prediction, routing, shadow, training
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.data import NO_ID, Data, erase, insert, is_sample
from legonet_jax.core.finish import finish
from legonet_jax.core.fold import blank_solution, keeps
from legonet_jax.core.ids import sort_by_hash
from legonet_jax.core.keys import make_keys
from legonet_jax.core.net import Change, Info, State, own, report, specs
from legonet_jax.core.samples import make_data, rows_of
from legonet_jax.core.training import work_of
from legonet_jax.runtime import flags

__all__ = [
  "Data", "Info", "State", "classify", "erase", "finish", "forget", "init", "insert",
  "learn", "logits", "make_data", "many", "predict", "predict_images", "rows_of",
  "specs", "update",
]  # fmt: skip


def init(
  cfg: LegoConfig,
  data: Data,
  seed: ArrayLike | None = None,
  keys: jax.Array | None = None,
  options: dict[str, ArrayLike] | None = None,
) -> State:
  """The state of the empty set.

  Args:
    cfg: the settings.
    data: the table of N rows.
    seed: replaces `cfg.seed`; may be traced.
    keys: K [n, d] int8 in code units, for the policy `given`.
    options: replace options of the solver, such as `{"learning_rate": 0.1}`; traced.
  """
  doors.check_data(data)
  doors.check_options(cfg, options)
  (rows, dim), n, k = data.codes.shape, cfg.num_adapters, cfg.top_k
  given = cfg.key_policy == "given"
  index = jnp.arange(n, dtype=jnp.uint32)
  own_ids = jnp.stack([jnp.zeros_like(index), index], axis=1)
  with flags.pinned():
    blank = jax.eval_shape(lambda: blank_solution(cfg, dim))
    return State(
      cfg=dataclasses.replace(cfg, seed=0),
      seed=doors.check_seed(cfg.seed if seed is None else seed),
      options={k: jnp.asarray(v, jnp.float32) for k, v in (options or {}).items()},
      order=jnp.arange(rows, dtype=jnp.int32),
      retained=jnp.zeros(rows, bool),
      anchors=jnp.full(n, rows, jnp.int32),
      names=own_ids if given else jnp.full((n, 2), NO_ID),
      keys=jnp.zeros((n, dim), jnp.int8) if keys is None else jnp.asarray(keys),
      routes=jnp.full((rows, k), n, jnp.int32),
      sizes=jnp.zeros(n, jnp.int32),
      live=jnp.zeros(n, bool),
      solutions=jax.tree.map(lambda a: jnp.zeros((n, *a.shape), a.dtype), blank),
    )


@functools.partial(jax.jit, static_argnames=("defer", "lanes", "axis_name"))
def update(
  data: Data,
  state: State,
  retained: jax.Array,
  *,
  defer: bool = False,
  lanes: int | None = None,
  axis_name: str | None = None,
) -> tuple[State, Info]:
  """The state of the set `retained` [N] bool: fit, unlearn and learn in one.

  Args:
    data: the table; a row that leaves should still be there (`erase` it later), or its
      adapters are summed up anew.
    state: the state of any set.
    retained: which rows to keep; rows of padding are skipped.
    defer: train nothing: adapters that changed are not live until a later update.
    lanes: adapters trained side by side under `vmap`; by the platform if not given.
    axis_name: the axis of adapters, inside a `shard_map`.
  """
  doors.check(data, state, axis_name)
  retained = doors.check_mask(retained, len(state.retained))
  with flags.pinned():
    new, change = compare(data, state, retained)
    first, mine = own(state, axis_name)
    source = change.source[mine]
    at = jnp.clip(source - first, 0, len(mine) - 1)
    here = source == at + first
    usable = here & state.live[at]
    touched = change.touched[mine]
    changed = (touched > 0) | ~usable
    # A loop that may not run leaves the table where it is; a `cond` would copy it.
    move = functools.partial(jax.tree.map, lambda a: a[at])
    kept = jax.lax.fori_loop(
      0, change.moved.astype(jnp.int32), lambda _, table: move(table), state.solutions
    )
    work = work_of(data, new, change, keeps(state.cfg))._replace(
      first=first, mendable=usable & (touched < 2)
    )
    (jobs,) = jnp.nonzero(changed, size=len(mine), fill_value=len(mine))
    solutions = training.run(
      state.cfg, lanes, defer, False, work, jobs, jobs, changed.sum(), kept
    )
    live = (new.sizes[mine] > 0) & ~(changed & defer) & (solutions.undecided >= 0)
    new = dataclasses.replace(new, live=live, solutions=solutions)
    return new, report(new, changed & live, change.replaced, mine, axis_name)


def compare(data: Data, state: State, retained: jax.Array) -> tuple[State, Change]:
  """Anchors, keys, routes and sizes of the set `retained` [N], and who changed.

  Returns: the new state, but for its weights, and how the two differ.
  """
  cfg, n = state.cfg, state.cfg.num_adapters
  retained = retained & is_sample(data)
  order = sort_by_hash(state.seed, data.ids, state.order)
  anchors = choose_anchors(state, order, retained)
  moved = jnp.any(anchors != state.anchors)
  names, keys = jax.lax.cond(
    moved,
    lambda: place_keys(cfg, data, state.seed, anchors),
    lambda: (state.names, state.keys),
  )
  present = names[:, 0] != NO_ID
  need = retained & (moved | ~state.retained)
  routes = routing.route_rows(cfg, data.codes, keys, present, need, state.routes)
  routes = jnp.where(retained[:, None], routes, n)
  source, before = jax.lax.cond(
    moved,
    lambda: rename(state, anchors),
    lambda: (jnp.arange(n, dtype=jnp.int32), state.routes),
  )
  lost, won = only_in(before, routes, n), only_in(routes, before, n)
  blind = (state.retained & ~is_sample(data)).astype(jnp.int32)
  losses = jnp.broadcast_to(1 + blind[:, None], lost.shape).ravel()
  touched = jnp.zeros(n + 1, jnp.int32).at[lost.ravel()].max(losses)
  touched = touched.at[won.ravel()].max(1)
  sizes = jnp.zeros(n + 1, jnp.int32).at[routes.ravel()].add(1)
  replaced = (source < 0) & present & jnp.any(state.names[:, 0] != NO_ID)
  new = dataclasses.replace(
    state, order=order, retained=retained, anchors=anchors, names=names, keys=keys,
    routes=routes, sizes=sizes[:n],
  )  # fmt: skip
  return new, Change(lost, won, source, touched[:n], moved, replaced)


def choose_anchors(state: State, order: jax.Array, retained: jax.Array) -> jax.Array:
  """x*_j: rows [n] of the retained samples that are first in hash order."""
  n, count = len(state.anchors), len(order)
  if state.cfg.key_policy == "given":
    return state.anchors
  (first,) = jnp.nonzero(retained[order], size=n, fill_value=count)
  rows = jnp.where(first < count, order[jnp.minimum(first, count - 1)], count)
  if state.cfg.key_policy == "keep":  # the paper's, not exact
    return jnp.where(state.names[0, 0] != NO_ID, state.anchors, rows)
  return rows


def place_keys(
  cfg: LegoConfig, data: Data, seed: jax.Array, anchors: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Names [n, 2] of the adapters, and K_j = x*_j + ξ_j [n, d]."""
  there = (anchors < len(data.ids))[:, None]
  at = jnp.minimum(anchors, len(data.ids) - 1)
  names = jnp.where(there, data.ids[at], NO_ID)
  keys = make_keys(cfg, seed, data.codes[at], names)
  return names, jnp.where(there, keys, jnp.int8(0))


def rename(state: State, anchors: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Where each new adapter stood [n], or -1, and old routes under new indices [N, k].

  An adapter is the same as before if its anchor is.
  """
  n, count = len(anchors), len(state.retained)
  index = jnp.arange(n, dtype=jnp.int32)
  stood = jnp.full(count + 1, -1, jnp.int32).at[state.anchors].set(index)
  source = stood.at[count].set(-1)[anchors]
  goes = jnp.full(n + 1, n, jnp.int32)
  goes = goes.at[jnp.where(source >= 0, source, n)].set(index).at[n].set(n)
  return source, goes[state.routes]


def only_in(these: jax.Array, those: jax.Array, n: int) -> jax.Array:
  """Adapters [N, k] of routes `these` that the same row of `those` lacks, else n."""
  return jnp.where((these[:, :, None] == those[:, None, :]).any(axis=2), n, these)


def forget(
  data: Data, state: State, rows: jax.Array, *, donate: bool = False, **kwargs: Any
) -> tuple[State, Info]:
  """The state without the samples in `rows` [R]: as `update`, in a time flat in N.

  It is `update` if an anchor leaves. Rows that are not retained, or not there, are
  skipped. R is padded to a power of two, so that few shapes are compiled.

  Args:
    data: the table.
    state: the state before.
    rows: [R] int32.
    donate: whether the new state takes the memory of `state`, which is lost then.
    **kwargs: `lanes` and `axis_name`, as for `update`.
  """
  return few_rows.exchange(update, data, state, rows, False, donate, **kwargs)


def learn(
  data: Data, state: State, rows: jax.Array, *, donate: bool = False, **kwargs: Any
) -> tuple[State, Info]:
  """The state with the samples in `rows` [R] as well; see `forget` and `insert`."""
  return few_rows.exchange(update, data, state, rows, True, donate, **kwargs)


@jax.jit
def logits(state: State, encodings: jax.Array) -> tuple[jax.Array, jax.Array]:
  """z [B, k, C] of the adapters that `encodings` activate, and their weights [B, k]."""
  return prediction.adapter_logits(state, encodings)


@jax.jit
def predict(state: State, encodings: jax.Array) -> jax.Array:
  """p = 1/k Σ M_j(x): class probabilities [B, C].

  Args:
    state: the state; its weights may be split over devices.
    encodings: e [B, d], mapped here in float32, or codes x [B, d] int8, as in `Data`,
      which give the same bits everywhere that float32 does. If rows are split over a
      mesh, each device predicts its own. Gradients are 0: encodings are rounded.
  """
  return prediction.predict(state, encodings)


@jax.jit
def classify(state: State, encodings: jax.Array) -> jax.Array:
  """The class [B] int32, for `Ridge` an exact fact of the codes; see `predict`."""
  return prediction.classify(state, encodings)


@functools.partial(jax.jit, static_argnames="encode")
def predict_images(
  encode: Callable[[Any, jax.Array], jax.Array],
  params: Any,
  state: State,
  images: jax.Array,
) -> jax.Array:
  """p [B, C] of inputs of an encoder `encode(params, images) -> [B, d]`."""
  probs: jax.Array = predict(state, encode(params, images))
  return probs


def many(
  cfg: LegoConfig,
  data: Data,
  seeds: jax.Array,
  masks: jax.Array,
  side_by_side: int | None = None,
) -> State:
  """Shadow models: a stack of states, one for each of `seeds` [m] and `masks` [m, N].

  Args:
    cfg: the settings; statistics are not kept.
    data: the table that all models share.
    seeds: uint32.
    masks: bool, the retained rows of each model.
    side_by_side: how many are trained under one `vmap`; by platform and memory if not
      given: one on each core of a CPU.
  """
  return shadow.many(init, update, cfg, data, seeds, masks, side_by_side)
