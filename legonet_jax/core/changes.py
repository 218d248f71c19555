"""The diff between two sets of samples, the first step of every request.

Given the state of one set and the ids that leave and join, this module finds the new
routes, |D_aj|, and which adapters gained or lost which members. If no key moves, it
reads only the samples of the request. If an anchor was forgotten, keys move, and it
routes all samples again and compares the routes.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import (
  keys as keys_lib,
  membership,
  retained as retained_lib,
  routing,
)
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.ids import Ids
from legonet_jax.core.membership import Changes
from legonet_jax.core.retained import Retained, RetainedRows
from legonet_jax.core.samples import Samples, rows_of
from legonet_jax.core.state import LegoState


class Diff(NamedTuple):
  """The new set, and how it differs from the old one.

  Attributes:
    keys: K [n, d] int8.
    retained: the samples of the new set, with their routes.
    sizes: [n] |D_aj|.
    changes: the samples that joined or left adapters that existed before.
  """

  keys: jax.Array
  retained: Retained
  sizes: NDArray[np.int64]
  changes: Changes


def compare(
  cfg: LegoConfig,
  samples: Samples,
  old: LegoState,
  removed: Ids,
  added: Ids,
  anchors: Ids,
) -> Diff:
  """The diff from the set of `old` to the same set less `removed` plus `added`.

  Args:
    cfg: the settings.
    samples: a table with all samples of the new set.
    old: the state before.
    removed: [r] ids in the set of `old`.
    added: [a] ids that are not in the set of `old`.
    anchors: [n] ids of the new set's anchors.
  """
  if np.array_equal(anchors, old.anchors):
    return _compare_under_same_keys(cfg, samples, old, removed, added)
  return _compare_under_new_keys(cfg, samples, old, removed, added, anchors)


def _compare_under_same_keys(
  cfg: LegoConfig, samples: Samples, old: LegoState, removed: Ids, added: Ids
) -> Diff:
  """`compare` if no key moved, in a time that does not depend on N."""
  n = cfg.num_adapters
  _, left = retained_lib.look_up(cfg.seed, old.retained, removed)
  rows = rows_of(samples, added)
  routes = np.zeros((0, cfg.top_k), np.int32)
  if len(added):
    routes = routing.route_array(cfg, samples.codes, np.asarray(old.model.keys), rows)
  joined = RetainedRows(added, routes, samples.prints[rows])
  retained = retained_lib.exchange(cfg.seed, old.retained, removed, joined)
  sizes = old.sizes - membership.sizes_of(left.routes, n)
  sizes += membership.sizes_of(joined.routes, n)
  ways = ((left.routes, _find_lost_rows(samples, left), -1), (routes, rows, 1))
  return Diff(old.model.keys, retained, sizes, _list_changes(cfg, ways))


def _compare_under_new_keys(
  cfg: LegoConfig,
  samples: Samples,
  old: LegoState,
  removed: Ids,
  added: Ids,
  anchors: Ids,
) -> Diff:
  """`compare` if keys moved: routes all samples again and compares the routes."""
  n = cfg.num_adapters
  source = index_in(old.anchors, anchors)
  to_new = np.full(n + 1, n)  # n stands for no adapter, or for one that is gone
  to_new[source[source >= 0]] = np.flatnonzero(source >= 0)
  _, left = retained_lib.look_up(cfg.seed, old.retained, removed)
  blank = np.full((len(added), cfg.top_k), n, np.int32)
  joined = RetainedRows(added, blank, samples.prints[rows_of(samples, added)])
  retained = retained_lib.exchange(cfg.seed, old.retained, removed, joined)
  all_rows = retained_lib.join(retained)
  rows = _check_rows(samples, all_rows)
  keys = keys_lib.keys_from_anchors(cfg, samples, anchors)
  routes = routing.route_array(cfg, samples.codes, keys, rows)
  sizes = membership.sizes_of(routes, n)
  retained = retained_lib.split(
    all_rows._replace(routes=routes), retained_lib.counts(retained)
  )
  # Only adapters that existed before can have changed.
  before = to_new[all_rows.routes]
  after = np.where(source[routes] >= 0, routes, n)
  moved = np.flatnonzero((np.sort(before) != np.sort(after)).any(axis=1))
  before, after, rows = before[moved], after[moved], rows[moved]
  # If a sample stays with an adapter, that is no change.
  stays = before[:, :, None] == after[:, None, :]
  ways = (
    (to_new[left.routes], _find_lost_rows(samples, left), -1),
    (np.where(stays.any(axis=2), n, before), rows, -1),
    (np.where(stays.any(axis=1), n, after), rows, 1),
  )
  return Diff(jax.device_put(keys), retained, sizes, _list_changes(cfg, ways))


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


def find_members(
  samples: Samples, retained: Retained, num_adapters: int, adapters: NDArray[np.intp]
) -> tuple[membership.Members, NDArray[np.intp]]:
  """D_aj of `adapters` [m], and the members' rows in the table, checked for changes."""
  rows = retained_lib.join(retained)
  members = membership.members_of(rows.routes, num_adapters, adapters)
  found = np.zeros(len(rows.ids), np.intp)
  found[members.positions] = 1
  needed = np.flatnonzero(found)
  found[needed] = _check_rows(samples, retained_lib.take(rows, needed))
  return members, found[members.positions]


def index_in(values: Ids, wanted: Ids) -> NDArray[np.intp]:
  """The index of each of `wanted` [m] in `values` [n], or -1."""
  order = np.argsort(values, kind="stable")
  found = np.searchsorted(values, wanted, sorter=order)
  index = order[np.minimum(found, len(values) - 1)]
  return np.where(values[index] == wanted, index, -1)


def _find_lost_rows(samples: Samples, left: RetainedRows) -> NDArray[np.intp]:
  """The table's row of each sample that leaves, or -1 if the table lacks it."""
  rows = np.searchsorted(samples.ids, left.ids)
  rows[rows == len(samples.ids)] = 0
  same = (samples.prints[rows] == left.prints).all(axis=1)
  return np.where(same & (samples.ids[rows] == left.ids), rows, -1)


def _check_rows(samples: Samples, wanted: RetainedRows) -> NDArray[np.intp]:
  """The table's rows of `wanted`; raises if a sample is missing or has changed."""
  try:
    rows = rows_of(samples, wanted.ids)
  except errors.UnknownIdError as e:
    raise errors.SamplesMismatchError(
      f"the table lacks a retained sample: {e}; pass all samples of the state"
    ) from e
  differs = (samples.prints[rows] != wanted.prints).any(axis=1)
  if differs.any():
    raise errors.SamplesMismatchError(
      f"sample {wanted.ids[differs][0]} has another encoding or label than when it was"
      " learned; pass the samples that the state was trained on"
    )
  return rows
