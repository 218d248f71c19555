"""Independent adapters on all cores of the host.

The steps of one adapter are a chain of small operations, which run best on one core;
adapters are independent of each other. So on CPU each core trains its own adapters,
with the same executable, and no bit depends on the number of cores. An accelerator runs
one program at a time, so it trains the adapters one by one.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
import itertools
from typing import TypeVar

import jax

from legonet_jax.runtime import flags, machine

T = TypeVar("T")
R = TypeVar("R")


def count() -> int:
  """How many adapters, or groups of them, to work on at a time."""
  return machine.count_cores() if jax.default_backend() == "cpu" else 1


def each(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
  """`map(work, items)`, in order, on several threads and under the pinned flags.

  Args:
    work: a pure function; its result should be computed, not just dispatched.
    items: its arguments; read only when needed, so that few are in memory.

  Yields:
    The results, in the order of `items`.
  """
  number, rest = count(), iter(items)
  if number == 1:
    yield from map(work, rest)
    return
  pinned = flags.pinned()(work)  # jax's flags hold for one thread only
  with futures.ThreadPoolExecutor(number) as pool:
    try:
      # One item more than threads, so that no thread waits for the consumer.
      queue = [pool.submit(pinned, item) for item in itertools.islice(rest, number + 1)]
      while queue:
        yield queue.pop(0).result()
        queue.extend(pool.submit(pinned, item) for item in itertools.islice(rest, 1))
    finally:
      pool.shutdown(cancel_futures=True)
