"""Training from host arrays: adapters dispatched side by side to the jitted steps.

The steps of one adapter are a chain of small operations, so on a CPU each core trains
adapters of its own, with the same executables. The host gathers the members, a tile of
fixed shape at a time: no shape depends on N, on n or on the size of a request, so no
request compiles anything but for a solver with `train`, which has a few sizes.
"""

from collections.abc import Callable, Iterator
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig, for_one_adapter
from legonet_jax.core.fold import close, fold, make_adapter, size_of, solve_members
from legonet_jax.core.ids import Ids, to_words
from legonet_jax.core.membership import Changes, Members as AllMembers
from legonet_jax.core.samples import Samples
from legonet_jax.core.solver import Members, Solution
from legonet_jax.runtime import flags, parallel
from legonet_jax.runtime.callbacks import Progress

# Up to this size, an adapter's tiles are kept for the next pass.
_KEEP_BYTES = 2**25
_FEW = 16  # rows that a request usually adds to statistics, or subtracts

FindMembers = Callable[[NDArray[np.intp]], tuple[AllMembers, NDArray[np.intp]]]


Who = tuple[np.uint32, NDArray[np.uint32]]  # the seed, and an id as words [2]


class Task(NamedTuple):
  """Adapters to train.

  Attributes:
    samples: the table that has all members.
    adapters: [m] int, which adapters, ascending; each has at least one member.
    ids: [m] int64, their stable ids.
    sizes: [m] int, |D_aj|.
    members: returns D_aj of given adapters, in hash order, and their rows in the table.
      It reads all routes, so it is called only if needed.
    changes: the samples that joined or left the adapters since `notes` were made.
    notes: [m] the statistics of each adapter before; None for a new adapter.
  """

  samples: Samples
  adapters: NDArray[np.intp]
  ids: Ids
  sizes: NDArray[np.intp]
  members: FindMembers
  changes: Changes
  notes: list[Any]


def train(
  cfg: LegoConfig, task: Task, progress: Progress | None = None
) -> Iterator[Solution]:
  """The solution of each adapter of `task`, in order.

  Raises:
    ConfigError: if sums do not fit in 32 bits, or if training diverged.
  """
  one_cfg, spans = for_one_adapter(cfg), _find_members(task)
  seed, words = np.uint32(cfg.seed), to_words(task.ids)

  def train_one(i: int) -> Solution:
    adapter = int(task.adapters[i])
    start = None
    if adapter in spans:
      rows = spans[adapter]
      signs = np.ones(len(rows), np.int8)
    else:
      start, (rows, signs) = task.notes[i], task.changes.of(adapter)
    return solve_rows(one_cfg, task.samples, rows, signs, (seed, words[i]), start)

  total, done = cfg.solver.passes * int(task.sizes.sum()), 0
  with parallel.one_blas_thread():
    for i, found in enumerate(parallel.each(train_one, range(len(task.adapters)))):
      yield found
      done += cfg.solver.passes * int(task.sizes[i])
      if progress is not None:
        progress(done, total)


def solve_rows(
  cfg: LegoConfig,
  samples: Samples,
  rows: NDArray[np.intp],
  signs: NDArray[np.int8],
  who: Who,
  start: Any = None,
) -> Solution:
  """The solution of one adapter from the table's `rows`.

  Args:
    cfg: the settings.
    samples: the table.
    rows: [m] the members, or those that joined and left since `start`.
    signs: [m] 1 or -1.
    who: the seed and the adapter's id as words [2].
    start: the statistics before, or None.

  Raises:
    ConfigError: if sums do not fit in 32 bits, or if training diverged.
  """
  if not cfg.solver.block:
    members = _gather(samples, rows, signs, size_of(len(rows)))
    return _decide(cfg, _train(cfg, members, *who), None)
  return solve_carry(cfg, *carry_rows(cfg, samples, rows, signs, who, start))


def solve_carry(cfg: LegoConfig, carry: Any, fits: ArrayLike) -> Solution:
  """The solution of one adapter from what `carry_rows` returned."""
  return _decide(cfg, _close(cfg, carry, fits), carry)


