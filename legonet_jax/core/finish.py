"""What certified rounding left undecided inside jit, decided on the host.

A program never guesses: it flags an entry and names it in `Info`. Exact ties, and
systems near the end of float64's range, are flagged; a host has integers of any length.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from legonet_jax.core import single
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.data import Data
from legonet_jax.core.net import State
from legonet_jax.runtime import flags


@flags.host_only()
def finish(data: Data, state: State) -> State:
  """The state, or stack of states, with all weights decided."""
  undecided = np.asarray(state.solutions.undecided)
  if not (undecided > 0).any():
    return state
  weights = np.array(state.weights)
  for *place, j in np.argwhere(undecided > 0).tolist():
    one = jax.tree.map(lambda a, place=tuple(place): a[place], state)
    weights[(*place, j)] = decide(state.cfg, data, one, j)
  solutions = state.solutions._replace(
    weights=jax.device_put(weights, state.weights.sharding),
    undecided=jax.device_put(np.minimum(undecided, 0)),
  )
  return dataclasses.replace(state, solutions=solutions)


def decide(cfg: LegoConfig, data: Data, state: State, j: int) -> NDArray[Any]:
  """W_j [C, d] of adapter j of `state`, whatever it takes."""
  order = np.asarray(state.order)
  rows = order[(np.asarray(state.routes) == j).any(axis=1)[order]]
  who = state.seed, state.names[j]
  carry, _ = single.carry_rows(cfg, data, rows, np.ones(len(rows), np.int8), who)
  decided: NDArray[Any] = cfg.solver.finish(cfg, carry, len(rows))
  return decided
