"""θ_j = argmin Σ_{D_aj} L (paper, eq. 4): Algorithm 1 for one adapter, as a program.

An adapter's batches are its own members in hash order, its initial weights come from
its own id, and its number of steps from its own |D_aj|. So its bits depend neither on
the other adapters nor on where its members lie in the table.
"""

import jax
import optax

from legonet_jax.core import adapters
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.solver import Adapter, Members, take
from legonet_jax.solvers.optimizers import make_optimizer


def train(cfg: LegoConfig, members: Members, adapter: Adapter) -> jax.Array:
  """W_j [C, d] float32 after `epochs` passes over the members.

  Options of the adapter replace those of the solver; they may be traced.
  """
  solver, size = cfg.solver, cfg.solver.batch_size
  options = {**dict(solver.options), **adapter.options}
  optimizer = make_optimizer(solver.optimizer, tuple(options.items()))
  weights = adapters.init_weights(cfg, members.codes.shape[1], adapter.key)
  batches = (members.size + size - 1) // size

  def step(
    b: jax.Array, now: tuple[jax.Array, optax.OptState]
  ) -> tuple[jax.Array, optax.OptState]:
    weights, opt_state = now
    codes, labels, _ = take(members, b * size, size)
    x = adapters.dequantize(cfg, codes)
    grads = adapters.gradient(weights, x, adapters.targets(cfg, labels))
    updates, opt_state = optimizer.update(grads, opt_state, weights)
    return optax.apply_updates(weights, updates), opt_state

  def epoch(
    _: jax.Array, now: tuple[jax.Array, optax.OptState]
  ) -> tuple[jax.Array, optax.OptState]:
    done: tuple[jax.Array, optax.OptState] = jax.lax.fori_loop(0, batches, step, now)
    return done

  start = weights, optimizer.init(weights)
  trained: jax.Array = jax.lax.fori_loop(0, solver.epochs, epoch, start)[0]
  return trained