def carry_rows(
  cfg: LegoConfig,
  samples: Samples,
  rows: NDArray[np.intp],
  signs: NDArray[np.int8],
  who: Who,
  start: Any = None,
) -> tuple[Any, jax.Array]:
  """The solver's carry after the table's `rows`, tile by tile, and whether it is right.

  Args: as for `solve_rows`.
  """
  solver = cfg.solver
  size = _FEW if solver.additive and len(rows) <= _FEW else solver.tile
  carry = _init(cfg, samples.codes.shape[1], *who) if start is None else start
  fits = jnp.bool_(True)
  starts = range(0, max(1, len(rows)), size)

  def tile_at(start: int) -> Members:
    part = slice(start, start + size)
    return _gather(samples, rows[part], signs[part], size)

  if len(starts) == 1:
    return _run_tile(cfg, tile_at(0), *who, carry, fits, np.int32(solver.passes))  # type: ignore[no-any-return]
  few = len(rows) * samples.codes.shape[1] <= _KEEP_BYTES
  kept = [tile_at(at) for at in starts] if few else None
  for _ in range(solver.passes):
    for tile in kept or map(tile_at, starts):
      carry, fits = _run_tile(cfg, tile, *who, carry, fits, np.int32(1))
  return carry, fits


def _gather(
  samples: Samples, rows: NDArray[np.intp], signs: NDArray[np.int8], size: int
) -> Members:
  """A table of `size` rows, of which the first are `rows` [m]."""
  m = len(rows)
  codes = np.empty((size, samples.codes.shape[1]), np.int8)
  labels, sign = np.zeros(size, np.int32), np.ones(size, np.int8)
  np.take(samples.codes, rows, axis=0, out=codes[:m])
  codes[m:], labels[:m], sign[:m] = 0, samples.labels[rows], signs
  return Members(codes, labels, None, sign, np.int32(m))


_jit: Any = functools.partial(
  jax.jit, static_argnums=0, compiler_options=flags.DETERMINISTIC
)


@functools.partial(_jit, static_argnums=(0, 1))
def _init(cfg: LegoConfig, dim: int, seed: jax.Array, words: jax.Array) -> Any:
  return cfg.solver.init(cfg, dim, make_adapter(seed, words, {}))


def _fold_tile(
  cfg: LegoConfig,
  tile: Members,
  seed: jax.Array,
  words: jax.Array,
  carry: Any,
  fits: jax.Array,
  passes: jax.Array,
) -> tuple[Any, jax.Array]:
  """The carry after `passes` over a tile."""
  return fold(cfg, tile, make_adapter(seed, words, {}), carry, fits, passes)


def _train_at_once(
  cfg: LegoConfig, members: Members, seed: jax.Array, words: jax.Array
) -> Solution:
  return solve_members(cfg, members, make_adapter(seed, words, {}))


_run_tile, _train, _close = _jit(_fold_tile), _jit(_train_at_once), _jit(close)


def compile_all(cfg: LegoConfig, dim: int) -> None:
  """Compiles everything now, so that the workers do not all compile it at once."""
  one_cfg, solver = for_one_adapter(cfg), cfg.solver
  if not solver.block:
    return
  who = np.uint32(0), np.zeros(2, np.uint32)
  carry, fits = _init(one_cfg, dim, *who), jnp.bool_(True)
  for size in {_FEW, solver.tile} if solver.additive else {solver.tile}:
    table = np.zeros((size, dim), np.int8), np.zeros(size, np.int32)
    tile = Members(*table, None, np.ones(size, np.int8), np.int32(0))
    _run_tile(one_cfg, tile, *who, carry, fits, np.int32(1))
  _close(one_cfg, carry, fits)


def _decide(cfg: LegoConfig, found: Solution, carry: Any) -> Solution:
  """A solution on the host, with what was undecided decided.

  Raises:
    ConfigError: if it is not what a solver must give.
  """
  weights, undecided = np.asarray(found.weights), int(found.undecided)
  if undecided < 0:
    raise errors.ConfigError(
      "an adapter has too many members for exact sums in 32 bits; use more adapters"
      " or a larger feature_range"
    )
  if undecided > 0:
    weights = cfg.solver.finish(cfg, carry)
  if not cfg.solver.portable and not np.isfinite(weights).all():
    raise errors.ConfigError(
      "the training of an adapter diverged: its weights are not finite numbers; lower"
      " learning_rate, or correct the other options of the solver"
    )
  return Solution(weights, np.int32(0), found.statistics)


def _find_members(task: Task) -> dict[int, NDArray[np.intp]]:
  """The members' rows of each adapter that is trained from its first member on."""

  def starts_from_zero(adapter: int, size: int, note: Any) -> bool:
    if note is None:
      return True
    rows, _ = task.changes.of(adapter)
    return bool((rows < 0).any()) or len(rows) >= size

  each = zip(task.adapters.tolist(), task.sizes.tolist(), task.notes, strict=True)
  wanted = [
    adapter for adapter, size, note in each if starts_from_zero(adapter, size, note)
  ]
  if not wanted:
    return {}
  members, rows = task.members(np.array(wanted))
  return dict(zip(wanted, np.split(rows, members.offsets[1:-1]), strict=True))
