"""Peak memory of a fit, and how fast a new process serves its first request.

Each is measured in a process of its own, which this module starts as
`python -m benchmarks.startup WHAT ...`.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any


def _run(*args: str, cache: str = "") -> dict[str, Any]:
  env = dict(os.environ)
  if cache:
    env |= {
      "JAX_COMPILATION_CACHE_DIR": cache,
      "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
  command = [sys.executable, "-m", "benchmarks.startup", *args, str(time.time())]
  done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
  result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
  return result


def measure_memory(folder: pathlib.Path | None, count: int) -> dict[str, Any]:
  """Peak memory of a fit (`sgd`, n = 1000) over the interpreter with jax imported."""
  return _run("memory", str(folder or ""), str(count))


def measure_startup(folder: pathlib.Path | None, count: int) -> list[dict[str, Any]]:
  """Import, load and first request of a new process with a warm compilation cache."""
  results = []
  for solver in ("ridge", "sgd"):
    with tempfile.TemporaryDirectory() as temporary:
      cache = f"{temporary}/cache"
      _run("save", str(folder or ""), str(count), solver, temporary, cache=cache)
      _run("serve", solver, temporary, cache=cache)  # fills the cache
      results.append(_run("serve", solver, temporary, cache=cache))
  return results


def _memory_mb(peak: bool = False) -> float:
  """Memory that this process holds now, or the most that it ever held."""
  status = pathlib.Path("/proc/self/status")
  if status.exists():  # not `getrusage`: on Linux its peak includes the parent's
    field = "VmHWM:" if peak else "VmRSS:"
    lines = status.read_text().splitlines()
    return next(int(s.split()[1]) for s in lines if s.startswith(field)) / 1024
  if peak:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS: bytes
  command = ["ps", "-o", "rss=", "-p", str(os.getpid())]
  told = subprocess.run(command, check=True, capture_output=True, text=True)
  return int(told.stdout) / 1024


def _child(what: str, *args: str) -> dict[str, Any]:
  import jax
  import jax.numpy as jnp

  jnp.zeros(1).block_until_ready()
  bare = _memory_mb()
  import numpy as np

  import legonet_jax as lego
  from legonet_jax.host.state import from_arrays, to_arrays

  def config(solver: str) -> lego.LegoConfig:
    chosen = lego.Ridge() if solver == "ridge" else lego.Sgd()
    return lego.LegoConfig(10, num_adapters=1000, solver=chosen)

  if what == "serve":
    solver, place, began = args
    cfg, imported = config(solver), time.time()
    with np.load(f"{place}/state.npz") as file:
      state = from_arrays(dict(file), cfg)
    with np.load(f"{place}/samples.npz") as file:
      samples = lego.Samples(**file)
    loaded = time.time()
    wanted = state.ids[-3:]
    lego.unlearn(state, samples, wanted[:1])
    first = time.time()
    lego.unlearn(state, samples, wanted[1:2])
    return {
      "solver": solver,
      "N": len(samples.ids),
      "import_seconds": imported - float(began),
      "load_seconds": loaded - imported,
      "first_request_seconds": first - loaded,
      "second_request_seconds": time.time() - first,
    }
  from benchmarks.requests import make_case

  folder, count = args[0], int(args[1])
  case = make_case(pathlib.Path(folder) if folder else None, count, 10, 1000)
  if what == "save":
    solver, place = args[2], args[3]
    cfg = config(solver)
    samples = lego.make_samples(cfg, case.encodings, case.labels)
    state, _ = lego.fit(cfg, samples)
    np.savez(f"{place}/state.npz", **to_arrays(state))
    np.savez(f"{place}/samples.npz", **samples._asdict())
    return {}
  cfg = config("sgd")
  samples = lego.make_samples(cfg, case.encodings, case.labels)
  del case  # a fit needs the samples only
  lego.fit(cfg, samples)
  peak, size = _memory_mb(peak=True), count * 512 * 4 / 2**20
  return {
    "solver": "sgd",
    "N": count,
    "bare_mb": bare,
    "peak_mb": peak,
    "above_mb": peak - bare,
    "encodings_float32_mb": size,
    "times_the_encodings": (peak - bare) / size,
    "devices": len(jax.devices()),
  }


if __name__ == "__main__":
  print(json.dumps(_child(*sys.argv[1:])))
