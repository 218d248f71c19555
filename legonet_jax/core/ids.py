"""Stable ids: every order and every random number comes from a sample's id.

Nothing in this library may depend on a sample's position, because a deletion shifts
all positions after it. Ids are non-negative int64 numbers given by the caller.
"""

import jax
from jax.typing import ArrayLike
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors

Ids = NDArray[np.int64]

# One stream per use, so that ξ_j and the initial weights of one anchor are independent.
KEY_STREAM = 1
INIT_STREAM = 2

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_Words = tuple[NDArray[np.uint32], NDArray[np.uint32]]


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
  """The finaliser of splitmix64, a bijection of 64-bit numbers."""
  x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return x ^ (x >> np.uint64(31))


def hash_ids(seed: int, ids: Ids) -> NDArray[np.uint64]:
  """hash(seed, id) [N]. For one seed it is a bijection: two ids never tie."""
  salt = _mix(np.asarray([seed + 0x9E3779B97F4A7C15], np.uint64))
  return _mix(_mix(ids.astype(np.uint64)) ^ salt)


def find(table: Ids, wanted: Ids, what: str = "sample") -> NDArray[np.intp]:
  """Rows [m] of `wanted` [m] in the sorted `table`; UnknownIdError if one is missing.

  Args:
    table: [N], increasing.
    wanted: [m].
    what: the kind of thing that the table lists, for the message.
  """
  rows = np.searchsorted(table, wanted)
  hit = rows < len(table)
  hit[hit] = table[rows[hit]] == wanted[hit]
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


def threefry(key: _Words, counter: _Words) -> _Words:
  """Threefry-2x32 with 20 rounds (Salmon et al., 2011): two random 32-bit words.

  Written out in numpy, because a state must not depend on how a release of jax splits
  its counters.
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


def draw_bytes(seed: int, stream: int, ids: Ids, count: int) -> NDArray[np.uint8]:
  """Random bytes [m, count, 8] of ids [m]: the same on every machine, by definition.

  Id i has the key a_i = threefry((seed, stream), (high, low half of i)), and the bytes
  at t are those of threefry(a_i, (0, t)).
  """
  high, low = to_words(ids).T
  start = np.full(len(ids), seed, np.uint32), np.full(len(ids), stream, np.uint32)
  a, b = threefry(start, (high, low))
  at = np.arange(count, dtype=np.uint32)[None]
  words = threefry((a[:, None], b[:, None]), (np.zeros_like(at), at))
  return np.stack(words, axis=-1).astype("<u4").view(np.uint8)
