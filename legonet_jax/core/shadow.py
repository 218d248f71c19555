"""Many models of one table at once: shadow models for attacks and studies.

Each model has a seed and a set of samples of its own. On a CPU each core trains a part
of them, one after the other, in one compiled loop; elsewhere as many are trained side
by side as memory holds.
"""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import Any

import chex
import jax
import jax.numpy as jnp

from legonet_jax.core.config import LegoConfig
from legonet_jax.core.data import Data
from legonet_jax.core.doors import check_data
from legonet_jax.core.fold import keeps
from legonet_jax.core.net import State
from legonet_jax.runtime import parallel

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
  check_data(data)
  seeds, masks = jnp.asarray(seeds), jnp.asarray(masks)
  chex.assert_rank([seeds, masks], [1, 2], custom_message="seeds [m] and masks [m, N]")
  chex.assert_equal_shape_prefix([seeds, masks], 1)
  if keeps(cfg):  # of as many models, sums would be the largest part by far
    cfg = dataclasses.replace(cfg, solver=dataclasses.replace(cfg.solver, keep=False))
  program = functools.partial(_program, init, update, cfg, side_by_side, data)
  count, cores = len(seeds), parallel.count()
  traced = any(isinstance(a, jax.core.Tracer) for a in (seeds, masks, *data))
  if traced or side_by_side is not None or cores == 1 or count == 1:
    found: State = program(seeds, masks)
    return found
  size = -(-count // cores)  # of all parts, so that they share an executable

  def part(start: int) -> State:
    at = jnp.minimum(jnp.arange(start, start + size), count - 1)
    done: State = program(seeds[at], masks[at])
    done.weights.block_until_ready()
    return done

  with parallel.one_blas_thread():
    parts = list(parallel.each(part, range(0, count, size)))
  whole: State = jax.tree.map(lambda *a: jnp.concatenate(a)[:count], *parts)
  return whole


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _program(
  init: Callable[..., State],
  update: Callable[..., Any],
  cfg: LegoConfig,
  side_by_side: int | None,
  data: Data,
  seeds: jax.Array,
  masks: jax.Array,
) -> State:
  """`many` as one program."""

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
