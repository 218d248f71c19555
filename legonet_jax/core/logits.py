r"""z = W_j' x of the activated adapters: exact integers, or floats.

Weights of `Ridge` and codes are integers, so a logit Σ W x is an integer too, and so is
the sum over the k activated adapters: the same on every machine, and so is the class
with the largest sum (the lowest index wins a tie). Probabilities are a float view.

A product of a pair (sample, adapter) reads all of W_j, so on a CPU the pairs are sorted
by adapter and multiplied in groups, which read it once. In float64 such products are
exact: by Cauchy-Schwarz every partial sum is at most ||W|| ||x|| < 2^31 · 2^12.
Elsewhere each pair gathers its W_j, split into bytes: float32 holds the sums over 1,024
products of a byte and a code exactly, and two int32 numbers hold a whole sum.
"""

from collections.abc import Callable
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from legonet_jax.runtime import flags

# A sum is high · 2^20 + low. `high` of one adapter is below 2^23.
LOW_BITS = 20
_EXACT_PRODUCTS = 1024
_GROUP = 16  # pairs of one adapter, multiplied at a time
_ROWS = 128  # samples that gather their weights at a time
_EXPS = 512  # numbers in a step of the loop over exponentials

Sum = tuple[jax.Array, jax.Array]  # high and low
Limbs = tuple[jax.Array, jax.Array, jax.Array]  # of 20 bits, the highest first


def of_adapters(weights: jax.Array, codes: jax.Array, active: jax.Array) -> Sum:
  """W_j' x of each activated adapter, exact, under `jit`: high and low [B, k, C].

  Args:
    weights: W [n, C, d] int32.
    codes: x [B, d] int8.
    active: [B, k] int32, adapters.
  """
  grouped = _in_groups(_multiply_in_float64) if flags.float64_works() else _gathered
  found: Sum = _choose(grouped, _gathered)(weights, codes, active)
  return found


def of_floats(weights: jax.Array, x: jax.Array, active: jax.Array) -> jax.Array:
  """W_j x of each activated adapter [B, k, C], of W [n, C, d] and x [B, d] float32."""

  def gathered(w: jax.Array, x: jax.Array, active: jax.Array) -> jax.Array:
    def one(j: jax.Array) -> jax.Array:
      return jnp.einsum("bcd,bd->bc", w[j], x, precision=flags.PRECISION)

    return jnp.swapaxes(jax.lax.map(one, active.T), 0, 1)

  found: jax.Array = _choose(_in_groups(_multiply_floats), gathered)(weights, x, active)
  return found


def _choose(on_cpu: Callable[..., Any], elsewhere: Callable[..., Any]) -> Any:
  """By platform. XLA could not split groups over the devices of a mesh."""
  on_cpu = on_cpu if jax.device_count() == 1 else elsewhere
  return functools.partial(jax.lax.platform_dependent, cpu=on_cpu, default=elsewhere)


def _multiply_floats(x: jax.Array, w: jax.Array) -> jax.Array:
  return jnp.matmul(x, w.T, precision=flags.PRECISION)


def _multiply_in_float64(x: jax.Array, w: jax.Array) -> Sum:
  """Σ_d w x [g, C] of w [C, d] int32 and x [g, d] int8, as high and low."""
  with jax.enable_x64(True):
    # Without `preferred_element_type`, which a batching rule, outside of this context,
    # would cut to float32.
    exact = jax.lax.dot_general(
      x.astype(jnp.float64),
      w.astype(jnp.float64),
      (((1,), (1,)), ((), ())),
      precision=jax.lax.Precision.HIGHEST,
    )
    high = jnp.floor(exact * 2.0**-LOW_BITS)
    low = exact - high * 2.0**LOW_BITS
    return high.astype(jnp.int32), low.astype(jnp.int32)


