"""K_j = En(x*_j) + ξ_j (paper, eq. 3): where the adapters sit.

Anchors x*_1 ... x*_n are the n samples with the smallest hash(seed, id): a uniform draw
without replacement that depends only on the *set* of samples. Adapters are in the hash
order of their anchors. So `top_k`, which prefers the lower index in a tie, depends only
on the set as well. ξ_j is made of integers from the seed and the anchor's id.

Deleting an anchor under the policy `replace` therefore moves one other sample into the
first n, and the keys are again those of a fresh fit. Under `given` no key ever moves.
Under `keep`, the paper's policy, the model keeps the encoding of a deleted anchor.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from legonet_jax import errors
from legonet_jax.core import features, ids as ids_lib
from legonet_jax.core.config import LegoConfig

_PER_SIGMA = 80265  # 2^24 / 209.02
# With ||x||² and ||K||² of at most this, |x·K| + ||K||²/2 stays below 2^23.
LONGEST2 = 2 * features.EXACT_SCORE // 3


def check_count(cfg: LegoConfig, samples: int) -> None:
  """Raises TooFewSamplesError if there are fewer samples than adapters to anchor."""
  if samples < cfg.num_adapters:
    raise errors.TooFewSamplesError(
      f"{samples} samples for {cfg.num_adapters} adapters, and each needs a sample of"
      " its own as anchor; use fewer adapters, more samples, or key_policy 'given'"
    )


def keys_given(cfg: LegoConfig, keys: ArrayLike, dim: int) -> NDArray[np.int8]:
  """K [n, d] int8 from the caller's keys, which are points in encoding space."""
  points = np.asarray(keys)
  if points.shape != (cfg.num_adapters, dim):
    raise errors.SampleError(
      f"keys have shape {points.shape}; {cfg.num_adapters} adapters on encodings of"
      f" width {dim} need ({cfg.num_adapters}, {dim})"
    )
  return features.encode_array(cfg, points)


def _noise_factor(cfg: LegoConfig, dim: int) -> int:
  """2^24 σ / 209.02, below 2^30."""
  m, r = features.levels(cfg, dim), features.feature_range(cfg, dim)
  return int(np.rint(_PER_SIGMA * (cfg.key_noise * m / r)))


def make_keys(
  cfg: LegoConfig, seed: jax.Array, codes: jax.Array, words: jax.Array
) -> jax.Array:
  """K_j = x*_j + ξ_j [n, d] int8, in code units, of anchors' codes and id words.

  ξ are integers of the standard deviation σ = `key_noise` in code units. T, the sum of
  eight random bytes less its mean, has the standard deviation 209.02 and nearly a
  normal distribution; ξ = round(σ T / 209.02), in integer arithmetic. Loud noise may
  make a key too long for exact scores; the components of such a key are cut to ± c.
  """
  dim = codes.shape[1]
  drawn = ids_lib.draw_words(seed, ids_lib.KEY_STREAM, words, dim)
  parts = [(w >> (8 * i)) & np.uint32(255) for w in drawn for i in range(4)]
  t = sum(part.astype(jnp.int32) for part in parts) - 1020
  # (t · factor + 2^23) >> 24 in two parts, so that 32 bits hold the product.
  high, low = divmod(_noise_factor(cfg, dim), 2**16)
  noise = (t * high + ((t * low + (1 << 23)) >> 16)) >> 8
  m, c = features.levels(cfg, dim), math.isqrt(LONGEST2 // dim)
  keys = jnp.clip(codes.astype(jnp.int32) + noise, -m, m)
  norm2 = jnp.sum(jnp.square(keys).astype(jnp.uint32), axis=1, keepdims=True)
  long = jnp.broadcast_to(norm2 > LONGEST2, keys.shape)
  return jnp.where(long, jnp.clip(keys, -c, c), keys).astype(jnp.int8)


def are_exact(keys: jax.Array) -> jax.Array:
  """Whether every score with keys [n, d] is exact (see `features`)."""
  norm2 = jnp.sum(jnp.square(keys.astype(jnp.int32)).astype(jnp.uint32), axis=1)
  return jnp.all(norm2 <= LONGEST2)
