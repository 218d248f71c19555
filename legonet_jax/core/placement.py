"""Where a prediction runs: in the caller's trace, on devices, or block by block.

A prediction is one pure function of a block of rows. Wherever it runs, rows are padded
to whole blocks or are fewer than one, and no bit depends on which.
"""

from collections.abc import Callable
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike
import numpy as np
from numpy.typing import NDArray

from legonet_jax.core import features
from legonet_jax.core.model import Model, check_shape
from legonet_jax.runtime import parallel

BLOCK = 2048  # rows of one block
_FEW = 128  # rows of a host array that need no whole block

Call = Callable[[Model, jax.Array], jax.Array]


def apply(call: Call, model: Model, encodings: ArrayLike) -> jax.Array:
  """Applies a function where the encodings are: in a trace, on devices, on the host."""
  if any(isinstance(x, jax.core.Tracer) for x in (encodings, *jax.tree.leaves(model))):
    return by_blocks(call, model, jnp.asarray(encodings))
  if isinstance(encodings, jax.Array) and not _is_on_host(encodings):
    return _on_devices(call, model, encodings)
  return jnp.asarray(on_host(call, model, np.asarray(encodings)))


def on_host(call: Call, model: Model, encodings: NDArray[Any]) -> NDArray[Any]:
  """`call` of a host array [B, d], mapped exactly; compiles at most two shapes, ever.

  Rows that cannot be mapped are NaN, or -1 if the result is of integers.
  """
  check_shape(model, encodings.shape, (2,))
  codes, sane = encodings, np.ones(len(encodings), bool)
  if encodings.dtype != np.int8:
    codes, sane = features.encode_sane(model.cfg, encodings)
  size = _FEW if len(codes) <= _FEW else BLOCK

  def block(start: int) -> NDArray[Any]:
    some = codes[start : start + size]
    padded = np.pad(some, ((0, size - len(some)), (0, 0)))
    return np.asarray(_whole(call, model, padded))[: len(some)]

  with parallel.one_blas_thread():
    starts = range(0, max(1, len(codes)), size)  # no rows are a block, too
    found = np.concatenate(list(parallel.each(block, starts)))
  found[~sane] = np.nan if found.dtype.kind == "f" else -1
  return found


def _is_on_host(array: jax.Array) -> bool:
  devices: list[Any] = list(array.sharding.device_set)
  return len(devices) == 1 and devices[0].platform == "cpu"


def _on_devices(call: Call, model: Model, encodings: jax.Array) -> jax.Array:
  """`call` where the encodings are: on one device, or split by rows over many."""
  where: Any = encodings.sharding
  spec = tuple(where.spec) if isinstance(where, NamedSharding) else ()
  out: jax.Array
  if spec and spec[0] is not None and not any(spec[1:]):
    everywhere = NamedSharding(where.mesh, PartitionSpec())  # type: ignore[no-untyped-call]
    model = jax.device_put(model, everywhere)
    out = _split(call, where.mesh, spec[0], model, encodings)
  else:
    out = _whole(call, model, encodings)
  return out


@functools.partial(jax.jit, static_argnums=0)
def _whole(call: Call, model: Model, encodings: jax.Array) -> jax.Array:
  return by_blocks(call, model, encodings)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _split(
  call: Call,
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
    functools.partial(by_blocks, call),
    mesh=mesh,
    in_specs=(whole, by_row),
    out_specs=by_row,
  )(model, encodings)
  return split


def by_blocks(call: Call, model: Model, encodings: jax.Array) -> jax.Array:
  """`call` of [B, d], block by block, so that what it needs in memory stays small."""
  found: jax.Array = by_rows(functools.partial(_in_blocks, call), model, encodings)
  return found


def by_rows(
  call: Callable[[Model, jax.Array], Any], model: Model, encodings: jax.Array
) -> Any:
  """`call` of [B, d].

  On the explicit axes of a mesh, each device gets the whole model and calls it with its
  own rows, or with all of them.
  """
  shardings = [
    jax.typeof(a).sharding for a in (encodings, *jax.tree.leaves(model))
  ]  # those of a trace
  explicit = [
    s for s in shardings if jax.sharding.AxisType.Explicit in s.mesh.axis_types
  ]
  if not explicit:
    return call(model, encodings)
  where: Any = explicit[0]
  rows = shardings[0].spec[:1] if where is shardings[0] else ()
  by_row = PartitionSpec(*rows)  # type: ignore[no-untyped-call]
  whole = PartitionSpec()  # type: ignore[no-untyped-call]
  reshard: Any = jax.sharding.reshard
  return jax.shard_map(
    call, mesh=where.mesh, in_specs=(whole, by_row), out_specs=by_row
  )(
    reshard(model, NamedSharding(where.mesh, whole)),
    reshard(encodings, NamedSharding(where.mesh, by_row)),
  )


def _in_blocks(call: Call, model: Model, encodings: jax.Array) -> jax.Array:
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
