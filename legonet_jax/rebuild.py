"""From one set of samples to another: the mechanism behind fit, unlearn and learn.

The contract: the state after any requests, in any order and batching, is bit for bit
the state of a fresh fit on what remains. `rebuild` makes the state of a set of samples
and takes from an earlier state only what it would compute again to the same bits:
routes of samples under the same keys, and weights of adapters with the same id and the
same members. A fit is a rebuild from the empty set.
"""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from legonet_jax import (
  errors,
  ids as ids_lib,
  keys as keys_lib,
  membership,
  numerics,
  routing,
  training,
)
from legonet_jax.config import LegoConfig, fingerprint
from legonet_jax.ids import Ids
from legonet_jax.prediction import Model
from legonet_jax.samples import Samples, rows_of

NO_ANCHOR = -1


class LegoState(NamedTuple):
  """The result of a fit, and all that later requests build on.

  Attributes:
    model: keys, weights and live adapters, on the device.
    anchors: [n] int64, the stable id of each adapter: its anchor's, or under the policy
      `given` its index.
    ids: [N] int64, the retained set, in hash order.
    routes: [N, k] int32, the adapters that each of them activates, nearest first.
    prints: [N, 16] uint8, their fingerprints.
    settings: [32] uint8, the fingerprint of the settings.
  """

  model: Model
  anchors: Ids
  ids: Ids
  routes: NDArray[np.int32]
  prints: NDArray[np.uint8]
  settings: NDArray[np.uint8]


class Info(NamedTuple):
  """What a call did.

  Attributes:
    adapters_retrained: adapters trained from scratch, each once.
    adapters_masked: adapters with members that wait for their training (deferred).
    samples_retrained: Σ |D_aj| over them.
    anchors_replaced: adapters whose key now belongs to another sample.
    seconds: wall time.
    balance: the distribution of |D_aj| after the call.
    exact: whether the result is that of a fresh fit; False under the policy `keep`.
  """

  adapters_retrained: int
  adapters_masked: int
  samples_retrained: int
  anchors_replaced: int
  seconds: float
  balance: membership.Balance
  exact: bool


def untrained(cfg: LegoConfig, dim: int, keys: ArrayLike | None) -> LegoState:
  """The state of the empty set; `keys` only under the policy `given`."""
  n = cfg.num_adapters
  points, anchors = np.zeros((n, dim), np.int8), np.full(n, NO_ANCHOR, np.int64)
  if keys is not None:
    points, anchors = keys_lib.keys_given(cfg, keys, dim), np.arange(n, dtype=np.int64)
  return LegoState(
    model=Model(
      keys=jnp.asarray(points),
      weights=jnp.zeros((n, cfg.num_classes, dim), jnp.float32),
      live=jnp.zeros(n, bool),
    ),
    anchors=anchors,
    ids=np.zeros(0, np.int64),
    routes=np.zeros((0, cfg.top_k), np.int32),
    prints=np.zeros((0, 16), np.uint8),
    settings=fingerprint(cfg),
  )


@numerics.pinned()
def rebuild(
  cfg: LegoConfig,
  samples: Samples,
  old: LegoState,
  removed: NDArray[np.intp],
  added: Ids,
  progress: training.Progress | None = None,
  defer: bool = False,
) -> tuple[LegoState, Info]:
  """The state of the set of `old`, less its positions `removed`, plus the ids `added`.

  Args:
    cfg: the settings.
    samples: a table with all samples of the new set.
    old: where to start from; not changed.
    removed: [r] positions in `old.ids`.
    added: [a] ids that are not in `old.ids`.
    progress: called with (samples passed, samples in all).
    defer: train nothing; adapters that would be trained are not live in the result
      and hold no weights. Any later rebuild without `defer` trains them.

  Returns:
    The new state and what was done.
  """
  start = time.perf_counter()
  ids, origin = _new_set(cfg, old.ids, removed, added)
  new = origin < 0

  anchors = _anchors(cfg, ids, old.anchors)
  moved = not np.array_equal(anchors, old.anchors)
  prints = _carry_rows(old.prints, origin)
  prints[new] = samples.prints[rows_of(samples, ids[new])]
  to_route = np.flatnonzero(new | moved)
  rows = _checked_rows(samples, ids, prints, to_route)

  keys = np.asarray(old.model.keys)
  if moved:
    keys = keys_lib.keys_from_anchors(cfg, samples, anchors)
  routes = _carry_rows(old.routes, origin)
  routes[to_route] = routing.route_array(cfg, samples.codes[rows], keys)

  # An adapter is the same one as before if its id is; `source` is where it stood.
  source = _index_in(old.anchors, anchors)
  changed = (source < 0) | _membership_changed(old, removed, source, routes, origin)
  changed |= ~np.asarray(old.model.live)[source]  # empty, or deferred: no weights
  sizes = membership.sizes_of(routes, cfg.num_adapters)
  live = (sizes > 0) & ~changed if defer else sizes > 0
  retrain = np.flatnonzero(changed & live)
  members = membership.members_of(routes, cfg.num_adapters, retrain)
  rows = _checked_rows(samples, ids, prints, members.positions)
  weights = _carry_weights(old.model.weights, np.maximum(source, 0), ~changed)
  weights = training.train_adapters(
    cfg, samples, rows, members, anchors[retrain], weights, progress
  )

  model = Model(jnp.asarray(keys), weights, jnp.asarray(live))
  weights.block_until_ready()
  info = Info(
    adapters_retrained=len(retrain),
    adapters_masked=int(np.sum((sizes > 0) & ~live)),
    samples_retrained=int(members.sizes.sum()),
    anchors_replaced=int(np.sum((source < 0) & (old.anchors != NO_ANCHOR).any())),
    seconds=time.perf_counter() - start,
    balance=membership.balance(sizes),
    exact=cfg.key_policy != "keep",
  )
  state = LegoState(model, anchors, ids, routes, prints, old.settings)
  for array in state[1:]:
    array.setflags(write=False)
  return state, info


