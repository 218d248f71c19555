"""From one set of samples to another: the mechanism behind fit, unlearn and learn.

The contract: the state after any requests, in any order and batching, is bit for bit
the state of a fresh fit on what remains. `rebuild` makes the state of a set of samples
and takes from an earlier state only what it would compute again to the same bits:
routes of samples under the same keys, and weights of adapters with the same id and the
same members. A fit is a rebuild from the empty set.
"""

from collections.abc import Iterable
import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import (
  ids as ids_lib,
  keys as keys_lib,
  membership,
  retained as retained_lib,
  routing,
)
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.ids import Ids
from legonet_jax.core.prediction import Model, settings_of
from legonet_jax.core.retained import Retained, Rows
from legonet_jax.core.samples import Samples, rows_of
from legonet_jax.core.state import NO_ANCHOR, LegoState
from legonet_jax.core.task import Changes, Progress, Task
from legonet_jax.runtime import flags


class Info(NamedTuple):
  """What a call did.

  Attributes:
    adapters_retrained: adapters trained, or solved, anew, each once.
    adapters_masked: adapters with members that wait for their training (deferred).
    samples_retrained: Σ |D_aj| over the retrained; `Ridge` does not visit them again.
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


@flags.pinned()
def rebuild(
  cfg: LegoConfig,
  samples: Samples,
  old: LegoState,
  removed: Ids,
  added: Ids,
  progress: Progress | None = None,
  defer: bool = False,
) -> tuple[LegoState, Info]:
  """The state of the set of `old`, less the ids `removed`, plus the ids `added`.

  Args:
    cfg: the settings.
    samples: a table with all samples of the new set.
    old: where to start from; not changed.
    removed: [r] ids that are in it.
    added: [a] ids that are not.
    progress: called with (samples passed, samples in all).
    defer: train nothing; adapters that would be trained are not live in the result
      and hold no weights. Any later rebuild without `defer` trains them.

  Returns:
    The new state and what was done.
  """
  start = time.perf_counter()
  _compile_all(cfg, old.model.keys.shape[1])
  anchors = _anchors(cfg, old, removed, added)
  # An adapter is the same one as before if its id is; `source` is where it stood.
  source = _index_in(old.anchors, anchors)
  if np.array_equal(anchors, old.anchors):
    keys = old.model.keys
    retained, sizes, changes = _same_keys(cfg, samples, old, removed, added)
  else:
    keys, retained, sizes, changes = _new_keys(
      cfg, samples, old, removed, added, anchors
    )

  changed = source < 0
  changed[changes.adapters] = True
  changed |= ~np.asarray(old.model.live)[source]  # empty, or deferred: no weights
  live = (sizes > 0) & ~changed if defer else sizes > 0
  retrain = np.flatnonzero(changed & live)
  notes = [old.notes[s] if s >= 0 else None for s in source.tolist()]
  task = Task(
    samples=samples,
    adapters=retrain,
    ids=anchors[retrain],
    sizes=sizes[retrain],
    members=functools.partial(_find_members, samples, retained, len(anchors)),
    changes=changes,
    notes=[notes[j] for j in retrain.tolist()],
  )
  if not retained_lib.count(old.retained):  # a fit
    weights = jnp.zeros(old.model.weights.shape, jnp.float32)
  else:
    weights = _carry(old.model.weights, np.maximum(source, 0), ~changed)
  weights, new_notes = cfg.solver.train(cfg, task, weights, progress)
  for j, note in zip(retrain.tolist(), new_notes, strict=True):
    notes[j] = note
  for j in np.flatnonzero(~live).tolist():
    notes[j] = None

  model = Model(keys, weights, jax.device_put(live), settings_of(cfg))
  weights.block_until_ready()
  info = Info(
    adapters_retrained=len(retrain),
    adapters_masked=int(np.sum((sizes > 0) & ~live)),
    samples_retrained=int(sizes[retrain].sum()),
    anchors_replaced=int(np.sum((source < 0) & (old.anchors != NO_ANCHOR).any())),
    seconds=time.perf_counter() - start,
    balance=membership.balance(sizes),
    exact=cfg.key_policy != "keep",
  )
  for array in (anchors, sizes):
    array.setflags(write=False)
  return LegoState(model, anchors, retained, sizes, old.settings, tuple(notes)), info


@functools.lru_cache
def _compile_all(cfg: LegoConfig, dim: int) -> None:
  """Compiles everything now, so that no later request compiles."""
  n = cfg.num_adapters
  keys = np.zeros((n, dim), np.int8)
  routing.compile_all(cfg, keys)
  keys_lib.compile_all(cfg, keys)
  cfg.solver.compile(cfg, dim)


def _anchors(cfg: LegoConfig, old: LegoState, removed: Ids, added: Ids) -> Ids:
  """The anchors of the new set; only `replace` ever changes those there are."""
  if cfg.key_policy != "replace" and NO_ANCHOR not in old.anchors:
    return old.anchors
  # No id after these can be among the first n when `removed` are gone.
  first = retained_lib.first(old.retained, cfg.num_adapters + len(removed))
  ids = np.concatenate([first[~np.isin(first, removed)], added])
  return keys_lib.choose_anchors(cfg, ids[ids_lib.hash_order(cfg.seed, ids)])


def _same_keys(
  cfg: LegoConfig, samples: Samples, old: LegoState, removed: Ids, added: Ids
) -> tuple[Retained, NDArray[np.int64], Changes]:
  """The new set, |D_aj| [n] and what changed, in a time that does not depend on N."""
  n = cfg.num_adapters
  _, left = retained_lib.look_up(cfg.seed, old.retained, removed)
  rows = rows_of(samples, added)
  routes = routing.route_array(cfg, samples.codes, np.asarray(old.model.keys), rows)
  joined = Rows(added, routes, samples.prints[rows])
  retained = retained_lib.exchange(cfg.seed, old.retained, removed, joined)
  sizes = old.sizes - membership.sizes_of(left.routes, n)
  sizes += membership.sizes_of(joined.routes, n)
  ways = ((left.routes, _rows_of_lost(samples, left), -1), (routes, rows, 1))
  return retained, sizes, _list_changes(cfg, ways)


def _new_keys(
  cfg: LegoConfig,
  samples: Samples,
  old: LegoState,
  removed: Ids,
  added: Ids,
  anchors: Ids,
) -> tuple[jax.Array, Retained, NDArray[np.int64], Changes]:
  """As `_same_keys` if keys moved: all samples are routed again and compared."""
  n = cfg.num_adapters
  source = _index_in(old.anchors, anchors)
  to_new = np.full(n + 1, n)  # n: an adapter that is no more, or a sample's none
  to_new[source[source >= 0]] = np.flatnonzero(source >= 0)
  _, left = retained_lib.look_up(cfg.seed, old.retained, removed)
  blank = np.full((len(added), cfg.top_k), n, np.int32)
  joined = Rows(added, blank, samples.prints[rows_of(samples, added)])
  retained = retained_lib.exchange(cfg.seed, old.retained, removed, joined)
  all_rows = retained_lib.join(retained)
  rows = _checked_rows(samples, all_rows)
  keys = keys_lib.keys_from_anchors(cfg, samples, anchors)
  routes = routing.route_array(cfg, samples.codes, keys, rows)
  sizes = membership.sizes_of(routes, n)
  retained = retained_lib.split(
    all_rows._replace(routes=routes), retained_lib.counts(retained)
  )
  # Only adapters that there were before can have changed.
  before = to_new[all_rows.routes]
  after = np.where(source[routes] >= 0, routes, n)
  moved = np.flatnonzero((np.sort(before) != np.sort(after)).any(axis=1))
  before, after, rows = before[moved], after[moved], rows[moved]
  # An adapter that a sample had and still has did not change.
  stays = before[:, :, None] == after[:, None, :]
  ways = (
    (to_new[left.routes], _rows_of_lost(samples, left), -1),
    (np.where(stays.any(axis=2), n, before), rows, -1),
    (np.where(stays.any(axis=1), n, after), rows, 1),
  )
  return jax.device_put(keys), retained, sizes, _list_changes(cfg, ways)


def _list_changes(
  cfg: LegoConfig, ways: Iterable[tuple[NDArray[Any], NDArray[np.intp], int]]
) -> Changes:
  """Changes from (adapters [m, k], rows [m], sign); adapter n stands for none."""
  parts = [
    (adapters.ravel(), np.repeat(rows, cfg.top_k), np.full(adapters.size, sign))
    for adapters, rows, sign in ways
  ]
  adapters, rows, signs = (np.concatenate(part) for part in zip(*parts, strict=True))
  order = np.argsort(adapters, kind="stable")
  order = order[: np.searchsorted(adapters[order], cfg.num_adapters)]
  return Changes(adapters[order], rows[order], signs[order].astype(np.int8))


def _find_members(
  samples: Samples, retained: Retained, num_adapters: int, adapters: NDArray[np.intp]
) -> tuple[membership.Members, NDArray[np.intp]]:
  """D_aj of `adapters` [m] and the rows of the table, if they are what they were."""
  rows = retained_lib.join(retained)
  members = membership.members_of(rows.routes, num_adapters, adapters)
  found = np.zeros(len(rows.ids), np.intp)
  found[members.positions] = 1
  needed = np.flatnonzero(found)
  found[needed] = _checked_rows(samples, retained_lib.take(rows, needed))
  return members, found[members.positions]


def _index_in(values: Ids, wanted: Ids) -> NDArray[np.intp]:
  """Where each of `wanted` [m] stands in `values` [n], or -1."""
  order = np.argsort(values, kind="stable")
  found = np.searchsorted(values, wanted, sorter=order)
  index = order[np.minimum(found, len(values) - 1)]
  return np.where(values[index] == wanted, index, -1)


def _rows_of_lost(samples: Samples, left: Rows) -> NDArray[np.intp]:
  """The table's rows of samples that leave, or -1 if it has them no more."""
  rows = np.searchsorted(samples.ids, left.ids)
  rows[rows == len(samples.ids)] = 0
  same = (samples.prints[rows] == left.prints).all(axis=1)
  return np.where(same & (samples.ids[rows] == left.ids), rows, -1)


def _checked_rows(samples: Samples, wanted: Rows) -> NDArray[np.intp]:
  """The table's rows of `wanted`, if they are what they were."""
  try:
    rows = rows_of(samples, wanted.ids)
  except errors.UnknownIdError as e:
    raise errors.SamplesMismatchError(
      f"the table lacks a retained sample: {e}; hand in all samples of the state"
    ) from e
  differs = (samples.prints[rows] != wanted.prints).any(axis=1)
  if differs.any():
    raise errors.SamplesMismatchError(
      f"sample {wanted.ids[differs][0]} has another encoding or label than when it was"
      " learned; hand in the samples that the state was trained on"
    )
  return rows


@jax.jit
def _carry(weights: jax.Array, source: jax.Array, keep: jax.Array) -> jax.Array:
  """W [n, C, d] with each kept adapter in its new place and zeros in the others."""
  return jnp.where(keep[:, None, None], weights[source], 0.0)
