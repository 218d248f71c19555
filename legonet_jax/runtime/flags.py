"""One arithmetic, whatever flags the caller's process has set.

`jax_enable_x64`, `jax_threefry_partitionable`, `jax_default_matmul_precision`,
`jax_default_prng_impl` and the like belong to the caller, but a state made under one
setting and unlearned under another would be neither of two refits. So states and
encodings are made under settings of their own. PRNG keys name their implementation (see
`ids.fold_in_id`): the generator `rbg` is not independent of its place under `vmap`.
"""

from collections.abc import Callable, Iterator
import contextlib
import functools
from typing import ParamSpec, TypeVar

import jax

from legonet_jax import errors

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
  """A context, or a decorator, in which all states and encodings are made."""
  with (
    jax.enable_x64(False),
    jax.threefry_partitionable(True),
    jax.default_matmul_precision("highest"),
    jax.numpy_dtype_promotion("standard"),  # optax's Adam needs it
  ):
    yield


def host_only(function: Callable[P, R]) -> Callable[P, R]:
  """Says clearly that a function of the host cannot be traced, where it was."""

  @functools.wraps(function)
  def call(*args: P.args, **kwargs: P.kwargs) -> R:
    try:
      return function(*args, **kwargs)
    except _TRACED as e:
      raise errors.TracedError(
        f"{function.__name__} works on the host and cannot be traced; call it outside"
        " of jit, vmap, grad and scan (predict, adapter_logits and encode_images can be"
        " traced)"
      ) from e

  return call
