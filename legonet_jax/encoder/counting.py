"""Parameters and multiply-accumulates of an encoder, counted on the real network.

One MAC is one multiply-accumulate of the mathematical convolution, including products
with padding, whatever form a device computes it in.
"""

import functools
from typing import Any, NamedTuple

from flax import linen as nn
import jax
import jax.numpy as jnp

from legonet_jax.encoder import resnet
from legonet_jax.errors import whole_number


class Conv(NamedTuple):
  """A kernel [size, size, inputs, features] and its output map [height, width]."""

  size: int
  inputs: int
  features: int
  height: int
  width: int

  @property
  def macs(self) -> int:
    """MACs: each number of the output map is a sum of size² · inputs products."""
    return self.elements * self.size**2 * self.inputs

  @property
  def elements(self) -> int:
    """Numbers in the output map, all of which the next BatchNorm reads."""
    return self.height * self.width * self.features


class EncoderCost(NamedTuple):
  """The cost of encoding one image.

  Attributes:
    convs: all convolutions, in the order in which they run.
    dim: d, the width of the encoding.
    parameters: kernels, and scale and bias of each BatchNorm.
    statistics: running means and variances, which are stored but not trained.
  """

  convs: tuple[Conv, ...]
  dim: int
  parameters: int
  statistics: int

  @property
  def macs(self) -> int:
    """MACs of one encoding."""
    return sum(conv.macs for conv in self.convs)


@functools.cache
def count_encoder(name: str, image_size: int) -> EncoderCost:
  """Counts by evaluating the real network's shapes, without computing anything."""
  image_size = whole_number("image_size", image_size, 1)
  net = resnet.build_resnet(name)
  convs: list[Conv] = []

  # Counts layers, not XLA's operations, because a CPU computes most convolutions in
  # another form (conv/forms.py).
  def watch(
    call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext
  ) -> Any:
    y = call(*args, **kwargs)
    if isinstance(context.module, resnet.ConvNorm):
      size, inputs = context.module.size, args[0].shape[-1]
      convs.append(Conv(size, inputs, y.shape[3], y.shape[1], y.shape[2]))
    return y

  def run() -> resnet.Variables:
    variables = resnet.init(net, jax.random.key(0))
    with nn.intercept_methods(watch):
      resnet.apply(net, variables, jnp.zeros((1, image_size, image_size, 3)))
    return variables

  variables = jax.eval_shape(run)
  parameters, statistics = (
    sum(leaf.size for leaf in jax.tree.leaves(variables[kind]))
    for kind in ("params", "batch_stats")
  )
  return EncoderCost(tuple(convs), net.dim, parameters, statistics)
