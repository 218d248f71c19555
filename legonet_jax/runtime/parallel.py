"""Independent adapters on all cores of the host.

The steps of one adapter are a chain of small operations, which run best on one core;
adapters are independent of each other. So on CPU each core trains its own adapters,
with the same executable, and no bit depends on the number of cores. An accelerator runs
one program at a time, so it trains the adapters one by one.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
import contextlib
import functools
import itertools
import os
from typing import TypeVar

import jax
import threadpoolctl

from legonet_jax.runtime import flags

T = TypeVar("T")
R = TypeVar("R")


def count_cores() -> int:
  """Number of cores that this process may use; if unknown, cores of the machine.

  Only Linux and some BSDs can bind a process to a part of the cores.
  """
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def count() -> int:
  """How many adapters, or groups of them, to work on at a time."""
  return count_cores() if jax.default_backend() == "cpu" else 1


def each(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
  """`map(work, items)`, in order, on several threads and under the pinned flags.

  Args:
    work: a pure function; its result should be computed, not just dispatched.
    items: its arguments; read only when needed, so that few are in memory.

  Yields:
    The results, in the order of `items`.
  """
  pinned = flags.pinned()(work)  # jax's flags hold for one thread only
  yield from _map(pinned, items, count())


def on_cores(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
  """`map(work, items)`, in order, on all cores: for work that does not use jax."""
  yield from _map(work, items, count_cores())


def one_blas_thread() -> contextlib.AbstractContextManager[object]:
  """A context in which each call of BLAS and LAPACK keeps to the thread that makes it.

  The cores have work of their own, and threads of OpenBLAS that find no core free wait
  for each other: on a busy machine that is ten times slower.
  """
  limit: contextlib.AbstractContextManager[object]
  limit = _blas().limit(limits=1, user_api="blas")
  return limit


@functools.lru_cache(maxsize=1)
def _blas() -> threadpoolctl.ThreadpoolController:
  import scipy.linalg  # noqa: F401  (so that its BLAS is found)

  return threadpoolctl.ThreadpoolController()


def _map(work: Callable[[T], R], items: Iterable[T], number: int) -> Iterator[R]:
  rest = iter(items)
  if number == 1:
    yield from map(work, rest)
    return
  with futures.ThreadPoolExecutor(number) as pool:
    try:
      # One item more than threads, so that no thread waits for the consumer.
      queue = [pool.submit(work, item) for item in itertools.islice(rest, number + 1)]
      while queue:
        yield queue.pop(0).result()
        queue.extend(pool.submit(work, item) for item in itertools.islice(rest, 1))
    finally:
      pool.shutdown(cancel_futures=True)
