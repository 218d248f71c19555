"""e = En(x): images to encodings, once, at one fixed batch shape.

The last bit of an encoding may depend on the shape of its batch. So every batch has the
same shape (the last one is padded), and an encoding is computed only once: it is stored
under the sample's id.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.data.dataset import Dataset
from legonet_jax.encoder import resnet
from legonet_jax.runtime import blocks, flags

Params = Any
Encode = Callable[[Params, jax.Array], jax.Array]

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
# Per device and step. More images are not faster, and all of them take memory.
_MOST_IMAGES = 1 << 14


@dataclasses.dataclass(frozen=True)
class ImageEncoder:
  """How images become encodings, without the network's parameters.

  Attributes:
    name: `resnet18`, `resnet34` or `resnet50`.
    size: images are scaled to this height and width.
    compute: the type that the network computes in.
  """

  name: str = "resnet34"
  size: int = 224
  compute: Literal["float32", "bfloat16"] = "float32"


def check(spec: ImageEncoder) -> None:
  """Raises ConfigError if `spec` is not valid."""
  resnet.build_resnet(spec.name)
  if not 32 <= spec.size <= 1024:
    raise errors.ConfigError(f"size is {spec.size}; it must be in 32 ... 1024")
  if spec.compute not in ("float32", "bfloat16"):
    raise errors.ConfigError(f"compute is {spec.compute}; use float32 or bfloat16")


def check_batch(batch: int, devices: int) -> None:
  """Raises ConfigError if a batch cannot be divided among the devices."""
  most = _MOST_IMAGES * devices
  if not 1 <= batch <= most or batch % devices:
    raise errors.ConfigError(
      f"batch is {batch}; it must be a multiple of the {devices} device(s), at most"
      f" {most}"
    )


def prepare(spec: ImageEncoder, variables: resnet.Variables) -> Params:
  """Parameters for `encode_images` from a network's variables.

  BatchNorm is folded into the convolutions. On a CPU, kernels are also transformed for
  the form of convolution that is used at this image size.
  """
  with flags.pinned():
    return _prepare(spec, variables)


@functools.partial(jax.jit, static_argnums=0)
def _prepare(spec: ImageEncoder, variables: resnet.Variables) -> Params:
  folded = resnet.fold(variables)
  if jax.default_backend() == "cpu":
    return resnet.transform(resnet.build_resnet(spec.name), folded, spec.size)
  return folded


def preprocess(images: jax.Array, size: int) -> jax.Array:
  """Bilinear resize (half-pixel centres) and ImageNet's normalisation.

  Args:
    images: [B, H, W, 3] uint8.
    size: the wanted height and width.

  Returns:
    [B, size, size, 3] float32. Shrinking smooths first (antialias), as Pillow does.
  """
  x = images.astype(jnp.float32) / 255
  if x.shape[1:3] != (size, size):
    x = jax.image.resize(x, (x.shape[0], size, size, 3), "bilinear")
  mean, std = (jnp.asarray(v)[None, None, None, :] for v in (MEAN, STD))
  return (x - mean) / std


def encode_images(spec: ImageEncoder, params: Params, images: jax.Array) -> jax.Array:
  """E [B, d] float32 of images [B, H, W, 3] uint8. Pure, for use inside `jit`."""
  # Not the caller's precision: a faster one would give other, worse encodings.
  with jax.default_matmul_precision("highest"):
    x = preprocess(images, spec.size).astype(spec.compute)
    e = resnet.apply_folded(resnet.build_resnet(spec.name), params, x)
  return e.astype(jnp.float32)


def encode_batches(
  encode: Encode,
  params: Params,
  dataset: Dataset,
  batch: int,
  *,
  start: int = 0,
  devices: Sequence[jax.Device] | None = None,
) -> Iterator[NDArray[np.float32]]:
  """Encodings of a dataset, batch by batch, data-parallel over the devices.

  Args:
    encode: a pure function (params, batch) -> [B, d].
    params: its parameters; copied to every device once.
    dataset: the images.
    batch: B, the fixed size of every batch; a multiple of the number of devices.
    start: the row to start with, a multiple of B.
    devices: all of the default platform if not given.

  Yields:
    [m, d] float32, with m = B for all but the last.
  """
  found = list(devices) if devices is not None else jax.devices()
  check_batch(batch, len(found))
  if start % batch and start != len(dataset.ids):
    raise errors.StoreError(f"row {start} is not at the start of a batch of {batch}")
  mesh = Mesh(np.asarray(found), ("batch",))
  by_row, whole = PartitionSpec("batch"), PartitionSpec()  # type: ignore[no-untyped-call]
  # Each device runs the whole function on its own part of the batch.
  run = jax.jit(
    jax.shard_map(encode, mesh=mesh, in_specs=(whole, by_row), out_specs=by_row)
  )
  held = jax.device_put(params, NamedSharding(mesh, whole))

  @flags.pinned()
  def submit(row: int) -> tuple[int, jax.Array]:
    images = dataset.read(row, min(row + batch, len(dataset.ids)))
    padded = blocks.pad(images, batch)
    return len(images), run(held, jax.device_put(padded, NamedSharding(mesh, by_row)))

  # One batch ahead: the next images are read while the devices compute.
  waiting: tuple[int, jax.Array] | None = None
  for row in range(start, len(dataset.ids), batch):
    ahead = submit(row)
    if waiting is not None:
      yield np.asarray(waiting[1])[: waiting[0]]
    waiting = ahead
  if waiting is not None:
    yield np.asarray(waiting[1])[: waiting[0]]
