"""One arithmetic, whatever flags the caller's process has set.

`jax_enable_x64`, `jax_threefry_partitionable`, `jax_default_matmul_precision`,
`jax_default_prng_impl` and the like belong to the caller, but a state made under one
setting and unlearned under another would equal a refit under neither. So this library
pins these flags while it makes states and encodings. PRNG keys name their
implementation (see `ids.fold_in_id`): under `vmap`, the numbers of the generator `rbg`
would depend on their position.
"""

from collections.abc import Callable, Iterator
from concurrent import futures
import contextlib
import functools
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from legonet_jax import errors

# How float weights are compiled. On a GPU, XLA otherwise chooses algorithms by timing
# them, and two processes may choose differently. Other backends ignore these options.
DETERMINISTIC = {"xla_gpu_deterministic_ops": True, "xla_gpu_autotune_level": 0}
# Each product names its precision, so that it also holds inside a caller's `jit`.
PRECISION = jax.lax.Precision.HIGHEST

P = ParamSpec("P")
R = TypeVar("R")
_TRACED = (
  jax.errors.ConcretizationTypeError,
  jax.errors.TracerArrayConversionError,
  jax.errors.TracerBoolConversionError,
  jax.errors.TracerIntegerConversionError,
  jax.errors.NonConcreteBooleanIndexError,
)


@contextlib.contextmanager
def pinned() -> Iterator[None]:
  """Pins jax's flags, as a context or a decorator, for making states and encodings."""
  with (
    jax.enable_x64(False),
    jax.threefry_partitionable(True),
    jax.default_matmul_precision("highest"),
    jax.numpy_dtype_promotion("standard"),  # optax's Adam needs it
  ):
    yield


def host_only(twin: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
  """Decorates a host function, so that tracing it raises a clear error.

  Args:
    twin: the function of `functional` that does the same inside a trace, if any does.
  """
  way = "call it" if twin is None else f"use legonet_jax.functional.{twin}, or call it"

  def decorate(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
      try:
        return function(*args, **kwargs)
      except _TRACED as e:
        raise errors.TracedError(
          f"{function.__name__} works on the host and cannot be traced; {way} outside"
          " of jit, vmap, grad and scan"
        ) from e

    return call

  return decorate


def answers(function: Callable[..., Any], args: Any, truth: Any) -> bool:
  """Whether `jit(vmap(function))` of `args` gives the lists `truth`.

  A known answer says more than a release's number. It is tried on another thread, where
  no trace of a caller is under way.
  """
  with futures.ThreadPoolExecutor(1) as pool:
    found = pool.submit(jax.jit(jax.vmap(function)), *args).result()
  return all(
    np.ravel(got).tolist() == want for got, want in zip(found, truth, strict=True)
  )