def to_arrays(state: LegoState) -> dict[str, NDArray[Any]]:
  """All that a state is, as named arrays on the host."""
  model = {name: np.asarray(leaf) for name, leaf in state.model._asdict().items()}
  return {**model, **dict(zip(LegoState._fields[1:], state[1:], strict=True))}


def from_arrays(arrays: dict[str, NDArray[Any]]) -> LegoState:
  """The state that `to_arrays` took apart, bit for bit."""
  model = Model(*(jnp.asarray(arrays[name]) for name in Model._fields))
  rest = [np.array(arrays[name]) for name in LegoState._fields[1:]]
  for array in rest:
    array.setflags(write=False)
  return LegoState(model, *rest)


def _anchors(cfg: LegoConfig, ids: Ids, before: Ids) -> Ids:
  """The anchors of the set `ids`; only `replace` ever changes those there are."""
  if cfg.key_policy == "replace" or NO_ANCHOR in before:
    return keys_lib.choose_anchors(cfg, ids)
  return before


def _new_set(
  cfg: LegoConfig, ids: Ids, removed: NDArray[np.intp], added: Ids
) -> tuple[Ids, NDArray[np.intp]]:
  """The new set in hash order, and each member's old position (-1: it is new)."""
  kept = np.delete(ids, removed)
  origin = np.delete(np.arange(len(ids)), removed)
  added = added[ids_lib.hash_order(cfg.seed, added)]
  at = ids_lib.find(cfg.seed, kept, added)
  return np.insert(kept, at, added), np.insert(origin, at, -1)


def _carry_rows(old: NDArray[Any], origin: NDArray[np.intp]) -> NDArray[Any]:
  """Rows of `old` where they have an origin; the others are the caller's to fill."""
  rows = np.zeros((len(origin), *old.shape[1:]), old.dtype)
  rows[origin >= 0] = old[origin[origin >= 0]]
  return rows


def _index_in(values: Ids, wanted: Ids) -> NDArray[np.intp]:
  """Where each of `wanted` [m] stands in `values` [n], or -1."""
  order = np.argsort(values, kind="stable")
  found = np.searchsorted(values, wanted, sorter=order)
  index = order[np.minimum(found, len(values) - 1)]
  return np.where(values[index] == wanted, index, -1)


def _membership_changed(
  old: LegoState,
  removed: NDArray[np.intp],
  source: NDArray[np.intp],
  routes: NDArray[np.int32],
  origin: NDArray[np.intp],
) -> NDArray[np.bool_]:
  """Which of the new adapters [n] gained or lost a member."""
  n = len(source)
  to_new = np.full(n, n)  # n: an adapter that is no more
  to_new[source[source >= 0]] = np.flatnonzero(source >= 0)
  changed = np.zeros(n + 1, bool)
  changed[to_new[old.routes[removed]]] = True
  changed[routes[origin < 0]] = True
  if not np.array_equal(source, np.arange(n)):  # keys moved: survivors may have, too
    survived = np.flatnonzero(origin >= 0)
    before = np.sort(to_new[old.routes[origin[survived]]], axis=1)
    after = np.sort(routes[survived], axis=1)
    pair = np.arange(len(survived))[:, None] * (n + 1)
    changed[np.setxor1d(pair + before, pair + after) % (n + 1)] = True
  return changed[:n]


def _checked_rows(
  samples: Samples, ids: Ids, prints: NDArray[np.uint8], positions: NDArray[np.intp]
) -> NDArray[np.intp]:
  """Rows of the samples at `positions` of the set, if they are what they were."""
  unique, inverse = np.unique(positions, return_inverse=True)
  try:
    rows = rows_of(samples, ids[unique])
  except errors.UnknownIdError as e:
    raise errors.SamplesMismatchError(
      f"the table lacks a retained sample: {e}; hand in all samples of the state"
    ) from e
  differs = (samples.prints[rows] != prints[unique]).any(axis=1)
  if differs.any():
    raise errors.SamplesMismatchError(
      f"sample {ids[unique][differs][0]} has another encoding or label than when it was"
      " learned; hand in the samples that the state was trained on"
    )
  return rows[inverse]


@jax.jit
def _carry_weights(weights: jax.Array, source: jax.Array, keep: jax.Array) -> jax.Array:
  """W [n, C, d] with each kept adapter in its new place and zeros in the others."""
  return jnp.where(keep[:, None, None], weights[source], 0.0)
