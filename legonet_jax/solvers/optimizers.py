"""Optimisers of optax, given by name or as a function, checked before any training."""

from collections.abc import Callable
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from legonet_jax import errors
from legonet_jax.core.plain import need
from legonet_jax.runtime import flags

OptimizerFactory = Callable[..., optax.GradientTransformation]
Options = tuple[tuple[str, Any], ...]

# With larger options, a step on ordinary features overflows float32 (at 3e38).
_MAX_OPTION = 1e30


def make_optimizer(
  optimizer: str | OptimizerFactory, options: Options
) -> optax.GradientTransformation:
  """The optax transformation that `optimizer` names, with these keyword arguments."""
  factory = optimizer
  if isinstance(factory, str) and not factory.startswith("_"):
    factory = getattr(optax, factory, factory)
  need(
    callable(factory),
    f"optimizer is {errors.brief(optimizer)}; name a function of optax such as 'adam',"
    " or give a function that makes an optimiser",
  )
  try:
    made = factory(**dict(options))  # type: ignore[operator]
  except Exception as e:  # somebody else's function may raise anything
    raise errors.ConfigError(
      f"optimizer {errors.brief(optimizer)} with options"
      f" {errors.brief(dict(options))}: {_first_line(e)};"
      " name a function of optax and its keyword arguments"
    ) from e
  need(
    isinstance(made, optax.GradientTransformation),
    f"{errors.brief(optimizer)} is not an optimiser of optax; name one such as 'adam'",
  )
  return made


def check_options(options: Options) -> None:
  """Raises if an option of the optimiser is a number that no training can use."""
  for name, value in options:
    if isinstance(value, (int, float)):
      need(
        -_MAX_OPTION <= value <= _MAX_OPTION,
        f"solver.options have {name} {errors.brief(value)};"
        f" it must be a finite number of at most {_MAX_OPTION:g}",
      )
  rate = dict(options).get("learning_rate", 1.0)
  if not callable(rate):
    # With None, optax does not scale at all, not even by -1: it would ascend.
    need(
      isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate > 0,
      f"solver.options have learning_rate {errors.brief(rate)};"
      " it must be a number above 0, or be left out for the optimiser's own",
    )


@functools.lru_cache(maxsize=256)
@flags.pinned()
def check_optimizer(optimizer: str | OptimizerFactory, options: Options) -> None:
  """Traces one step of the optimiser; raises if training could not run it."""
  made = make_optimizer(optimizer, options)

  def step(weights: jax.Array, grads: jax.Array) -> tuple[Any, Any]:
    state = made.init(weights)
    updates, after = made.update(grads, state, weights)
    return (weights, state), (optax.apply_updates(weights, updates), after)

  shape = jax.ShapeDtypeStruct((2, 3), jnp.float32)  # type: ignore[no-untyped-call]
  try:
    before, after = jax.eval_shape(step, shape, shape)
  except Exception as e:  # somebody else's function may raise anything
    raise errors.ConfigError(
      f"optimizer {errors.brief(optimizer)} with options"
      f" {errors.brief(dict(options))} cannot do a step from gradients, its state and"
      f" weights alone: {_first_line(e)}; take another one such as 'adam'"
    ) from e
  kinds = [
    (jax.tree.structure(tree), [(a.shape, a.dtype) for a in jax.tree.leaves(tree)])
    for tree in (before, after)
  ]
  need(
    kinds[0] == kinds[1],
    f"optimizer {errors.brief(optimizer)} changes the shape or type of its state from"
    " step to step, so it cannot run in a loop; take another one such as 'adam'",
  )


def _first_line(error: Exception) -> str:
  """The first line of an error's message, or its type if it has none."""
  lines = str(error).strip().splitlines()
  return lines[0][:200] if lines else type(error).__name__
