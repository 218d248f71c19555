"""M_j: a linear layer on the mapped encoding, without bias.

Weights of an adapter are W_j [C, d], class-major: on CPU the products with C on the
outside run at several times the speed of the [d, C] order, which matters because C is
small. The maths is that of any linear layer: z = W_j x.
"""

import jax
import jax.numpy as jnp

from legonet_jax import features, ids as ids_lib
from legonet_jax.config import LegoConfig
from legonet_jax.solvers import Sgd


def init_weights(cfg: LegoConfig, dim: int, words: jax.Array) -> jax.Array:
  """Random W_j [C, d] from the adapter's own id (as `words` [2]), and nothing else."""
  key = ids_lib.fold_in_id(cfg.seed, ids_lib.INIT_STREAM, words)
  solver: Sgd = cfg.solver
  return solver.init_scale * jax.random.normal(key, (cfg.num_classes, dim), jnp.float32)


def dequantize(cfg: LegoConfig, codes: jax.Array) -> jax.Array:
  """x [..., d] float32, the features that adapters see."""
  return codes.astype(jnp.float32) * features.unit(cfg, codes.shape[-1])


def loss(weights: jax.Array, x: jax.Array, labels: jax.Array) -> jax.Array:
  """Mean cross-entropy of one adapter over the labelled rows of a batch.

  Args:
    weights: W_j [C, d].
    x: [B, d] features.
    labels: [B] int32; rows with a negative label are padding and count for nothing.

  Returns:
    Scalar L(M_j(e, θ), y), averaged over the rows that count.
  """
  z = jnp.einsum("cd,bd->cb", weights, x)
  logp = jax.nn.log_softmax(z, axis=0)
  classes = jnp.arange(weights.shape[0])
  hit = classes[:, None] == labels[None, :]  # all False in a padding row
  count = jnp.sum(labels >= 0).astype(jnp.float32)
  return -jnp.sum(jnp.where(hit, logp, 0.0)) / jnp.maximum(count, 1)
