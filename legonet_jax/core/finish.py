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
  """The state with all weights decided; the same state if they are."""
  (open_,) = np.nonzero(np.asarray(state.solutions.undecided) > 0)
  if not len(open_):
    return state
  weights = np.array(state.weights)
  for j in open_.tolist():
    weights[j] = decide(state.cfg, data, state, j)
  undecided = np.asarray(state.solutions.undecided)
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
  decided: NDArray[Any] = cfg.solver.finish(cfg, carry)
  return decided
