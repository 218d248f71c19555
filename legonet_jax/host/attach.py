"""A state put on the rows of another table, when the caller's table has changed."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import ids as ids_lib
from legonet_jax.core.ids import Ids
from legonet_jax.core.samples import Samples
from legonet_jax.host.state import LegoState, Rows, find_rows


def attach(state: LegoState, samples: Samples, leaving: Ids) -> tuple[LegoState, bool]:
  """The state with the rows of `samples`, and whether it is whole.

  A sample that leaves may be missing from the table. Its adapters are then not live, so
  that they are trained from their other members.

  Args:
    state: the state.
    samples: the table.
    leaving: [r] ids that the request forgets.

  Raises:
    SamplesMismatchError: if another sample is missing, or has changed.
  """
  if state.rows.table is samples.table:
    return state, True
  cfg, net, rows = state.cfg, state.net, state.rows
  count, n = len(samples.data.labels), cfg.num_adapters
  held = np.flatnonzero(net.retained)
  to, there = _find(samples, rows, leaving)
  old_routes = np.asarray(net.routes)
  routes = np.full((count, cfg.top_k), n, np.int32)
  routes[to[there]] = old_routes[held[there]]
  retained = np.zeros(count, bool)
  retained[to[there]] = True
  live = np.append(state.live, False)
  live[old_routes[held[~there]]] = False
  placed = dataclasses.replace(
    net,
    order=jnp.asarray(np.arange(count, dtype=np.int32)),
    retained=jnp.asarray(retained),
    anchors=jnp.asarray(find_rows(cfg, samples.ids, state.anchors, count)),
    routes=jnp.asarray(routes),
    live=jnp.asarray(live[:n]),
  )
  new_rows = Rows(rows.ids[there], rows.prints[there], samples.table)
  return dataclasses.replace(state, rows=new_rows, net=placed), bool(there.all())


def _find(
  samples: Samples, rows: Rows, leaving: Ids
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
  """Where the samples of a state [m] are in the table, and whether they are."""
  wanted = rows.ids
  at, there = ids_lib.locate(samples.ids, wanted)
  lost = np.setdiff1d(wanted[~there], leaving)
  if len(lost):
    raise errors.SamplesMismatchError(
      f"the table lacks a retained sample: no sample has id {lost[0]}; pass all samples"
      " of the state"
    )
  same = there.copy()
  same[there] = (samples.prints[at[there]] == rows.prints[there]).all(axis=1)
  changed = np.setdiff1d(wanted[there & ~same], leaving)
  if len(changed):
    raise errors.SamplesMismatchError(
      f"sample {changed[0]} has another encoding or label than when it was learned;"
      " pass the samples that the state was trained on"
    )
  return at, same
