"""Where a prediction runs: in the caller's trace, on devices, or on the host.

A prediction is a pair of functions. One is pure and traced, for `jit` and devices; the
other takes host arrays and computes with exact codes.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike
import numpy as np
from numpy.typing import NDArray

from legonet_jax.core.config import LegoConfig, for_prediction
from legonet_jax.core.model import Model
from legonet_jax.core.weights import Weights

BLOCK = 128  # rows of one block


def apply(
  on_device: Callable[[LegoConfig, Model, jax.Array], jax.Array],
  on_host: Callable[[LegoConfig, Model, NDArray[Any]], NDArray[Any]],
  cfg: LegoConfig,
  model: Model,
  encodings: ArrayLike,
) -> jax.Array:
  """Applies a function where the encodings are: in a trace, on devices, on the host."""
  if any(isinstance(x, jax.core.Tracer) for x in (encodings, *_leaves(model))):
    return on_device(cfg, model, jnp.asarray(encodings))
  if isinstance(encodings, jax.Array) and not _is_on_host(encodings):
    return _on_devices(on_device, *share(cfg, model), encodings)
  return jnp.asarray(on_host(cfg, model, np.asarray(encodings)))


def _leaves(model: Model) -> list[Any]:
  """The arrays of a model, without putting its weights together."""
  weights = model.weights
  whole = weights.whole_or_none if isinstance(weights, Weights) else weights
  return [model.keys, model.live, whole]


def _is_on_host(array: jax.Array) -> bool:
  devices: list[Any] = list(array.sharding.device_set)
  return len(devices) == 1 and devices[0].platform == "cpu"


def _on_devices(
  call: Callable[..., jax.Array], cfg: LegoConfig, model: Model, encodings: jax.Array
) -> jax.Array:
  """`call` where the encodings are: on one device, or split by rows over many."""
  where: Any = encodings.sharding
  spec = tuple(where.spec) if isinstance(where, NamedSharding) else ()
  out: jax.Array
  if spec and spec[0] is not None and not any(spec[1:]):
    everywhere = NamedSharding(where.mesh, PartitionSpec())  # type: ignore[no-untyped-call]
    model = jax.device_put(model, everywhere)
    out = _split(call, cfg, where.mesh, spec[0], model, encodings)
  else:
    out = _whole(call, cfg, model, encodings)
  return out


@functools.partial(jax.jit, static_argnums=(0, 1))
def _whole(
  call: Callable[..., jax.Array], cfg: LegoConfig, model: Model, encodings: jax.Array
) -> jax.Array:
  return call(cfg, model, encodings)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _split(
  call: Callable[..., jax.Array],
  cfg: LegoConfig,
  mesh: Mesh,
  axis: Any,
  model: Model,
  encodings: jax.Array,
) -> jax.Array:
  """`call` by each device of a mesh on its own rows; nothing moves between them.

  Without this, XLA would gather the scores of all rows on every device for `top_k`.
  """
  by_row, whole = PartitionSpec(axis), PartitionSpec()  # type: ignore[no-untyped-call]
  split: jax.Array = jax.shard_map(
    functools.partial(call, cfg),
    mesh=mesh,
    in_specs=(whole, by_row),
    out_specs=by_row,
  )(model, encodings)
  return split


def share(cfg: LegoConfig, model: Model) -> tuple[LegoConfig, Model]:
  """Settings and model without the fields that do not affect the arithmetic.

  JAX caches executables by static arguments; so all seeds, solvers and encoders share
  one.
  """
  shared = for_prediction(dataclasses.replace(cfg, encoder=""))
  return shared, model._replace(settings=None)


def by_blocks(
  call: Callable[[Model, jax.Array], jax.Array], model: Model, encodings: jax.Array
) -> jax.Array:
  """`call` of [B, d], block by block, so that what it needs in memory stays small.

  If rows are split over the explicit axes of a mesh, each device calls it with its own.
  """
  where: Any = getattr(jax.typeof(encodings), "sharding", None)
  axis = where.spec[0] if where is not None and where.spec else None
  if axis is not None:
    by_row, whole = PartitionSpec(axis), PartitionSpec()  # type: ignore[no-untyped-call]
    everywhere = NamedSharding(where.mesh, whole)
    reshard: Any = jax.sharding.reshard
    split: jax.Array = jax.shard_map(
      functools.partial(_in_blocks, call),
      mesh=where.mesh,
      in_specs=(whole, by_row),
      out_specs=by_row,
    )(reshard(model, everywhere), encodings)
    return split
  return _in_blocks(call, model, encodings)


def _in_blocks(
  call: Callable[[Model, jax.Array], jax.Array], model: Model, encodings: jax.Array
) -> jax.Array:
  count, dim = encodings.shape
  if isinstance(count, int) and count <= BLOCK:
    return call(model, encodings)
  number = -(-count // BLOCK)
  padded = jnp.pad(encodings, ((0, number * BLOCK - count), (0, 0)))
  # Block b has the rows b, b + number, b + 2 number ..., so that if a batch is split
  # over devices, each device has an equal part of every block.
  blocks = padded.reshape(BLOCK, number, dim).swapaxes(0, 1)
  out: jax.Array = jax.lax.map(functools.partial(call, model), blocks).swapaxes(0, 1)
  return out.reshape(number * BLOCK, *out.shape[2:])[:count]
