"""One adapter from given rows of a table: for oracles, measurements and `finish`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np
from numpy.typing import NDArray

from legonet_jax.core.config import LegoConfig, for_one_adapter
from legonet_jax.core.data import Data
from legonet_jax.core.fold import close, fold, make_adapter, size_of
from legonet_jax.core.solver import Adapter, Members, Solution
from legonet_jax.runtime import flags

Who = tuple[ArrayLike, ArrayLike]  # the seed, and an id as words [2]


@flags.pinned()
def carry_rows(
  cfg: LegoConfig,
  data: Data,
  rows: NDArray[Any],
  signs: NDArray[np.int8],
  who: Who,
  start: Any = None,
) -> tuple[Any, jax.Array]:
  """The solver's carry after some rows, and whether it is right.

  Args:
    cfg: the settings.
    data: the table.
    rows: [m] the members, or those that joined and left since `start`.
    signs: [m] 1 or -1.
    who: the seed and the adapter's id as words [2].
    start: the statistics before, or None.
  """
  members, adapter = _members(data, rows, signs), make_adapter(*_words(who), {})
  found: tuple[Any, jax.Array] = _carry(for_one_adapter(cfg), members, adapter, start)
  return found


@flags.pinned()
def solve_carry(cfg: LegoConfig, carry: Any, fits: ArrayLike = True) -> Solution:
  """The solution of one adapter from what `carry_rows` returned."""
  found: Solution = _close(for_one_adapter(cfg), carry, jnp.asarray(fits))
  return found


def _words(who: Who) -> tuple[jax.Array, jax.Array]:
  return jnp.asarray(who[0], jnp.uint32), jnp.asarray(who[1], jnp.uint32)


def _members(data: Data, rows: NDArray[Any], signs: NDArray[np.int8]) -> Members:
  m = len(rows)
  more = size_of(m) - m  # one of a few sizes, so that few shapes are compiled
  rows, signs = np.pad(rows.astype(np.int32), (0, more)), np.pad(signs, (0, more))
  return Members(data.codes, data.labels, rows, signs, np.int32(m))


@functools.partial(jax.jit, static_argnums=0)
def _carry(
  cfg: LegoConfig, members: Members, adapter: Adapter, start: Any
) -> tuple[Any, jax.Array]:
  if start is None:
    start = cfg.solver.init(cfg, members.codes.shape[1], adapter)
  return fold(cfg, members, adapter, start, True, cfg.solver.passes)


_close = jax.jit(close, static_argnums=0)
