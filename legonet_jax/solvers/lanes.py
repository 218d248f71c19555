"""θ_j = argmin Σ_{D_aj} L (paper, eq. 4): training adapters in lanes of a fixed width.

One executable trains all adapters, in `fit`, `unlearn` and `learn` alike. It runs
`lanes` adapters side by side under `vmap` on a *tile*: up to `tile_batches` batches of
each lane's members, gathered by the host from the int8 table. None of its shapes
depends on N, on n, on |D_aj| or on the size of a request; the number of steps is an
argument. So no request compiles anything, and no adapter's bits depend on its
neighbours:

- the width is always the same; a last, smaller group is padded with empty lanes;
- a step on a batch without samples changes neither weights nor optimiser state;
- an adapter's batches come from its own members in hash order, its initial weights from
  its own id, and its number of steps from its own |D_aj|.
"""

from collections.abc import Iterator
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
import optax

from legonet_jax import errors
from legonet_jax.core import adapters, ids as ids_lib
from legonet_jax.core.config import LegoConfig, for_one_adapter
from legonet_jax.core.membership import Members
from legonet_jax.core.samples import Samples
from legonet_jax.runtime import flags, parallel
from legonet_jax.runtime.callbacks import Progress
from legonet_jax.solvers.optimizers import make_optimizer

# Up to this size, a group keeps its tiles, so that later epochs gather no rows.
_KEEP_BYTES = 2**25


class Lanes(NamedTuple):
  """Adapters in training: W [lanes, C, d] and their optimiser states [lanes, ...]."""

  weights: jax.Array
  opt_state: Any


class Tile(NamedTuple):
  """The next batches of every lane.

  Attributes:
    codes: [tile_batches, lanes, batch_size, d] int8.
    labels: [tile_batches, lanes, batch_size] int32, -1 where there is no sample.
    batches: scalar, how many batches of the tile to run.
    epochs: scalar, how many times to run them.
  """

  codes: NDArray[np.int8]
  labels: NDArray[np.int32]
  batches: np.int32
  epochs: np.int32


def _optimizer(cfg: LegoConfig) -> optax.GradientTransformation:
  return make_optimizer(cfg.solver.optimizer, cfg.solver.options)


def step(
  cfg: LegoConfig, lane: Lanes, codes: jax.Array, targets: adapters.Targets
) -> Lanes:
  """One mini-batch of one adapter, codes [B, d]; without labels it changes nothing."""
  x = adapters.dequantize(cfg, codes)
  grads = adapters.gradient(lane.weights, x, targets)
  updates, opt_state = _optimizer(cfg).update(grads, lane.opt_state, lane.weights)
  new = Lanes(optax.apply_updates(lane.weights, updates), opt_state)
  kept: Lanes = jax.tree.map(lambda a, b: jnp.where(targets.active, a, b), new, lane)
  return kept


@functools.partial(jax.jit, static_argnums=(0, 1), compiler_options=flags.DETERMINISTIC)
def start_lanes(cfg: LegoConfig, dim: int, seed: jax.Array, words: jax.Array) -> Lanes:
  """Fresh lanes for the adapters with ids `words` [lanes, 2]."""

  def one(word: jax.Array) -> Lanes:
    key = ids_lib.fold_in_id(seed, ids_lib.INIT_STREAM, word)
    weights = adapters.init_weights(cfg, dim, key)
    return Lanes(weights, _optimizer(cfg).init(weights))

  return jax.vmap(one)(words)


@functools.partial(
  jax.jit, static_argnums=0, donate_argnums=1, compiler_options=flags.DETERMINISTIC
)
def run_tile(cfg: LegoConfig, lanes: Lanes, tile: Tile) -> Lanes:
  """Trains all lanes on a tile, `epochs` times over its first `batches` batches."""
  targets = jax.vmap(jax.vmap(functools.partial(adapters.targets, cfg)))(
    jnp.asarray(tile.labels)
  )

  def batch(b: jax.Array, lanes: Lanes) -> Lanes:
    now = jax.tree.map(
      lambda a: jax.lax.dynamic_index_in_dim(a, b, keepdims=False),
      (tile.codes, targets),
    )
    return jax.vmap(functools.partial(step, cfg))(lanes, *now)

  def epoch(_: jax.Array, lanes: Lanes) -> Lanes:
    done: Lanes = jax.lax.fori_loop(0, tile.batches, batch, lanes)
    return done

  trained: Lanes = jax.lax.fori_loop(0, tile.epochs, epoch, lanes)
  return trained


@functools.partial(jax.jit, donate_argnums=0)
def _place(weights: jax.Array, at: jax.Array, trained: jax.Array) -> jax.Array:
  """Writes lanes into the adapters' array; drops empty lanes, placed beyond its end."""
  return weights.at[at].set(trained, mode="drop", unique_indices=True)


