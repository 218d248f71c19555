"""Many models of one table at once: shadow models for attacks and studies.

Each model has a seed and a set of samples of its own. On a CPU they are trained one
after the other, in one compiled loop; elsewhere side by side, as many as memory holds.
"""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import Any

import chex
import jax

from legonet_jax.core.config import LegoConfig
from legonet_jax.core.data import Data
from legonet_jax.core.fold import keeps
from legonet_jax.core.net import State

_BYTES = 2**31  # of the states that are trained side by side


def many(
  init: Callable[..., State],
  update: Callable[..., Any],
  cfg: LegoConfig,
  data: Data,
  seeds: jax.Array,
  masks: jax.Array,
  side_by_side: int | None,
) -> State:
  """See `functional.many`."""
  chex.assert_rank([seeds, masks], [1, 2])
  chex.assert_equal_shape_prefix([seeds, masks], 1)
  if keeps(cfg):  # of as many models, sums would be the largest part by far
    cfg = dataclasses.replace(cfg, solver=dataclasses.replace(cfg.solver, keep=False))

  def one(seed: jax.Array, mask: jax.Array) -> State:
    state: State = update(data, init(cfg, data, seed), mask)[0]
    return state

  if side_by_side is None:
    shapes = jax.tree.leaves(jax.eval_shape(one, seeds[0], masks[0]))
    each = sum(math.prod(a.shape) * a.dtype.itemsize for a in shapes)
    side_by_side = 1 if jax.default_backend() == "cpu" else max(1, _BYTES // each)
  number = min(side_by_side, len(seeds))
  call: Any = functools.partial(jax.lax.map, lambda pair: one(*pair))
  found: State
  if number == len(seeds) > 1:
    found = jax.vmap(one)(seeds, masks)
  elif number == 1:
    found = call((seeds, masks))
  else:
    found = call((seeds, masks), batch_size=number)
  return found
