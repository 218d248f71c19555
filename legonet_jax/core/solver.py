"""One adapter's training as pure functions: members in, weights out.

A solver is one frozen dataclass: its fields are its settings, and its functions take
the members of one adapter to that adapter's weights. All of it is traced, so whatever
works here works under jit, vmap and scan, in `functional` and in the host API alike.

A solver has either one function, `train`, or a pair over statistics that can be added
up: `absorb` adds a block of members, or subtracts it, and `solve` turns the sums into
weights. The pair makes a request independent of |D_aj|.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from legonet_jax.core import ids as ids_lib
from legonet_jax.core.config import LegoConfig

BLOCK = 512  # rows that `absorb` takes at a time
_SMALLEST = 64  # members; `train` is compiled for this size, 4 times it, 16 times, ...


class Batch(NamedTuple):
  """Members of one adapter.

  Attributes:
    codes: x [B, d] int8; zero in a row of padding.
    labels: y [B] int32; -1 in a row of padding.
    signs: [B] int8: 1 for a member, -1 for one that left, 0 for padding.
  """

  codes: jax.Array
  labels: jax.Array
  signs: jax.Array


class Members(NamedTuple):
  """D_aj, or the samples that joined and left it, as rows of a table.

  Attributes:
    codes: [N, d] int8, the table.
    labels: [N] int32, the table's labels.
    rows: [M] int32, the members first, in hash order; then anything.
    signs: [M] int8, 1 or -1.
    size: int32, how many there are.
  """

  codes: jax.Array
  labels: jax.Array
  rows: jax.Array
  signs: jax.Array
  size: jax.Array


class Adapter(NamedTuple):
  """What a solver may know of an adapter besides its members.

  Attributes:
    key: a PRNG key made of the seed and the adapter's stable id.
    options: settings of the solver that are traced, such as a learning rate.
  """

  key: jax.Array
  options: dict[str, jax.Array]


class Solution(NamedTuple):
  """The weights of one adapter.

  Attributes:
    weights: W_j [C, d]: int32 if the solver is portable, else float32.
    undecided: int32, how many entries certified rounding left open; -1 if the sums do
      not fit in 32 bits.
    statistics: what `absorb` made, or None.
  """

  weights: jax.Array
  undecided: jax.Array
  statistics: Any


def take(members: Members, start: jax.Array, count: int) -> Batch:
  """Members start ... start + count - 1, padded where there are no more."""
  at = start + jnp.arange(count, dtype=jnp.int32)
  there = at < members.size
  at = jnp.minimum(at, len(members.rows) - 1)
  rows = members.rows[at]
  return Batch(
    codes=jnp.where(there[:, None], members.codes[rows], jnp.int8(0)),
    labels=jnp.where(there, members.labels[rows], -1),
    signs=jnp.where(there, members.signs[at], jnp.int8(0)),
  )


def solve_members(
  cfg: LegoConfig, members: Members, adapter: Adapter, start: Any = None
) -> Solution:
  """W_j of `members`, or of the members behind the statistics `start` and `members`."""
  solver, dim = cfg.solver, members.codes.shape[1]
  if not solver.additive:
    trained = solver.train_members(cfg, members, adapter)
    return Solution(trained, jnp.int32(0), None)

  def add(i: jax.Array, now: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
    sums, fits = now
    sums = solver.absorb(cfg, sums, take(members, i * BLOCK, BLOCK))
    return sums, fits & solver.fits(sums)

  first = solver.statistics(cfg, dim) if start is None else start
  blocks = (members.size + BLOCK - 1) // BLOCK
  sums, fits = jax.lax.fori_loop(0, blocks, add, (first, solver.fits(first)))
  return solve_statistics(cfg, sums, fits)


def solve_statistics(cfg: LegoConfig, sums: Any, fits: jax.Array) -> Solution:
  """W_j from statistics; `fits` says whether they are right."""
  weights, undecided = cfg.solver.solve(cfg, sums)
  weights = jnp.where(jnp.broadcast_to(fits, weights.shape), weights, 0)
  return Solution(weights, jnp.where(fits, undecided, -1), sums)


def train_by_size(cfg: LegoConfig, members: Members, adapter: Adapter) -> jax.Array:
  """`solver.train` of all members at once, padded to one of a few sizes.

  The size depends on |D_aj| only, so that the bits do as well.
  """
  capacities = [_SMALLEST]
  while capacities[-1] < len(members.rows):
    capacities.append(4 * capacities[-1])

  def train(capacity: int, members: Members, adapter: Adapter) -> jax.Array:
    codes, labels, signs = take(members, jnp.int32(0), capacity)
    trained: jax.Array = cfg.solver.train(cfg, codes, labels, signs != 0, adapter)
    return trained

  which = sum((members.size > c).astype(jnp.int32) for c in capacities[:-1])
  forms = [functools.partial(train, c) for c in capacities]
  found: jax.Array = jax.lax.switch(which, forms, members, adapter)
  return found


def make_adapter(
  seed: jax.Array, words: jax.Array, options: dict[str, jax.Array]
) -> Adapter:
  """What a solver may know of the adapter with the id `words` [2]."""
  return Adapter(ids_lib.fold_in_id(seed, ids_lib.INIT_STREAM, words), options)
