"""What enters `functional`: shapes, types and kinds, checked while a call is traced."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.data import Data
from legonet_jax.core.net import State


def check(data: Data, state: State, axis_name: str | None = None) -> None:
  """Asserts the shapes and types of a table and a state that belong together."""
  if not isinstance(state, State):
    raise errors.ConfigError(
      f"a {type(state).__name__} is not a state of functional; start with"
      " functional.init, or call the function of legonet_jax with this name"
    )
  check_data(data)
  rows, dim = data.codes.shape
  n, k = state.cfg.num_adapters, state.cfg.top_k
  shapes = {
    "order": (rows,), "retained": (rows,), "routes": (rows, k), "keys": (n, dim),
  }  # fmt: skip
  for name, shape in shapes.items():
    why = f"state.{name} does not fit the table: {rows} rows of width {dim}, n = {n}"
    chex.assert_shape(getattr(state, name), shape, custom_message=why)
  chex.assert_type([state.keys, state.routes], [jnp.int8, jnp.int32])
  if axis_name is None and len(state.live) != n:
    raise errors.ConfigError(
      f"the state has {len(state.live)} of {n} adapters, as a device has inside of"
      " shard_map; give axis_name"
    )


def check_data(data: Data) -> None:
  """Asserts the shapes and types of a table."""
  if not isinstance(data, Data):
    raise errors.SampleError(
      f"data is a {type(data).__name__}; make it with functional.make_data(samples)"
    )
  rows = len(data.codes)
  kinds = {"codes": jnp.int8, "labels": jnp.int32, "ids": jnp.uint32}
  shapes = {"codes": (rows, None), "labels": (rows,), "ids": (rows, 2)}
  for name, kind in kinds.items():
    why = f"data.{name} is not what functional.make_data(samples) returns"
    chex.assert_type(getattr(data, name), kind, custom_message=why)
    chex.assert_shape(getattr(data, name), shapes[name], custom_message=why)


def check_rows(rows: ArrayLike, count: int) -> jax.Array:
  """Rows [R] int32 of a request to a table of `count`; `count` for one it lacks.

  R is rounded up to a power of two, so that few shapes are compiled. A mask, or
  anything else than integers, is refused.
  """
  found: Any = rows if isinstance(rows, jax.Array) else np.asarray(rows)
  chex.assert_rank(found, 1, custom_message="rows are a list of row numbers [R]")
  if found.size and not jnp.issubdtype(found.dtype, jnp.integer):
    raise errors.SampleError(
      f"rows are {found.dtype}; give row numbers [R], or a mask to functional.update"
    )
  library: Any = jnp if isinstance(found, jax.Array) else np
  # In their own type: a number beyond 32 bits must not become that of another row.
  inside = library.where((found >= 0) & (found < count), found, count)
  more = (1 << max(0, len(found) - 1).bit_length()) - len(found)
  padded = library.pad(inside.astype(np.int32), (0, more), constant_values=count)
  return jnp.asarray(padded)


def check_mask(retained: ArrayLike, count: int) -> jax.Array:
  """`retained` [N] bool; row numbers are refused."""
  found = jnp.asarray(retained)
  why = f"retained has one entry for each of the {count} rows of the table"
  chex.assert_shape(found, (count,), custom_message=why)
  if found.dtype != jnp.bool_:
    raise errors.SampleError(
      f"retained is {found.dtype}; give a mask [N] of bool, or row numbers to"
      " functional.forget and functional.learn"
    )
  return found


def check_seed(seed: ArrayLike) -> jax.Array:
  """A seed as uint32; one that is no integer from 0 to 2^32 - 1 is refused."""
  found: Any = seed if isinstance(seed, jax.Array) else np.asarray(seed)
  sound = found.ndim == 0 and jnp.issubdtype(found.dtype, jnp.integer)
  if sound and not isinstance(seed, jax.core.Tracer):
    sound = 0 <= int(found) < 2**32
  if not sound:
    raise errors.ConfigError(
      f"seed is {errors.brief(str(seed))}; give one integer from 0 to 2^32 - 1, and use"
      " vmap for many"
    )
  return jnp.asarray(found.astype(np.uint32))


def check_options(cfg: LegoConfig, options: dict[str, Any] | None) -> None:
  """Raises ConfigError if a solver does not read the options that it is given."""
  if options and not cfg.solver.takes_options:
    raise errors.ConfigError(
      f"{type(cfg.solver).__name__} has no options that can be traced; set"
      f" {', '.join(options)} in the solver, one program for each value"
    )
