"""ResNet-18/34/50 as torchvision defines them, without the classification layer.

One Flax definition for all three, in inference and training mode. Padding, the order of
layers, epsilon and running averages are PyTorch's, so that its weights can be used and
fine-tuning behaves alike. Images are NHWC.

`fold` merges every BatchNorm into the convolution before it. Use this form to encode:
it gives the same features with fewer passes over memory.
"""

from collections.abc import Mapping
from typing import Any, Literal

from flax import linen as nn
import jax
import jax.numpy as jnp

from legonet_jax import errors
from legonet_jax.encoder.conv.forms import conv2d
from legonet_jax.encoder.conv.winograd import conv3x3, tile_size, transform_kernel

# `tune` has the running statistics of `inference` and the gradients of `train`.
Mode = Literal["inference", "train", "tune", "folded"]
Variables = Mapping[str, Any]

_EPSILON = 1e-5
_MOMENTUM = 0.1  # PyTorch's: the weight of the new batch
_kernel_init = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


class ConvNorm(nn.Module):
  """A convolution and the BatchNorm after it; in `folded` mode only a bias is left."""

  features: int
  size: int
  stride: int = 1
  mode: Mode = "inference"

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """[B, H, W, I] -> [B, H', W', features]."""
    if self.has_variable("params", "winograd"):
      x = conv3x3(x, self.get_variable("params", "winograd").astype(x.dtype))
    else:
      shape = (self.size, self.size, x.shape[-1], self.features)
      kernel = self.param("kernel", _kernel_init, shape).astype(x.dtype)
      x = conv2d(x, kernel, self.stride, self.size // 2, self.mode in ("train", "tune"))
    width = (self.features,)
    bias = self.param("bias", nn.initializers.zeros, width)
    if self.mode == "folded":
      return x + _channels(bias).astype(x.dtype)
    scale = self.param("scale", nn.initializers.ones, width)
    mean = self.variable("batch_stats", "mean", jnp.zeros, width)
    var = self.variable("batch_stats", "var", jnp.ones, width)
    if self.mode == "train":
      wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
      batch_mean = jnp.mean(wide, axis=(0, 1, 2))
      batch_var = jnp.mean(jnp.square(wide - _channels(batch_mean)), axis=(0, 1, 2))
      if not self.is_initializing():
        count = x.size // self.features
        unbiased = batch_var * (count / max(count - 1, 1))
        mean.value += _MOMENTUM * (batch_mean - mean.value)
        var.value += _MOMENTUM * (unbiased - var.value)
    else:
      batch_mean, batch_var = mean.value, var.value
    factor = scale * jax.lax.rsqrt(batch_var + _EPSILON)
    shift = bias - batch_mean * factor
    return x * _channels(factor).astype(x.dtype) + _channels(shift).astype(x.dtype)


class Block(nn.Module):
  """A residual block: two 3×3, or a bottleneck (1×1, 3×3, 1×1 four times wider)."""

  width: int
  stride: int
  bottleneck: bool
  mode: Mode

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """[B, H, W, I] -> [B, H / stride, W / stride, O]."""

    def layer(name: str, features: int, size: int, stride: int = 1) -> ConvNorm:
      return ConvNorm(features, size, stride, self.mode, name=name)

    out = 4 * self.width if self.bottleneck else self.width
    if self.bottleneck:
      y = nn.relu(layer("conv1", self.width, 1)(x))
      y = nn.relu(layer("conv2", self.width, 3, self.stride)(y))
      y = layer("conv3", out, 1)(y)
    else:
      y = nn.relu(layer("conv1", self.width, 3, self.stride)(x))
      y = layer("conv2", out, 3)(y)
    if self.stride > 1 or x.shape[-1] != out:
      x = layer("downsample", out, 1, self.stride)(x)
    return nn.relu(x + y)


class ResNet(nn.Module):
  """En: images [B, H, W, 3], normalised, to features e [B, d]."""

  stages: tuple[int, ...]
  bottleneck: bool = False
  mode: Mode = "inference"

  @property
  def dim(self) -> int:
    """d, the width of the features."""
    return (4 if self.bottleneck else 1) * 64 << (len(self.stages) - 1)

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """[B, H, W, 3] -> [B, d]."""
    x = _max_pool(nn.relu(ConvNorm(64, 7, 2, self.mode, name="conv1")(x)))
    for stage, blocks in enumerate(self.stages):
      for block in range(blocks):
        stride = 2 if stage > 0 and block == 0 else 1
        name = f"layer{stage + 1}_{block}"
        x = Block(64 << stage, stride, self.bottleneck, self.mode, name=name)(x)
    return jnp.mean(x, axis=(1, 2))


RESNETS = {
  "resnet6": ResNet((1, 1)),  # for smoke tests: compiles in seconds; never pretrained
  "resnet18": ResNet((2, 2, 2, 2)),
  "resnet34": ResNet((3, 4, 6, 3)),
  "resnet50": ResNet((3, 4, 6, 3), bottleneck=True),
}


def build_resnet(name: str) -> ResNet:
  """The network called `name`, in inference mode."""
  if name not in RESNETS:
    raise errors.ConfigError(f"no encoder '{name}'; choose {', '.join(RESNETS)}")
  return RESNETS[name]


def init(net: ResNet, key: jax.Array) -> Variables:
  """Random variables: `params` and `batch_stats`, initialised as torchvision does."""
  # Under `jit`, XLA drops the forward pass, because the draws depend on shapes alone.
  train = net.clone(mode="train")
  variables: Variables = jax.jit(train.init)(key, jnp.zeros((1, 32, 32, 3)))
  return variables


def apply(net: ResNet, variables: Variables, images: jax.Array) -> jax.Array:
  """Features [B, d] of normalised images [B, H, W, 3], with running statistics."""
  return jnp.asarray(net.clone(mode="inference").apply(variables, images))


def apply_train(
  net: ResNet, variables: Variables, images: jax.Array
) -> tuple[jax.Array, Variables]:
  """Features [B, d] with the batch's own statistics, and the updated `batch_stats`."""
  train = net.clone(mode="train")
  features, updated = train.apply(variables, images, mutable=["batch_stats"])
  return features, updated["batch_stats"]


def apply_tune(net: ResNet, variables: Variables, images: jax.Array) -> jax.Array:
  """`apply` for training: BatchNorm keeps its running statistics while weights change.

  Use it to fine-tune on few samples: the statistics of a small batch are noise.
  """
  return jnp.asarray(net.clone(mode="tune").apply(variables, images))


def apply_folded(net: ResNet, folded: Variables, images: jax.Array) -> jax.Array:
  """`apply` for variables from `fold`."""
  return jnp.asarray(net.clone(mode="folded").apply(folded, images))


def fold(variables: Variables) -> Variables:
  """Merges every BatchNorm into its convolution: {params: ... {kernel, bias}}."""

  def merge(params: Variables, stats: Variables) -> Variables:
    if "kernel" not in params:
      return {name: merge(params[name], stats[name]) for name in params}
    factor = params["scale"] / jnp.sqrt(stats["var"] + _EPSILON)
    bias = params["bias"] - stats["mean"] * factor
    return {"kernel": params["kernel"] * _channels(factor), "bias": bias}

  return {"params": merge(variables["params"], variables["batch_stats"])}


def transform(net: ResNet, folded: Variables, size: int) -> Variables:
  """Transforms kernels to Winograd's form once, instead of for every batch.

  These kernels are four times as large and suit only images of about this size. They
  pay on a CPU: a fifth less time at size 64.
  """
  params = dict(folded["params"])
  longest = -(-size // 4)
  for stage, blocks in enumerate(net.stages):
    longest = -(-longest // 2) if stage else longest
    for block in range(blocks):
      name = f"layer{stage + 1}_{block}"
      params[name] = dict(params[name])
      strided = (
        {"conv2" if net.bottleneck else "conv1"} if stage and not block else set()
      )
      for conv, leaf in params[name].items():
        if leaf["kernel"].shape[0] == 3 and conv not in strided and longest > 1:
          u = transform_kernel(leaf["kernel"], tile_size(longest))
          params[name][conv] = {"winograd": u, "bias": leaf["bias"]}
  return {"params": params}


def _channels(v: jax.Array) -> jax.Array:
  """V [C] as [1, 1, 1, C], because callers may forbid implicit rank promotion."""
  return v[None, None, None, :]


def _max_pool(x: jax.Array) -> jax.Array:
  """3×3, stride 2, padding 1; one axis at a time: two maxima of three, not of nine."""
  for axis in (1, 2):
    out = (x.shape[axis] + 1) // 2
    edge = [(0, 0)] * x.ndim
    edge[axis] = (1, 1)
    wide = jnp.pad(x, edge, constant_values=-jnp.inf)
    parts = [
      jax.lax.slice_in_dim(wide, i, i + 2 * (out - 1) + 1, 2, axis) for i in range(3)
    ]
    x = jnp.maximum(jnp.maximum(parts[0], parts[1]), parts[2])
  return x