def _in_groups(multiply: Callable[..., Any]) -> Callable[..., Any]:
  """A function of W [n, C, d], x [B, d] and active [B, k]: `multiply` of every pair.

  Under a caller's vmap, stacked models take turns, with the bits of single calls, and
  stacked samples are more samples.
  """

  @jax.custom_batching.custom_vmap
  def call(weights: jax.Array, x: jax.Array, active: jax.Array) -> Any:
    return _group(multiply, weights, x, active)

  @call.def_vmap
  def batched(size: int, is_batched: Any, *args: jax.Array) -> tuple[Any, Any]:
    w, x, active = (
      a if b or i == 0 else jnp.broadcast_to(a, (size, *a.shape))
      for i, (a, b) in enumerate(zip(args, is_batched, strict=True))
    )
    if is_batched[0]:
      found = jax.lax.map(lambda each: call(*each), (w, x, active))
    else:
      rows = x.shape[1]
      found = call(w, x.reshape(-1, x.shape[2]), active.reshape(-1, active.shape[2]))
      found = jax.tree.map(lambda a: a.reshape(size, rows, *a.shape[1:]), found)
    return found, jax.tree.map(lambda _: True, found)

  return call


def _group(
  multiply: Callable[..., Any], weights: jax.Array, x: jax.Array, active: jax.Array
) -> Any:
  """`multiply` [B, k, C] of every pair, `_GROUP` pairs of one adapter at a time."""
  n, (rows, k) = len(weights), active.shape
  pairs, owners = rows * k, active.ravel()
  order = jnp.argsort(owners, stable=True).astype(jnp.int32)
  counts = jnp.zeros(n, jnp.int32).at[owners].add(1)
  first = jnp.cumsum(counts) - counts
  groups = (counts + _GROUP - 1) // _GROUP
  start = jnp.cumsum(groups) - groups
  marks = jnp.zeros(pairs // _GROUP + n, jnp.int32).at[start].add(1, mode="drop")
  owner = jnp.cumsum(marks) - 1
  lane = jnp.arange(_GROUP, dtype=jnp.int32)

  def group(g: jax.Array, out: Any) -> Any:
    j = owner[g]
    at = first[j] + (g - start[j]) * _GROUP + lane
    pair = jnp.where(at < first[j] + counts[j], order[at], pairs)
    found = multiply(x.at[pair // k].get(mode="clip"), weights[j])
    return jax.tree.map(lambda a, b: a.at[pair].set(b, mode="drop"), out, found)

  shape = jax.eval_shape(multiply, x[:_GROUP], weights[0])
  # 0, but a loop inside a `shard_map` starts as varying as its results are.
  empty = [jnp.sum(a[:0]).astype(jnp.int32) for a in (weights, x, active)]
  zero = functools.reduce(jnp.add, empty)
  out = jax.tree.map(
    lambda a: jnp.broadcast_to(zero.astype(a.dtype), (pairs, a.shape[1])), shape
  )
  if not isinstance(rows, int) or rows > 0:
    out = jax.lax.fori_loop(0, groups.sum(dtype=jnp.int32), group, out)
  return jax.tree.map(lambda a: a.reshape(rows, k, a.shape[1]), out)


def _gathered(weights: jax.Array, codes: jax.Array, active: jax.Array) -> Sum:
  """`of_adapters` for devices without float64: each pair gathers its weights."""

  def some(part: tuple[jax.Array, jax.Array]) -> Sum:
    found: Sum = jax.lax.map(lambda j: _multiply_bytes(weights[j], part[0]), part[1].T)
    return found

  rows = codes.shape[0]
  if isinstance(rows, int) and rows <= _ROWS:
    return _by_row(some((codes, active)))
  number = -(-rows // _ROWS)
  # Every block has rows of all devices, if a batch is split over some.
  codes, active = (
    jnp.pad(a, ((0, number * _ROWS - rows), (0, 0)))
    .reshape(_ROWS, number, a.shape[1])
    .swapaxes(0, 1)
    for a in (codes, active)
  )
  high, low = (
    a.swapaxes(0, 1).reshape(number * _ROWS, *a.shape[2:])[:rows]
    for a in jax.lax.map(lambda part: _by_row(some(part)), (codes, active))
  )
  return high, low


def _by_row(found: Sum) -> Sum:
  """[B, k, C] of [k, B, C]."""
  return jnp.swapaxes(found[0], 0, 1), jnp.swapaxes(found[1], 0, 1)


def _multiply_bytes(w: jax.Array, codes: jax.Array) -> Sum:
  """Σ_d of w [B, C, d] int32 and x [B, d] int8, as high and low [B, C] int32."""
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


def sum_terms(high: jax.Array, low: jax.Array, counted: jax.Array) -> Limbs:
  """The sum over k of high and low [B, k, C] where `counted` [B, k]: [B, C] each."""
  limbs = high >> LOW_BITS, high & _mask(), low
  take = counted.astype(jnp.int32)[:, :, None]
  found: Limbs = _reduce(_add, tuple(limb * take for limb in limbs), 1)
  return found


def _add(a: Limbs, b: Limbs) -> Limbs:
  low = a[2] + b[2]
  middle = a[1] + b[1] + (low >> LOW_BITS)
  return a[0] + b[0] + (middle >> LOW_BITS), middle & _mask(), low & _mask()


def to_float(*limbs: jax.Array) -> jax.Array:
  """The number of limbs, highest first, in float32.

  All products are exact, so it does not matter whether XLA fuses them with the sums.
  """
  first, *rest = (limb.astype(jnp.float32) for limb in limbs)
  for limb in rest:
    first = first * np.float32(2.0**LOW_BITS) + limb
  return first


def find_largest(*limbs: jax.Array) -> jax.Array:
  """The class [B] int32 with the largest sum; the lowest index wins a tie."""
  top = jnp.ones(limbs[0].shape, bool)
  for limb in limbs:
    here = jnp.where(top, limb, -(2**31))
    top = top & (limb == jnp.max(here, axis=-1, keepdims=True))
  return jnp.argmax(top, axis=-1).astype(jnp.int32)


def softmax(z: jax.Array) -> jax.Array:
  """Probabilities of z [..., C]; no bit depends on the other axes."""
  exp: Callable[[jax.Array], jax.Array] = _choose(_exp_in_blocks, jnp.exp)
  e = exp(z - jnp.max(z, axis=-1, keepdims=True))
  return e / sum_in_order(e, -1)[..., None]


@jax.custom_batching.custom_vmap
def _exp_in_blocks(x: jax.Array) -> jax.Array:
  """exp(x) by a loop of one shape: XLA's last bits differ with the shape of a loop."""
  flat = x.ravel()
  count = -(-flat.shape[0] // _EXPS)
  padded = jnp.pad(flat, (0, count * _EXPS - flat.shape[0])).reshape(count, _EXPS)
  found: jax.Array = jax.lax.map(jnp.exp, padded).ravel()[: flat.shape[0]]
  return found.reshape(x.shape)


@_exp_in_blocks.def_vmap
def _exp_of_more(size: int, is_batched: Any, x: jax.Array) -> tuple[jax.Array, bool]:
  del size, is_batched
  found: jax.Array = _exp_in_blocks(x)
  return found, True


def sum_in_order(x: jax.Array, axis: int) -> jax.Array:
  """Σ over an axis as a fixed tree: no bit depends on the other axes."""
  total: jax.Array = _reduce(jnp.add, x, axis)
  return total


def _reduce(add: Callable[..., Any], x: Any, axis: int) -> Any:
  """`x` summed over an axis by halves."""
  x = jax.tree.map(lambda a: jnp.moveaxis(a, axis, 0), x)
  while (half := len(jax.tree.leaves(x)[0]) // 2) > 0:
    one, two, rest = (
      jax.tree.map(lambda a, part=part: a[part], x)
      for part in (slice(half), slice(half, 2 * half), slice(2 * half, None))
    )
    x = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), add(one, two), rest)
  return jax.tree.map(lambda a: a[0], x)
