"""What certified rounding left undecided inside jit, decided on the host.

A program never guesses: it flags an entry and names it in `Info`. Exact ties, and
systems near the end of float64's range, are flagged; a host has integers of any length.
"""

import dataclasses

import jax
import numpy as np

from legonet_jax.core import dispatch
from legonet_jax.core.config import for_one_adapter
from legonet_jax.core.data import Data
from legonet_jax.core.net import State
from legonet_jax.core.samples import Samples
from legonet_jax.runtime import flags


@flags.host_only
def finish(data: Data, state: State) -> State:
  """The state with all weights decided; the same state if they are.

  Raises:
    ConfigError: if an adapter cannot be solved at all.
  """
  (open_,) = np.nonzero(np.asarray(state.solutions.undecided) > 0)
  if not len(open_):
    return state
  cfg, weights = for_one_adapter(state.cfg), np.array(state.weights)
  routes, order = np.asarray(state.routes), np.asarray(state.order)
  none = np.zeros(0, np.uint8)  # of the host's table, only codes and labels are read
  codes, labels = np.asarray(data.codes), np.asarray(data.labels)
  table = Samples(np.zeros(0, np.int64), codes, labels, none, none)
  for j in open_.tolist():
    rows = order[(routes == j).any(axis=1)[order]]
    signs, words = np.ones(len(rows), np.int8), np.asarray(state.names)[j]
    who = np.uint32(state.seed), words
    weights[j] = dispatch.solve_rows(cfg, table, rows, signs, who).weights
  undecided = np.asarray(state.solutions.undecided)
  solutions = state.solutions._replace(
    weights=jax.device_put(weights, state.weights.sharding),
    undecided=jax.device_put(np.minimum(undecided, 0)),
  )
  return dataclasses.replace(state, solutions=solutions)
