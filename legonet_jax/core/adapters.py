"""M_j: a linear layer on the mapped encoding, without bias.

The weights of an adapter are W_j [C, d], class-major: because C is small, products in
this order run several times faster on CPU than in the order [d, C]. As in any linear
layer, z = W_j x.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from legonet_jax.core import features
from legonet_jax.core.config import LegoConfig
from legonet_jax.runtime import flags


def init_weights(cfg: LegoConfig, dim: int, key: jax.Array) -> jax.Array:
  """Random W_j [C, d] from the adapter's own key."""
  normal = jax.random.normal(key, (cfg.num_classes, dim), jnp.float32)
  scaled: jax.Array = cfg.solver.init_scale * normal
  return scaled


def dequantize(cfg: LegoConfig, codes: jax.Array) -> jax.Array:
  """x [..., d] float32, the features that adapters see."""
  return codes.astype(jnp.float32) * features.unit(cfg, codes.shape[-1])


class Targets(NamedTuple):
  """The training targets of a batch.

  Attributes:
    hit: [C, B] float32, 1 at the label of each row and 0 elsewhere.
    share: [B] float32, 1 over the number of labelled rows; 0 for a row of padding.
    active: scalar bool, whether any row has a label.
  """

  hit: jax.Array
  share: jax.Array
  active: jax.Array


def targets(cfg: LegoConfig, labels: jax.Array) -> Targets:
  """Targets of labels [B] int32; a negative label marks padding and has no effect."""
  classes = jnp.arange(cfg.num_classes, dtype=labels.dtype)
  valid = (labels >= 0).astype(jnp.float32)
  count = jnp.sum(valid)
  return Targets(
    hit=(classes[:, None] == labels[None, :]).astype(jnp.float32),
    share=valid / jnp.maximum(count, 1),
    active=count > 0,
  )


def gradient(weights: jax.Array, x: jax.Array, targets: Targets) -> jax.Array:
  """∂L/∂W_j [C, d] of the mean cross-entropy L(M_j(e, θ), y) over the labelled rows.

  Written out, so that the terms that depend only on labels are not computed again in
  every epoch: ∂L/∂W = Σ_b share_b (softmax(W x_b) - hit_b) x_bᵀ.

  Args:
    weights: W_j [C, d].
    x: [B, d] features.
    targets: of the labels [B].
  """
  z = jnp.einsum("cd,bd->cb", weights, x, precision=flags.PRECISION)
  e = jnp.exp(z - jnp.max(z, axis=0, keepdims=True))
  p = e / jnp.sum(e, axis=0, keepdims=True)
  error = (p - targets.hit) * targets.share[None, :]
  return jnp.einsum("cb,bd->cd", error, x, precision=flags.PRECISION)
