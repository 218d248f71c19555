"""Where the time of one adapter goes: each step of it alone, compiled.

    python -m benchmarks.profile

`Ridge`: a request of one sample, and a fit of 900 members. `Sgd()`: one mini-batch.
d = 512, one adapter, one core; microseconds, best of 30.
"""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machine import seconds
import legonet_jax as lego
from legonet_jax.core import single
from legonet_jax.core.config import for_one_adapter
from legonet_jax.runtime import flags
from legonet_jax.solvers import certified, exact_sums

WHO = np.uint32(0), np.zeros(2, np.uint32)


def best(*call: Any) -> float:
  """Microseconds of `call[0](*call[1:])`."""
  jax.block_until_ready(call[0](*call[1:]))
  return 1e6 * min(seconds(*call) for _ in range(30))


def make(classes: int, solver: Any) -> tuple[lego.LegoConfig, lego.Samples]:
  """Settings of one adapter, and its 900 members."""
  cfg = for_one_adapter(lego.LegoConfig(classes, solver=solver))
  rng = np.random.default_rng(0)
  e = rng.gamma(0.5, 1.0, (900, 512))
  return cfg, lego.make_samples(cfg, e, rng.integers(0, classes, 900))


def ridge_parts(classes: int) -> dict[str, float]:
  """The steps of one adapter in a request and in a fit."""
  cfg, samples = make(classes, lego.Ridge())
  data, rows, signs = samples.data, np.arange(900), np.ones(900, np.int8)
  sums, fits = single.carry_rows(cfg, data, rows, signs, WHO)
  gram = jax.jit(exact_sums.unpack)(sums)
  penalty = cfg.solver.exact_penalty
  solve = jax.jit(lambda a, b: certified.solve_rounded(penalty, a, b))
  less = (cfg, data, rows[:1], -signs[:1], WHO, sums)
  return {
    "subtract the sample from A_j and B_j": best(single.carry_rows, *less),
    "unpack A_j": best(jax.jit(exact_sums.unpack), sums),
    "certified rounding": best(solve, gram, sums.cross),
    "both, as one program": best(single.solve_carry, cfg, sums, fits),
    "sum up 900 members": best(single.carry_rows, cfg, data, rows, signs, WHO),
  }


def sgd_parts(classes: int) -> dict[str, float]:
  """One mini-batch, inside the loop that trains an adapter."""
  cfg, samples = make(classes, lego.Sgd(epochs=40, tile_batches=16))
  data, rows, signs = samples.data, np.arange(900), np.ones(900, np.int8)
  steps = cfg.solver.epochs * -(-900 // cfg.solver.batch_size)
  whole = best(single.carry_rows, cfg, data, rows, signs, WHO)
  w, x = jnp.zeros((classes, 512)), jnp.ones((64, 512))

  def products(w: jax.Array) -> jax.Array:
    z = jnp.einsum("cd,bd->cb", w, x, precision=flags.PRECISION)
    return w + 1e-9 * jnp.einsum("cb,bd->cd", z, x, precision=flags.PRECISION)

  loop = jax.jit(lambda w: jax.lax.fori_loop(0, steps, lambda _, w: products(w), w))
  return {"its two products": best(loop, w) / steps, "a step": whole / steps}


def main() -> None:
  """Prints the parts."""
  with flags.pinned():
    for classes in (10, 100):
      parts = {"sgd": sgd_parts(classes), "ridge": ridge_parts(classes)}
      print(f"C = {classes}")
      print(json.dumps(parts, indent=2, ensure_ascii=False))


if __name__ == "__main__":
  main()
