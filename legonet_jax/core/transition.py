"""From one set of samples to another: the mechanism behind fit, unlearn and learn.

The contract: the state after any requests, in any order and batching, is bit for bit
the state of a fresh fit on the samples that remain. `rebuild` makes the state of a set
of samples and takes from an earlier state only results that it would compute again to
the same bits: routes of samples under the same keys, and weights of adapters with the
same id and the same members. A fit is a rebuild from the empty set.
"""

import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax.core import (
  changes as changes_lib,
  dispatch,
  ids as ids_lib,
  keys as keys_lib,
  membership,
  retained as retained_lib,
  routing,
  weights as weights_lib,
)
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.ids import Ids
from legonet_jax.core.model import Model, settings_of
from legonet_jax.core.samples import Samples
from legonet_jax.core.state import NO_ANCHOR, LegoState
from legonet_jax.core.weights import Weights
from legonet_jax.runtime import flags
from legonet_jax.runtime.callbacks import Progress


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
    old: the state to start from; not changed.
    removed: [r] ids in the set of `old`.
    added: [a] ids that are not in the set of `old`.
    progress: called with (samples passed, samples in all).
    defer: train nothing; adapters that would be trained are not live in the result
      and hold no weights. Any later rebuild without `defer` trains them.

  Returns:
    The new state and what was done.
  """
  start = time.perf_counter()
  _compile_all(cfg, old.model.keys.shape[1])
  anchors = _choose_anchors(cfg, old, removed, added)
  # An adapter is known by its id; `source` is its index in the old state, or -1.
  source = changes_lib.index_in(old.anchors, anchors)
  keys, retained, sizes, changes = changes_lib.compare(
    cfg, samples, old, removed, added, anchors
  )

  changed = source < 0
  changed[changes.adapters] = True
  changed |= ~np.asarray(old.model.live)[source]  # empty, or deferred: no weights
  live = (sizes > 0) & ~changed if defer else sizes > 0
  retrain = np.flatnonzero(changed & live)
  notes = [old.notes[s] if s >= 0 else None for s in source.tolist()]
  task = dispatch.Task(
    samples=samples,
    adapters=retrain,
    ids=anchors[retrain],
    sizes=sizes[retrain],
    members=functools.partial(
      changes_lib.find_members, samples, retained, len(anchors)
    ),
    changes=changes,
    notes=[notes[j] for j in retrain.tolist()],
  )
  weights = _carry(old, np.maximum(source, 0), ~changed)
  new: dict[int, Any] = {}
  solutions = dispatch.train(cfg, task, progress)
  for j, found in zip(retrain.tolist(), solutions, strict=True):
    new[j], notes[j] = found.weights, found.statistics
  weights = _place(weights, new)
  for j in np.flatnonzero(~live).tolist():
    notes[j] = None

  settings = old.model.settings or settings_of(cfg)
  model = Model(keys, weights, jax.device_put(live), settings)
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
  dispatch.compile_all(cfg, dim)


def _choose_anchors(cfg: LegoConfig, old: LegoState, removed: Ids, added: Ids) -> Ids:
  """The anchors of the new set; only the policy `replace` changes existing anchors."""
  stay = not len(added) and not np.isin(removed, old.anchors).any()
  if NO_ANCHOR not in old.anchors and (stay or cfg.key_policy != "replace"):
    return old.anchors
  # Without `removed`, the first n retained ids are among these.
  first = retained_lib.first(old.retained, cfg.num_adapters + len(removed))
  ids = np.concatenate([first[~np.isin(first, removed)], added])
  return keys_lib.choose_anchors(cfg, ids[ids_lib.hash_order(cfg.seed, ids)])


def _carry(old: LegoState, source: NDArray[np.intp], keep: NDArray[np.bool_]) -> Any:
  """W [n, C, d] with each kept adapter in its new place and zeros in the others."""
  if isinstance(old.model.weights, Weights):
    return weights_lib.exchange(old.model.weights, source, keep)
  if not retained_lib.count(old.retained):  # a fit
    return jnp.zeros(old.model.weights.shape, jnp.float32)
  return _carry_array(old.model.weights, source, keep)


@jax.jit
def _carry_array(weights: jax.Array, source: jax.Array, keep: jax.Array) -> jax.Array:
  return jnp.where(keep[:, None, None], weights[source], 0.0)


def _place(weights: Any, new: dict[int, NDArray[Any]]) -> Any:
  """The weights with W_j [C, d] of some adapters replaced."""
  if isinstance(weights, Weights):
    return weights_lib.replace(weights, new)
  for j, w in new.items():
    weights = _place_one(weights, np.int32(j), w)
  return weights


@functools.partial(jax.jit, donate_argnums=0)
def _place_one(weights: jax.Array, j: jax.Array, w: jax.Array) -> jax.Array:
  return weights.at[j].set(w)
