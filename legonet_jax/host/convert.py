"""From a state of `functional` to one of the host API, to digest, save and serve it."""

import dataclasses

import numpy as np

from legonet_jax import errors
from legonet_jax.core import ids as ids_lib, samples as samples_lib
from legonet_jax.core.data import NO_ID, Data
from legonet_jax.core.net import State
from legonet_jax.core.samples import Samples
from legonet_jax.host.state import NO_ANCHOR, LegoState, from_arrays
from legonet_jax.host.validate import validate
from legonet_jax.runtime import flags


@flags.host_only()
def to_host(data: Data, state: State, samples: Samples) -> LegoState:
  """The state of the host API on the same samples, bit for bit.

  Args:
    data: the table of `state`.
    state: a state of `functional`, with nothing undecided (see `functional.finish`).
    samples: a table with at least the retained samples.

  Raises:
    ConfigError: if entries are undecided, or if options of the solver were traced,
      which no settings tell.
    UnknownIdError: if the table lacks a retained sample.
  """
  if np.any(np.asarray(state.solutions.undecided)):
    raise errors.ConfigError(
      "entries of weights are undecided; call functional.finish first"
    )
  if state.options:
    raise errors.ConfigError(
      "options of the solver were traced, so no settings describe this state; train it"
      " with settings that have their values"
    )
  cfg = dataclasses.replace(state.cfg, seed=int(state.seed))
  held, names = np.flatnonzero(state.retained), np.asarray(state.names)
  ids = ids_lib.from_words(np.asarray(data.ids)[held])
  order = ids_lib.hash_order(cfg.seed, ids)
  arrays = {
    "keys": np.asarray(state.keys),
    "weights": np.asarray(state.weights),
    "live": np.asarray(state.live),
    "anchors": np.where(names[:, 0] == NO_ID, NO_ANCHOR, ids_lib.from_words(names)),
    "ids": ids[order],
    "routes": np.asarray(state.routes)[held[order]],
    "prints": samples.prints[samples_lib.rows_of(samples, ids[order])],
  }
  made = from_arrays(arrays, cfg)
  validate({**arrays, "settings": made.settings}, cfg)
  return made
