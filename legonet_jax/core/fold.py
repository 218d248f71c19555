"""D_aj -> W_j: a solver's functions applied to the members of one adapter, traced."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from legonet_jax import errors
from legonet_jax.core import ids as ids_lib
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.solver import Adapter, Batch, Members, Solution

_SMALLEST = 64  # members; `train` is compiled for this many, 4 times as many, ...


def keeps(cfg: LegoConfig) -> bool:
  """Whether a state has statistics."""
  return bool(cfg.solver.additive and cfg.solver.keep)


def make_adapter(
  seed: ArrayLike, words: jax.Array, options: dict[str, jax.Array]
) -> Adapter:
  """What a solver may know of the adapter with the id `words` [2]."""
  return Adapter(ids_lib.fold_in_id(seed, ids_lib.INIT_STREAM, words), options)


def take(members: Members, start: ArrayLike, count: int) -> Batch:
  """Members start ... start + count - 1, padded where there are no more."""
  codes, labels, rows, signs, size = jax.tree.map(jnp.asarray, members)
  at = start + jnp.arange(count, dtype=jnp.int32)
  there = at < size
  if rows is None:
    part = jax.lax.dynamic_slice_in_dim
    codes, labels, signs = (part(a, start, count) for a in (codes, labels, signs))
  else:
    at = jnp.minimum(at, len(rows) - 1)
    codes, labels, signs = codes[rows[at]], labels[rows[at]], signs[at]
    codes = jnp.where(there[:, None], codes, jnp.int8(0))
  return Batch(
    codes, jnp.where(there, labels, -1), jnp.where(there, signs, jnp.int8(0))
  )


def fold(
  cfg: LegoConfig,
  members: Members,
  adapter: Adapter,
  carry: Any,
  fits: ArrayLike = True,
  passes: ArrayLike = 1,
) -> tuple[Any, jax.Array]:
  """The carry after all members, `passes` times, and whether it is right."""
  solver = cfg.solver
  # Few rows, as in a request, need no whole block if any block gives the same carry.
  size = min(solver.block, len(members.signs)) if solver.additive else solver.block

  def step(i: jax.Array, now: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
    carry = solver.update(cfg, now[0], take(members, i * size, size), adapter)
    return carry, now[1] & solver.fits(carry)

  def once(_: jax.Array, now: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
    blocks = (members.size + size - 1) // size
    done: tuple[Any, jax.Array] = jax.lax.fori_loop(0, blocks, step, now)
    return done

  start = carry, jnp.asarray(fits)
  if isinstance(passes, int) and passes == 1:
    return once(jnp.int32(0), start)
  done: tuple[Any, jax.Array] = jax.lax.fori_loop(0, passes, once, start)
  return done


def close(cfg: LegoConfig, carry: Any, fits: jax.Array) -> Solution:
  """W_j from a carry that `fits`, or not."""
  weights, undecided = cfg.solver.solve(cfg, carry)
  _check(cfg, weights)
  return _only_if(fits, weights, undecided, carry if keeps(cfg) else None)


def _only_if(
  fits: ArrayLike, weights: jax.Array, undecided: ArrayLike, carry: Any
) -> Solution:
  """A solution, or one of zeros with `undecided` -1 if it is none."""
  fits = fits & jnp.all(jnp.isfinite(weights))
  weights = jnp.where(jnp.broadcast_to(fits, weights.shape), weights, 0)
  undecided = jnp.where(fits, jnp.asarray(undecided, jnp.int32), -1)
  return Solution(weights, undecided, carry)


def solve_members(
  cfg: LegoConfig, members: Members, adapter: Adapter, carry: Any = None
) -> Solution:
  """W_j of `members`, on top of those that a carry of an additive solver has seen."""
  solver = cfg.solver
  if not solver.block:
    return _only_if(jnp.bool_(True), train_by_size(cfg, members, adapter), 0, None)
  if carry is None:
    carry = solver.init(cfg, members.codes.shape[1], adapter)
  return close(cfg, *fold(cfg, members, adapter, carry, True, solver.passes))


def size_of(count: int) -> int:
  """M, the number of rows with which `train` gets `count` members."""
  size = _SMALLEST
  while size < count:
    size *= 4
  return size


def train_by_size(cfg: LegoConfig, members: Members, adapter: Adapter) -> jax.Array:
  """`solver.train` of all members, padded to a size that depends on |D_aj| only."""
  sizes = [_SMALLEST]
  while sizes[-1] < len(members.signs):
    sizes.append(4 * sizes[-1])

  def train(size: int, members: Members, adapter: Adapter) -> jax.Array:
    codes, labels, signs = take(members, 0, size)
    trained: jax.Array = cfg.solver.train(cfg, codes, labels, signs != 0, adapter)
    _check(cfg, trained, members.codes.shape[1])
    return trained

  which = sum((members.size > size).astype(jnp.int32) for size in sizes[:-1])
  forms = [functools.partial(train, size) for size in sizes]
  found: jax.Array = jax.lax.switch(jnp.int32(which), forms, members, adapter)
  return found


def blank_solution(cfg: LegoConfig, dim: int) -> Solution:
  """The solution of an adapter without members."""
  kind = np.int32 if cfg.solver.portable else np.float32
  sums = cfg.solver.init(cfg, dim, None) if keeps(cfg) else None
  return Solution(jnp.zeros((cfg.num_classes, dim), kind), jnp.int32(0), sums)


def _check(cfg: LegoConfig, weights: Any, dim: int | None = None) -> None:
  """Raises ConfigError if a solver returned something else than W_j [C, d]."""
  kind = jnp.dtype(jnp.int32 if cfg.solver.portable else jnp.float32)
  shape: tuple[int, ...] = getattr(weights, "shape", ())
  found = getattr(weights, "dtype", None)
  right = len(shape) == 2 and shape[0] == cfg.num_classes and found == kind
  if not right or dim not in (None, shape[1]):
    what = type(weights).__name__ if found is None else f"{found}{list(shape)}"
    raise errors.ConfigError(
      f"{type(cfg.solver).__name__} returned {what} as weights; they must be an array"
      f" {kind} of the shape [{cfg.num_classes} classes, {dim or 'width'}]"
    )