def train_adapters(
  cfg: LegoConfig,
  samples: Samples,
  rows: NDArray[np.intp],
  members: Members,
  adapter_ids: ids_lib.Ids,
  weights: jax.Array,
  progress: Progress | None = None,
) -> jax.Array:
  """Trains the adapters in `members` from scratch and leaves the others alone.

  Args:
    cfg: the settings.
    samples: the table.
    rows: [total] rows of the table, in the order of `members.positions`.
    members: the adapters to train and their members, at least one each.
    adapter_ids: [m] stable ids, which determine the initial weights.
    weights: W [n, C, d] of all adapters; consumed.
    progress: called with (samples passed, samples in all), both multiplied by epochs.

  Returns:
    W [n, C, d].
  """
  solver = cfg.solver
  width, sizes, shared = solver.lanes, members.sizes, for_one_adapter(cfg)
  # Similar sizes side by side: a group runs as long as its largest adapter.
  by_size = np.argsort(-sizes, kind="stable")
  groups = [by_size[i : i + width] for i in range(0, len(by_size), width)]

  def train_group(group: NDArray[np.intp]) -> jax.Array:
    spans = [rows[members.offsets[i] : members.offsets[i + 1]] for i in group]
    lane_ids = np.zeros(width, np.int64)
    lane_ids[: len(group)] = adapter_ids[group]
    words, dim = ids_lib.to_words(lane_ids), samples.codes.shape[1]
    lanes = start_lanes(shared, dim, np.uint32(cfg.seed), words)
    for tile in _make_tiles(solver, samples, spans):
      lanes = run_tile(shared, lanes, tile)
      # Waits: tiles dispatched ahead would pile up in memory, and the other cores have
      # their own work.
      lanes.weights.block_until_ready()
    weights: jax.Array = lanes.weights
    return weights

  total, done = solver.epochs * int(sizes.sum()), 0
  for group, lanes in zip(groups, parallel.each(train_group, groups), strict=True):
    if not np.isfinite(lanes).all():
      raise errors.ConfigError(
        "the training of an adapter diverged: its weights are not finite numbers; lower"
        " learning_rate, or correct the other solver.options"
      )
    at = weights.shape[0] + np.arange(width, dtype=np.int32)  # no index twice
    at[: len(group)] = members.adapters[group]
    weights = _place(weights, at, lanes)
    if progress is not None:
      done += solver.epochs * int(sizes[group].sum())
      progress(done, total)
  return weights


def compile_all(cfg: LegoConfig, dim: int) -> None:
  """Compiles everything now, so that the workers do not all compile it at once."""
  solver = cfg.solver
  shared, words = for_one_adapter(cfg), np.zeros((solver.lanes, 2), np.uint32)
  lanes = start_lanes(shared, dim, np.uint32(cfg.seed), words)
  shape = (solver.tile_batches, solver.lanes, solver.batch_size)
  codes, labels = np.zeros((*shape, dim), np.int8), np.full(shape, -1, np.int32)
  run_tile(shared, lanes, Tile(codes, labels, np.int32(0), np.int32(0)))


def _make_tiles(
  solver: Any, samples: Samples, spans: list[NDArray[np.intp]]
) -> Iterator[Tile]:
  """The tiles that train the lanes on their `spans` of rows, epoch after epoch."""
  capacity = solver.tile_batches * solver.batch_size
  longest = max(len(span) for span in spans)
  if longest <= capacity:
    yield _make_tile(solver, samples, spans, solver.epochs)
    return
  starts = range(0, longest, capacity)
  kept: list[Tile] = []
  for _ in range(solver.epochs):
    if len(kept) == len(starts):
      yield from kept
      continue
    for start in starts:
      tile = _make_tile(
        solver, samples, [s[start : start + capacity] for s in spans], 1
      )
      if tile.codes.nbytes * len(starts) <= _KEEP_BYTES:
        kept.append(tile)
      yield tile


def _make_tile(
  solver: Any, samples: Samples, parts: list[NDArray[np.intp]], epochs: int
) -> Tile:
  """A tile of rows `parts`, one part per lane, none longer than a tile."""
  size = solver.batch_size
  shape = (solver.tile_batches, solver.lanes, size)
  batches = -(-max(len(part) for part in parts) // size)
  codes = np.empty((*shape, samples.codes.shape[1]), np.int8)
  labels = np.full(shape, -1, np.int32)
  codes[:batches] = 0
  for lane, part in enumerate(parts):
    for b in range(-(-len(part) // size)):
      batch = part[b * size : (b + 1) * size]
      codes[b, lane, : len(batch)] = samples.codes[batch]
      labels[b, lane, : len(batch)] = samples.labels[batch]
  return Tile(codes, labels, np.int32(batches), np.int32(epochs))
