"""Stable ids: every order and every random number comes from a sample's id.

Nothing in this library may depend on a sample's position, because a deletion shifts
all positions after it. Ids are non-negative int64 numbers given by the caller.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors

Ids = NDArray[np.int64]

# One stream per use, so that ξ_j and the initial weights of one anchor are independent.
KEY_STREAM = 1
INIT_STREAM = 2

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_Words = tuple[Any, Any]  # arrays of numpy or JAX
_Pair = tuple[jax.Array, jax.Array]


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
  """The finaliser of splitmix64, a bijection of 64-bit numbers."""
  x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return x ^ (x >> np.uint64(31))


def hash_ids(seed: int, ids: Ids) -> NDArray[np.uint64]:
  """hash(seed, id) [N]. For one seed it is a bijection: two ids never tie."""
  salt = _mix(np.asarray([seed + 0x9E3779B97F4A7C15], np.uint64))
  return _mix(_mix(ids.astype(np.uint64)) ^ salt)


def locate(table: Ids, wanted: Ids) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
  """Rows [m] of ids `wanted` [m] in the sorted `table` [N], and which it has [m]."""
  if not len(table):
    return np.zeros(len(wanted), np.intp), np.zeros(len(wanted), bool)
  rows = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
  return rows, table[rows] == wanted


def find(table: Ids, wanted: Ids, what: str = "sample") -> NDArray[np.intp]:
  """Rows [m] of `wanted` [m] in the sorted `table`; UnknownIdError if one is missing.

  Args:
    table: [N], increasing.
    wanted: [m].
    what: the kind of thing that the table lists, for the message.
  """
  rows, hit = locate(table, wanted)
  if not hit.all():
    raise errors.UnknownIdError(
      f"no {what} has id {wanted[~hit][0]}; check the request's ids"
    )
  return rows


def hash_order(seed: int, ids: Ids) -> NDArray[np.intp]:
  """Positions [N] that put `ids` in hash order."""
  return np.argsort(hash_ids(seed, ids))


def fold_in_id(seed: ArrayLike, stream: int, words: jax.Array) -> jax.Array:
  """A PRNG key from an id given as two 32-bit `words` [2] (see `to_words`)."""
  key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), stream)
  return jax.random.fold_in(jax.random.fold_in(key, words[0]), words[1])


def to_words(ids: Ids) -> NDArray[np.uint32]:
  """Ids [m] as their high and low 32 bits [m, 2], which jax can hold without x64."""
  return np.stack([ids >> 32, ids & 0xFFFFFFFF], axis=-1).astype(np.uint32)


def from_words(words: NDArray[np.uint32]) -> Ids:
  """Ids [m] from their high and low 32 bits [m, 2]."""
  wide = words.astype(np.int64)
  return wide[:, 0] << 32 | wide[:, 1]


def hash_words(seed: ArrayLike, words: jax.Array) -> tuple[jax.Array, jax.Array]:
  """hash(seed, id) of ids given as words [..., 2], as its high and low 32 bits [...].

  The same numbers as `hash_ids`, under jit and without 64-bit integers.
  """
  seed = jnp.asarray(seed, jnp.uint32)
  step = (np.uint32(0x9E3779B9), np.uint32(0x7F4A7C15))
  low = seed + step[1]
  salt = _mix_pair((step[0] + (low < step[1]).astype(jnp.uint32), low))
  high, low = _mix_pair((words[..., 0], words[..., 1]))
  return _mix_pair((high ^ salt[0], low ^ salt[1]))


def sort_by_hash(seed: ArrayLike, words: jax.Array, order: jax.Array) -> jax.Array:
  """Positions [N] that put ids `words` [N, 2] in hash order, under jit.

  Args:
    seed: uint32.
    words: the ids.
    order: [N] int32, what is returned if it is in hash order already.
  """
  high, low = hash_words(seed, words[order])
  rises = (high[:-1] < high[1:]) | ((high[:-1] == high[1:]) & (low[:-1] <= low[1:]))

  def sort() -> jax.Array:
    index = jnp.arange(len(order), dtype=jnp.int32)
    found: jax.Array = jax.lax.sort((*hash_words(seed, words), index), num_keys=2)[2]
    return found

  sorted_: jax.Array = jax.lax.cond(jnp.all(rises), lambda: order, sort)
  return sorted_


def precedes(seed: ArrayLike, words: jax.Array, last: jax.Array) -> jax.Array:
  """Which of the ids `words` [m, 2] come no later than the id `last` [2]."""
  high, low = hash_words(seed, words)
  last_high, last_low = hash_words(seed, last)
  return (high < last_high) | ((high == last_high) & (low <= last_low))


def _mix_pair(x: _Pair) -> _Pair:
  """`_mix` of a number in two halves."""
  x = _multiply_pair(
    _xor_shifted(x, 30), (np.uint32(0xBF58476D), np.uint32(0x1CE4E5B9))
  )
  x = _multiply_pair(
    _xor_shifted(x, 27), (np.uint32(0x94D049BB), np.uint32(0x133111EB))
  )
  return _xor_shifted(x, 31)


def _xor_shifted(x: _Pair, bits: int) -> _Pair:
  """x ^ (x >> bits)."""
  high, low = x
  return high ^ (high >> bits), low ^ ((low >> bits) | (high << (32 - bits)))


def _multiply_pair(x: _Pair, y: tuple[np.uint32, np.uint32]) -> _Pair:
  """x y mod 2^64, from products of 16 bits, which 32 bits can hold."""
  (xh, xl), (yh, yl) = x, y
  mask = np.uint32(0xFFFF)
  x0, x1, y0, y1 = xl & mask, xl >> 16, yl & mask, yl >> 16
  middle = x1 * y0 + ((x0 * y0) >> 16)
  other = x0 * y1 + (middle & mask)
  carry = x1 * y1 + (middle >> 16) + (other >> 16)
  return carry + xh * yl + xl * yh, xl * yl


def threefry(key: _Words, counter: _Words) -> _Words:
  """Threefry-2x32 with 20 rounds (Salmon et al., 2011): two random 32-bit words.

  Written out, for numpy and JAX alike, because a state must not depend on how a release
  of jax splits its counters.
  """
  k0, k1 = key
  keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
  x, y = counter[0] + keys[0], counter[1] + keys[1]
  for group in range(5):
    for r in _ROTATIONS[group % 2]:
      x = x + y
      y = (y << np.uint32(r)) | (y >> np.uint32(32 - r))
      y = x ^ y
    x = x + keys[(group + 1) % 3]
    y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
  return x, y


def draw_words(
  seed: ArrayLike, stream: int, words: Any, count: int, xp: Any = jnp
) -> _Words:
  """Random bits of ids [m], the same on every machine: two words [m, count] each.

  Id i has the key a_i = threefry((seed, stream), (high, low half of i)), and the words
  at t are those of threefry(a_i, (0, t)).

  Args:
    seed: uint32; may be traced.
    stream: what the numbers are for.
    words: [m, 2] ids, see `to_words`.
    count: how many pairs of words per id.
    xp: `numpy`, or `jax.numpy` under jit.
  """
  zero = xp.zeros(len(words), xp.uint32)
  a, b = threefry((zero + seed, zero + xp.uint32(stream)), (words[:, 0], words[:, 1]))
  at = xp.broadcast_to(xp.arange(count, dtype=xp.uint32)[None], (len(words), count))
  key = (xp.broadcast_to(a[:, None], at.shape), xp.broadcast_to(b[:, None], at.shape))
  return threefry(key, (xp.zeros_like(at), at))
