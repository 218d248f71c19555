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
        if not _is_traced(args, kwargs):
          raise  # of a solver's own function, say
        raise errors.TracedError(
          f"{function.__name__} works on the host and cannot be traced; {way} outside"
          " of jit, vmap, grad and scan"
        ) from e

    return call

  return decorate


def _is_traced(*given: Any) -> bool:
  """Whether a call is traced: by what it is given, or by a `jit` around it."""
  leaves = [*jax.tree.leaves(given), jax.numpy.add(1, 1)]
  return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def probe_float64(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
  """a b as high and low 32 bits, and b a / sqrt(a²), in float64, of int32 [1] each.

  What certified rounding and exact logits are made of: products, a factor, a solve.
  """
  lax = jax.lax
  with jax.enable_x64(True):
    x, y = (v.astype(np.float64)[:, None] for v in (a, b))
    product = lax.dot(x, y, precision=lax.Precision.HIGHEST)[0]
    high = jax.numpy.floor(product * 2.0**-20)
    low = product - high * 2.0**20
    factor = lax.linalg.cholesky(x * x, symmetrize_input=False)
    solved = lax.linalg.triangular_solve(factor, x * y, left_side=True, lower=True)
    return (
      high.astype(np.int32),
      low.astype(np.int32),
      jax.numpy.round(solved[0]).astype(np.int32),
    )


@functools.lru_cache(maxsize=1)
def float64_works() -> bool:
  """Whether this release of JAX keeps float64 inside jit and vmap, by a known answer.

  Contexts of x64 inside a traced function are fragile (jax-ml/jax 5982), and a known
  answer says more than a release's number. It is asked for on another thread, where no
  trace of a caller is under way.
  """
  a, b = 2**20 + 1, np.array([[2**20 + 7], [-(2**19) - 5]], np.int32)

  def ask() -> list[np.ndarray[Any, Any]]:
    found = jax.jit(jax.vmap(probe_float64))(np.full((2, 1), a, np.int32), b)
    return [np.asarray(part) for part in found]

  with futures.ThreadPoolExecutor(1) as pool:
    found = pool.submit(ask).result()
  got = [tuple(int(part[i, 0]) for part in found) for i in range(2)]
  return got == [(*divmod(a * int(v), 2**20), int(v)) for v in b[:, 0]]
