"""What enters `functional`: shapes, types and kinds, checked while a call is traced."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.data import Data
from legonet_jax.core.net import State


def check(data: Data, state: State) -> None:
  """Asserts the shapes and types of a table and a state that belong together."""
  if not isinstance(state, State):
    raise errors.ConfigError(
      f"a {type(state).__name__} is not a state of functional; start with"
      " functional.init, or call the function of legonet_jax with this name"
    )
  rows, dim = data.codes.shape
  n, k = state.cfg.num_adapters, state.cfg.top_k
  chex.assert_shape(
    [data.labels, data.ids, state.order, state.retained, state.routes, state.keys],
    [(rows,), (rows, 2), (rows,), (rows,), (rows, k), (n, dim)],
  )
  chex.assert_type(
    [data.codes, data.labels, data.ids, state.keys, state.routes],
    [jnp.int8, jnp.int32, jnp.uint32, jnp.int8, jnp.int32],
  )


def check_rows(rows: ArrayLike) -> jax.Array:
  """Rows [R] int32 of a request; a mask, or anything else than integers, is refused."""
  found = jnp.asarray(rows)
  chex.assert_rank(found, 1)
  if not jnp.issubdtype(found.dtype, jnp.integer):
    raise errors.SampleError(
      f"rows are {found.dtype}; give row numbers [R], or a mask to functional.update"
    )
  return found.astype(jnp.int32)


def check_mask(retained: ArrayLike, count: int) -> jax.Array:
  """`retained` [N] bool; row numbers are refused."""
  found = jnp.asarray(retained)
  chex.assert_shape(found, (count,))
  if found.dtype != jnp.bool_:
    raise errors.SampleError(
      f"retained is {found.dtype}; give a mask [N] of bool, or row numbers to"
      " functional.forget and functional.learn"
    )
  return found


def check_options(cfg: LegoConfig, options: dict[str, Any] | None) -> None:
  """Raises ConfigError if a solver does not read the options that it is given."""
  if options and not cfg.solver.takes_options:
    raise errors.ConfigError(
      f"{type(cfg.solver).__name__} has no options that can be traced; set"
      f" {', '.join(options)} in the solver, one program for each value"
    )
