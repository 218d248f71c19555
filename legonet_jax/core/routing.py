"""δ(x, a_j) = ||e - K_j|| (paper, eq. 1): which k adapters a sample activates.

||e - K_j||² = ||e||² - 2 (e·K_j - ||K_j||²/2), so the k nearest keys are the k highest
scores e·K_j - ||K_j||²/2. On integer codes float32 holds each score exactly (see
`features`): the result depends neither on the batch, nor on the device, nor on how XLA
orders its sums. In a tie the lower index wins; adapters are in hash order.
"""

import jax
import jax.numpy as jnp

from legonet_jax.core.config import LegoConfig
from legonet_jax.runtime import flags

# Scores are exact, so the shape of a block cannot change a route.
LARGEST_BLOCK = 1024


def scores(codes: jax.Array, keys: jax.Array) -> jax.Array:
  """Exact scores [..., n] of codes [..., d] against keys [n, d]; highest is nearest."""
  k = keys.astype(jnp.float32)
  # Full precision keeps the products exact where the default would round to bfloat16.
  dots = jnp.matmul(codes.astype(jnp.float32), k.T, precision=flags.PRECISION)
  half = 0.5 * jnp.sum(jnp.square(k), axis=-1)
  found = dots - jnp.broadcast_to(half, dots.shape)
  # `top_k` ranks -0.0 below 0.0, and which of the two comes out depends on the kernel.
  return jnp.where(found == 0, 0.0, found)


def route(codes: jax.Array, keys: jax.Array, k: int) -> jax.Array:
  """The k nearest adapters [..., k] int32 of codes [..., d], nearest first."""
  return take_nearest(scores(codes, keys), k)


def take_nearest(scores: jax.Array, k: int) -> jax.Array:
  """The k highest of scores [..., n], [..., k] int32; a tie goes to the lower index.

  On a GPU `top_k` does not promise that, so there scores are sorted together with their
  indices.
  """

  def by_top_k(s: jax.Array) -> jax.Array:
    return jax.lax.top_k(s, k)[1]

  def by_sort(s: jax.Array) -> jax.Array:
    index = jax.lax.broadcasted_iota(jnp.int32, s.shape, s.ndim - 1)
    return jax.lax.sort((-s, index), num_keys=2)[1][..., :k]

  nearest: jax.Array = jax.lax.platform_dependent(
    scores, cpu=by_top_k, tpu=by_top_k, default=by_sort
  )
  return nearest


def route_rows(
  cfg: LegoConfig,
  codes: jax.Array,
  keys: jax.Array,
  present: jax.Array,
  need: jax.Array,
  routes: jax.Array,
) -> jax.Array:
  """Routes [N, k] with the rows in `need` [N] routed anew, in blocks."""
  count = len(need)
  (rows,) = jnp.nonzero(
    need, size=-(-count // LARGEST_BLOCK) * LARGEST_BLOCK, fill_value=count
  )

  def block(b: jax.Array, routes: jax.Array) -> jax.Array:
    r = jax.lax.dynamic_slice_in_dim(rows, b * LARGEST_BLOCK, LARGEST_BLOCK)
    found = route_among(cfg, codes[jnp.minimum(r, count - 1)], keys, present)
    return routes.at[r].set(found, mode="drop")

  blocks = (need.sum(dtype=jnp.int32) + LARGEST_BLOCK - 1) // LARGEST_BLOCK
  done: jax.Array = jax.lax.fori_loop(0, blocks, block, routes)
  return done


def route_among(
  cfg: LegoConfig, codes: jax.Array, keys: jax.Array, present: jax.Array
) -> jax.Array:
  """The k nearest adapters [B, k] of codes [B, d], among those that have a key."""
  near = scores(codes, keys)
  near = jnp.where(jnp.broadcast_to(present, near.shape), near, -jnp.inf)
  found = take_nearest(near, cfg.top_k)
  return jnp.where(present[found], found, len(keys))
