"""From one set of samples to another: the mechanism behind fit, unlearn and learn.

The contract: the state after any requests, in any order and batching, is bit for bit
the state of a fresh fit on the samples that remain. `advance` calls the steps of
`functional`: one program says how the new set differs from the old one, and adapters
that changed are dispatched, side by side on the cores of a CPU, to the step that trains
them. A fit is an advance from the empty set.
"""

import dataclasses
import functools
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax import functional
from legonet_jax.core import few_rows, ids as ids_lib
from legonet_jax.core.balance import Balance, balance
from legonet_jax.core.fold import keeps
from legonet_jax.core.ids import Ids
from legonet_jax.core.net import Change, State
from legonet_jax.core.samples import Samples
from legonet_jax.core.solver import Solution
from legonet_jax.core.training import Work, work_of
from legonet_jax.host import train as train_lib
from legonet_jax.host.attach import attach
from legonet_jax.host.state import LegoState, Rows, blank, count_members
from legonet_jax.runtime import flags
from legonet_jax.runtime.callbacks import Progress

_FEW = 16  # rows of a request that need no look at all the others


class Info(NamedTuple):
  """A report of one call.

  Attributes:
    adapters_retrained: adapters trained or solved anew, each counted once.
    adapters_masked: adapters that have members, but wait for training (deferred).
    samples_retrained: Σ |D_aj| over the retrained adapters; `Ridge` does not visit
      these samples again.
    anchors_replaced: adapters whose key now belongs to another sample.
    seconds: wall time.
    balance: the distribution of |D_aj| after the call.
    exact: whether the result equals a fresh fit; False under the policy `keep`.
  """

  adapters_retrained: int
  adapters_masked: int
  samples_retrained: int
  anchors_replaced: int
  seconds: float
  balance: Balance
  exact: bool


class _Step(NamedTuple):
  """What has to be trained.

  Attributes:
    net: the new state, but for its weights.
    work: what training reads.
    few: whether that is only the rows of the request.
    changed: [n] bool, adapters whose members changed, or that had no weights.
    source: [n] where each adapter stood, or -1.
    mendable: [n] bool, whether its statistics can be mended.
    replaced: how many anchors were.
  """

  net: State
  work: Work
  few: bool
  changed: NDArray[np.bool_]
  source: NDArray[np.int32]
  mendable: NDArray[np.bool_]
  replaced: int


def advance(
  state: LegoState,
  samples: Samples,
  removed: Ids,
  added: Ids,
  progress: Progress | None = None,
  defer: bool = False,
) -> tuple[LegoState, Info]:
  """The state of the set of `state`, less the ids `removed`, plus the ids `added`.

  Args:
    state: the state to start from; not changed.
    samples: a table with all samples of the new set.
    removed: [r] ids in the set of `state`.
    added: [a] ids that are not in the set of `state`.
    progress: called with (samples passed, samples in all).
    defer: train nothing; adapters that would be trained are not live in the result
      and hold no weights. Any later call without `defer` trains them.

  Returns:
    The new state and what was done.
  """
  start, cfg = time.perf_counter(), state.cfg
  state, whole = attach(state, samples, removed)
  with flags.pinned():
    step = None
    if whole and not defer and len(removed) + len(added) <= _FEW:
      step = _few(state, samples, removed, added)
    elif not whole and not len(added):
      step = _missing(state, samples, removed)
    if step is None:
      step = _all(state, samples, removed, added)
  sizes = np.asarray(step.net.sizes)
  live = (sizes > 0) & ~(step.changed & defer)
  jobs = np.flatnonzero(step.changed & live)
  solutions = _carry(state, step)
  job = train_lib.Job(
    cfg, samples.data, step.net, step.work, step.few, jobs, sizes[jobs],
    [solutions[j].statistics for j in jobs.tolist()], step.mendable[jobs],
  )  # fmt: skip
  none = blank(cfg, samples.codes.shape[1])
  for j in np.flatnonzero(step.changed).tolist():
    solutions[j] = none
  for j, found in zip(jobs.tolist(), train_lib.train(job, progress), strict=True):
    solutions[j] = found
  net = dataclasses.replace(step.net, live=jnp.asarray(live))
  info = Info(
    adapters_retrained=len(jobs),
    adapters_masked=int(np.sum((sizes > 0) & ~live)),
    samples_retrained=int(sizes[jobs].sum()),
    anchors_replaced=step.replaced,
    seconds=time.perf_counter() - start,
    balance=balance(sizes),
    exact=cfg.key_policy != "keep",
  )
  rows = _exchange(state.rows, samples, removed, added)
  new = dataclasses.replace(state, rows=rows, net=net, solutions=tuple(solutions))
  return new, info


