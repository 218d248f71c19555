"""Where the time of a step goes: each part of it alone, beside the whole.

    python -m benchmarks.profile

The parts of one mini-batch of one group of lanes (`Sgd()`'s settings, d = 512), each in
a loop of its own on one core's share of the work, and of one ridge request (one
adapter). Parts run alone do not add up exactly to the whole: fused they share memory
traffic. Microseconds, best of several loops.
"""

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machine import seconds
import legonet_jax as lego
from legonet_jax.core import adapters, ids as ids_lib
from legonet_jax.runtime import flags
from legonet_jax.solvers import exact_sums, lanes
from legonet_jax.solvers.optimizers import make_optimizer

_LOOPS = 200


def best(function: Any, *args: Any) -> float:
  """Microseconds per iteration of `function(args) -> args[0]` in a compiled loop."""

  @jax.jit
  def loop(first: Any, rest: Any) -> Any:
    return jax.lax.fori_loop(0, _LOOPS, lambda _, f: function(f, *rest), first)

  jax.block_until_ready(loop(args[0], args[1:]))
  return 1e6 / _LOOPS * min(seconds(loop, args[0], args[1:]) for _ in range(9))


def sgd_parts(classes: int) -> dict[str, float]:
  """Of one step: 2 lanes of 64 samples."""
  cfg = lego.LegoConfig(classes, solver=lego.Sgd())
  solver: lego.Sgd = cfg.solver
  rng = np.random.default_rng(0)
  shape = (solver.tile_batches, solver.lanes, solver.batch_size)
  codes = rng.integers(0, 50, (*shape, 512)).astype(np.int8)
  labels = rng.integers(0, classes, shape).astype(np.int32)
  words = ids_lib.to_words(np.arange(solver.lanes, dtype=np.int64))
  started = lanes.start_lanes(cfg, 512, np.uint32(0), words)
  x = adapters.dequantize(cfg, jnp.asarray(codes[0]))
  w = started.weights
  z = jnp.einsum("lcd,lbd->lcb", w, x)
  targets = jax.vmap(functools.partial(adapters.targets, cfg))(jnp.asarray(labels[0]))
  update = jax.vmap(make_optimizer(solver.optimizer, solver.options).update)

  def softmax(z: jax.Array) -> jax.Array:
    e = jnp.exp(z - jnp.max(z, axis=1, keepdims=True))
    p = e / jnp.sum(e, axis=1, keepdims=True)
    return (p - targets.hit) * targets.share[:, None, :]

  def optimise(now: lanes.Lanes, grads: jax.Array) -> lanes.Lanes:
    step, state = update(grads, now.opt_state, now.weights)
    return lanes.Lanes(now.weights + step, state)

  table = rng.integers(0, 50, (50_000, 512)).astype(np.int8)
  rows = rng.integers(0, len(table), solver.lanes * solver.batch_size)
  tile = lanes.Tile(codes, labels, np.int32(shape[0]), np.int32(solver.epochs))
  steps = shape[0] * solver.epochs

  def whole() -> float:
    fresh = jax.tree.map(jnp.copy, lanes)
    return seconds(lanes.run_tile, cfg, fresh, tile) / steps * 1e6

  whole()
  return {
    "gather rows of the table (host, once per tile)": 1e6
    * min(seconds(lambda: table[rows]) for _ in range(50)),
    "int8 to float32": best(
      lambda x, c: x * 0 + adapters.dequantize(cfg, c), x, jnp.asarray(codes[0])
    ),
    "z = W x": best(
      lambda w, x: w + 1e-9 * jnp.sum(jnp.einsum("lcd,lbd->lcb", w, x)), w, x
    ),
    "softmax": best(softmax, z),
    "gradient = (p - y) xᵀ": best(
      lambda w, z, x: w + 1e-9 * jnp.einsum("lcb,lbd->lcd", z + w[:, :, :1], x),
      w, z, x,
    ),
    "optimiser": best(optimise, started, w),
    "the whole step": min(whole() for _ in range(9)),
  }  # fmt: skip


def ridge_parts(classes: int) -> dict[str, float]:
  """Of one adapter in a request that forgets one sample."""
  cfg = lego.LegoConfig(classes)
  rng = np.random.default_rng(0)
  e = rng.gamma(0.5, 1.0, (900, 512))
  samples = lego.make_samples(cfg, e, rng.integers(0, classes, 900))
  rows, signs = np.arange(900), np.ones(900, np.int8)

  def summed(start: exact_sums.Sums, rows: Any, signs: Any) -> exact_sums.Sums:
    return exact_sums.sum_rows(samples, start, rows, signs, 900)

  zeros = exact_sums.zeros(cfg, 512)
  sums = summed(zeros, rows, signs)
  cfg.solver.solve_on_host(sums)
  each = {
    "subtract the sample from A_j and B_j": (summed, sums, rows[:1], -signs[:1]),
    "solve": (cfg.solver.solve, sums),
    "(sum up 900 members instead of subtracting)": (summed, zeros, rows, signs),
  }
  return {k: 1e6 * min(seconds(*call) for _ in range(30)) for k, call in each.items()}


def main() -> None:
  """Prints the parts."""
  with flags.pinned():
    for classes in (10, 100):
      parts = {"sgd": sgd_parts(classes), "ridge": ridge_parts(classes)}
      print(f"C = {classes}")
      print(json.dumps(parts, indent=2, ensure_ascii=False))


if __name__ == "__main__":
  main()
