"""What the machine can do at best, measured: the yardstick for everything else."""

from collections.abc import Callable
import os
import pathlib
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def seconds(call: Callable[..., Any], *args: Any) -> float:
  """Wall time of one call, until its result is there."""
  start = time.perf_counter()
  jax.block_until_ready(call(*args))
  return time.perf_counter() - start


def summary(times: list[float]) -> dict[str, float]:
  """Median and spread, in milliseconds."""
  return {
    "median_ms": 1e3 * statistics.median(times),
    "min_ms": 1e3 * min(times),
    "max_ms": 1e3 * max(times),
  }


class Watch:
  """How much of the cores other processes took since it was made; Linux only."""

  def __init__(self) -> None:
    self._start = self._read()

  def _read(self) -> tuple[float, float, float]:
    """Seconds by the clock, busy seconds of all cores, and those of this process."""
    try:
      line = pathlib.Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
      return 0.0, 0.0, 0.0
    user, nice, system, _, _, irq, soft, steal, *_ = map(int, line.split()[1:])
    busy = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), busy, time.process_time()

  def others(self) -> float:
    """Their share of all cores; about 0.01 / seconds watched is its error."""
    clock, busy, mine = map(float.__sub__, self._read(), self._start)
    return max(0.0, busy - mine) / max(clock * (os.cpu_count() or 1), 1e-9)


def peaks() -> dict[str, float]:
  """GFLOP/s of a large float32 matmul, and GB/s of a large copy (read and written)."""
  a = jnp.ones((3072, 3072), jnp.float32)
  product = jax.jit(jnp.matmul)
  product(a, a).block_until_ready()
  best = min(seconds(product, a, a) for _ in range(7))
  source, target = np.ones(2**28, np.int8), np.zeros(2**28, np.int8)
  copy = min(seconds(np.copyto, target, source) for _ in range(7))
  return {"matmul_gflops": 2 * 3072**3 / best / 1e9, "copy_gbps": 2**29 / copy / 1e9}