def _exchange(rows: Rows, samples: Samples, removed: Ids, added: Ids) -> Rows:
  """The rows without `removed`, of which nothing is kept, and with `added`."""
  ids, prints = rows.ids, rows.prints
  at, there = ids_lib.locate(ids, removed)  # some may have left with the table
  if there.any():
    at = at[there]
    ids, prints = np.delete(ids, at), np.delete(prints, at, axis=0)
  if len(added):
    wanted = np.sort(added)
    new = samples.prints[np.searchsorted(samples.ids, wanted)]
    at = np.searchsorted(ids, wanted)
    ids, prints = np.insert(ids, at, wanted), np.insert(prints, at, new, axis=0)
  return Rows(ids, prints, samples.table)


def _carry(state: LegoState, step: _Step) -> list[Solution]:
  """The solution of each adapter in its new place; of a new one, anything."""
  return [state.solutions[s] for s in np.maximum(step.source, 0).tolist()]


def _few(state: LegoState, samples: Samples, removed: Ids, added: Ids) -> _Step | None:
  """The step of a few rows under the same keys, flat in N; None if it takes more."""
  cfg, net, data = state.cfg, state.net, samples.data
  if (len(removed) > 0 and len(added) > 0) or not len(removed) + len(added):
    return None
  come, n = len(added) > 0, cfg.num_adapters
  rows = np.full(_FEW, len(data.labels), np.int32)
  wanted = np.searchsorted(samples.ids, added if come else removed)
  rows[: len(wanted)] = wanted
  plain, near = few_rows.look(data, net, jnp.asarray(rows), np.bool_(come))
  touched = np.zeros(n + 1, bool)
  touched[np.asarray(near)] = True
  if not plain:
    return None
  touched = touched[:n]
  known = [state.solutions[j].statistics is not None for j in np.flatnonzero(touched)]
  few = keeps(cfg) and all(known)  # after a load, sums are not known
  new, work = _move(data, net, jnp.asarray(rows), near, np.bool_(come), few=few)
  same = np.arange(n, dtype=np.int32)
  return _Step(new, work, few, touched, same, np.full(n, few), 0)


def _missing(state: LegoState, samples: Samples, removed: Ids) -> _Step | None:
  """The step without samples that have left the table already; None if a key moves.

  Their adapters are not live, and all others stay (see `attach`).
  """
  cfg, net, data, n = state.cfg, state.net, samples.data, state.cfg.num_adapters
  if np.isin(removed, samples.ids).any() or np.isin(removed, state.anchors).any():
    return None
  count, rows = len(samples.ids), np.arange(len(data.labels), dtype=np.int32)
  rows[:count] = ids_lib.hash_order(cfg.seed, samples.ids)
  sizes = count_members(np.asarray(net.routes), n)
  net = dataclasses.replace(net, order=jnp.asarray(rows), sizes=jnp.asarray(sizes))
  work = Work(
    data, net.order, net.routes, None, None, net.seed, net.options, net.names,
    net.sizes, jnp.asarray(np.int32(0)), None,
  )  # fmt: skip
  same = np.arange(n, dtype=np.int32)
  return _Step(net, work, False, ~state.live, same, np.zeros(n, bool), 0)


def _all(state: LegoState, samples: Samples, removed: Ids, added: Ids) -> _Step:
  """The step to any set."""
  net, data = state.net, samples.data
  mask = np.array(net.retained)
  rows, there = ids_lib.locate(samples.ids, removed)
  mask[rows[there]] = False
  mask[np.searchsorted(samples.ids, added)] = True
  new, work, change = _compare(data, net, jnp.asarray(mask), keeps(state.cfg))
  source, touched = np.asarray(change.source), np.asarray(change.touched)
  usable = (source >= 0) & state.live[source]
  mendable = usable & (touched < 2)
  mendable &= np.array([s.statistics is not None for s in state.solutions])[source]
  changed = (touched > 0) | ~usable
  replaced = int(np.asarray(change.replaced).sum())
  return _Step(new, work, False, changed, source, mendable, replaced)


@functools.partial(jax.jit, static_argnums=3)
def _compare(
  data: functional.Data, net: State, retained: jax.Array, known: bool
) -> tuple[State, Work, Change]:
  new, change = functional.compare(data, net, retained)
  return new, work_of(data, new, change, known), change


_move = jax.jit(few_rows.move, static_argnames="few")
