r"""z = W_z' x of the activated adapters: exact integers, or floats.

Weights of `Ridge` and codes are integers, so a logit Σ W x is an integer too, and so is
the sum over the k activated adapters: the same on every machine, and so is the class
with the largest sum (the lowest index wins a tie). Probabilities are a float view.

On the host, float64 products are exact: by Cauchy-Schwarz every partial sum is at most
||W|| ||x|| < 2^31 · 2^12. On a device without float64, W is split into bytes: float32
holds the sums over 1,024 products of a byte and a code exactly, and two int32 numbers
hold a whole sum.
"""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core.weights import Weights
from legonet_jax.runtime import flags, parallel

# A sum is high · 2^20 + low. `high` of one adapter is below 2^23.
LOW_BITS = 20
_MAX_TERMS = 256
_EXACT_PRODUCTS = 1024
_MIN_ROWS = 1024


def sum_on_host(
  weights: Weights,
  codes: NDArray[np.int8],
  active: NDArray[np.int32],
  counted: NDArray[np.bool_],
) -> NDArray[np.int64]:
  """Σ_k W x [B, C], exact, on all cores.

  Args:
    weights: W [n, C, d].
    codes: x [B, d].
    active: [B, k] adapters.
    counted: [B, k] bool, whether an adapter is part of the sum.
  """
  rows, count = weights.rows, len(codes)
  size = max(_MIN_ROWS, -(-count // parallel.count_cores()))

  def add_up(start: int) -> NDArray[np.int64]:
    x = codes[start : start + size].astype(np.float64)
    near = np.where(counted, active, len(rows))[start : start + size]
    total = np.zeros((len(x), weights.shape[1]))
    # Sorted by adapter, so that each adapter is one product.
    order = np.argsort(near, axis=None, kind="stable")
    bounds = np.searchsorted(near.ravel()[order], np.arange(len(rows) + 1))
    samples = order // near.shape[1]
    for j in np.flatnonzero(np.diff(bounds)).tolist():
      mine = samples[bounds[j] : bounds[j + 1]]
      total[mine] += x[mine] @ rows[j].astype(np.float64).T
    return total.astype(np.int64)

  with parallel.one_blas_thread():
    parts = list(parallel.on_cores(add_up, range(0, count, size)))
  return np.concatenate([np.zeros((0, weights.shape[1]), np.int64), *parts])


def of_adapters(
  weights: jax.Array, codes: jax.Array, active: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """W_z' x of each activated adapter, exact, under `jit`: high and low [B, k, C]."""

  def one(adapters: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _multiply(weights[adapters], codes)

  high, low = jax.lax.map(one, active.T)
  return jnp.swapaxes(high, 0, 1), jnp.swapaxes(low, 0, 1)


def _multiply(w: jax.Array, codes: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Σ_d w x of w [B, C, d] int32 and x [B, d] int8, as high and low [B, C] int32."""
  x = codes.astype(jnp.float32)
  sums, rest = [], w
  for _ in range(4):
    byte = ((rest + 128) & 255) - 128  # -128 ... 127
    sums.append(_dot(byte, x))
    rest = (rest - byte) >> 8
  # 2^24 s3 + 2^16 s2 + 2^8 s1 + s0, first all below 2^20 and then the carry
  low = sums[0] + ((sums[1] & 4095) << 8)
  high = (sums[3] << 4) + (sums[1] >> 12) + (low >> LOW_BITS)
  low = (low & _mask()) + ((sums[2] & 15) << 16)
  high = high + (sums[2] >> 4) + (low >> LOW_BITS)
  return high, low & _mask()


def _mask() -> int:
  return (1 << LOW_BITS) - 1


def _dot(byte: jax.Array, x: jax.Array) -> jax.Array:
  """Σ_d of [B, C, d] and [B, d], exact, [B, C] int32."""
  total = jnp.zeros(byte.shape[:2], jnp.int32)
  for start in range(0, x.shape[1], _EXACT_PRODUCTS):
    part = slice(start, start + _EXACT_PRODUCTS)
    product = jnp.einsum(
      "bcd,bd->bc",
      byte[:, :, part].astype(jnp.float32),
      x[:, part],
      precision=flags.PRECISION,
    )
    total = total + product.astype(jnp.int32)
  return total


def sum_terms(
  high: jax.Array, low: jax.Array, counted: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """The sum over k of high and low [B, k, C] where `counted` [B, k]: [B, C] each.

  Raises:
    ConfigError: if k is too large for sums in 32 bits.
  """
  if high.shape[1] > _MAX_TERMS:
    raise errors.ConfigError(
      f"top_k is {high.shape[1]}; exact sums on a device take at most {_MAX_TERMS}"
    )
  take = counted.astype(jnp.int32)[:, :, None]
  total = jnp.sum(low * take, axis=1)
  return jnp.sum(high * take, axis=1) + (total >> LOW_BITS), total & _mask()


def to_float(high: jax.Array, low: jax.Array, unit: float) -> jax.Array:
  """The float32 number nearest to high · 2^20 + low, times `unit`."""
  scaled: jax.Array = high.astype(jnp.float32) * (unit * 2.0**LOW_BITS)
  return scaled + low.astype(jnp.float32) * unit


def find_largest(high: jax.Array, low: jax.Array) -> jax.Array:
  """The class [B] int32 with the largest sum; the lowest index wins a tie."""
  top = high == jnp.max(high, axis=-1, keepdims=True)
  return jnp.argmax(jnp.where(top, low, -1), axis=-1).astype(jnp.int32)
