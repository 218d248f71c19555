"""The pure program: compile times, updates by mask and by rows, growth, shadow models.

    git worktree add ../before REVISION
    python -m benchmarks.functional --encodings DIR [--encodings-100 DIR]
        [--before ../before] [--only compile requests growth shadow] [--out FILE]

Every number is of one process on this machine. `shadow` compares 64 models in one call
with the loop of fits of an earlier tree, each in a process of its own, compilation
included. DIR has train_{encodings,labels}.npy.
"""

import argparse
from collections.abc import Callable
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

TREE = pathlib.Path(__file__).resolve().parent.parent
_SOLVERS = ("ridge", "sgd")
_PARTS = ("compile", "requests", "growth", "shadow")


def load(folder: pathlib.Path) -> tuple[Any, Any, int]:
  """Encodings, labels and C of a folder."""
  e, y = (np.load(folder / f"train_{name}.npy") for name in ("encodings", "labels"))
  return e, y.astype(np.int64), int(y.max()) + 1


def make(solver: str, n: int, e: Any, y: Any, classes: int) -> tuple[Any, Any, Any]:
  """Settings, the table on the device and the state of the empty set."""
  import legonet_jax as lego
  from legonet_jax import functional

  solvers = {"ridge": lego.Ridge(), "sgd": lego.Sgd()}
  cfg = lego.LegoConfig(classes, num_adapters=n, solver=solvers[solver])
  data = functional.make_data(lego.make_samples(cfg, e, y))
  return cfg, data, functional.init(cfg, data)


def seconds(call: Callable[[], Any]) -> float:
  """The time of one call, results computed."""
  import jax

  start = time.perf_counter()
  jax.block_until_ready(call())
  return time.perf_counter() - start


def measure_compile(e: Any, y: Any, classes: int, n: int, solver: str) -> Any:
  """Seconds to compile each executable of `update` and `forget`, without a cache."""
  import jax
  import jax.numpy as jnp

  from legonet_jax import functional
  from legonet_jax.core import few_rows

  jax.config.update("jax_enable_compilation_cache", False)
  jax.clear_caches()
  cfg, data, empty = make(solver, n, e, y, classes)
  rows, come = jnp.zeros(1, jnp.int32), jnp.bool_(False)
  near = jnp.zeros((1, cfg.top_k), jnp.int32)
  found = {
    "update": seconds(
      lambda: functional.update.lower(data, empty, empty.retained).compile() and None
    ),
    "forget: look": seconds(
      lambda: few_rows.look.lower(data, empty, rows, come).compile() and None
    ),
    "forget: exchange": seconds(
      lambda: few_rows._few.lower(data, empty, rows, near, come).compile() and None
    ),
  }
  return {name: round(value, 2) for name, value in found.items()}


def measure_requests(
  e: Any, y: Any, classes: int, n: int, solver: str, rounds: int
) -> Any:
  """A fit, a sample by mask and by rows, in place or not, and an anchor; median ms."""
  import jax
  import jax.numpy as jnp

  from legonet_jax import functional

  _, data, empty = make(solver, n, e, y, classes)
  everything = jnp.ones(len(y), bool)
  jax.block_until_ready(functional.update(data, empty, everything))
  fit = seconds(lambda: functional.update(data, empty, everything))
  state, _ = functional.update(data, empty, everything)
  rng = np.random.default_rng(0)
  plain = rng.permutation(np.setdiff1d(np.arange(len(y)), state.anchors))[:rounds]
  times: dict[str, list[float]] = {}

  def note(what: str, call: Callable[[], Any]) -> None:
    times.setdefault(what, []).append(seconds(call))

  for row in plain.tolist():
    rows = jnp.asarray([row], jnp.int32)
    mask = everything.at[row].set(False)
    note("by mask", lambda mask=mask: functional.update(data, state, mask))
    note("by rows", lambda rows=rows: functional.forget(data, state, rows))
  in_place = jax.jit(functional.update, donate_argnums=1)
  mine, left = jax.tree.map(jnp.copy, state), np.ones(len(y), bool)
  for row in plain.tolist():
    left[row] = False
    mask, start = jnp.asarray(left), time.perf_counter()
    mine, _ = jax.block_until_ready(in_place(data, mine, mask))
    times.setdefault("by mask, in place", []).append(time.perf_counter() - start)
  for row in np.asarray(state.anchors)[: max(3, rounds // 5)].tolist():
    mask = everything.at[row].set(False)
    note("an anchor, by mask", lambda m=mask: functional.update(data, state, m))
  mine = jax.tree.map(jnp.copy, state)
  for row in plain.tolist():
    rows, start = jnp.asarray([row], jnp.int32), time.perf_counter()
    mine, _ = functional.forget(data, mine, rows, donate=True)
    jax.block_until_ready(mine)
    times.setdefault("by rows, in place", []).append(time.perf_counter() - start)
  found = {k: round(1e3 * statistics.median(v[1:]), 2) for k, v in times.items()}
  return {"fit, s": round(fit, 2), **found}


def measure_growth(rounds: int) -> Any:
  """A request by rows in place as N grows, `Ridge`, d = 64, n = 1000; median ms."""
  found: dict[str, Any] = {}
  for count in (50_000, 1_000_000):
    rng = np.random.default_rng(0)
    e = rng.normal(size=(count, 64)).astype(np.float32)
    times = measure_requests(e, rng.integers(0, 10, count), 10, 1000, "ridge", rounds)
    found[str(count)] = times["by rows, in place"]
  return found


def fit_shadows(folder: pathlib.Path, solver: str, models: int) -> None:
  """64 fits of this tree in a fresh process: prints seconds and a sum of weights."""
  import inspect

  import legonet_jax as lego

  e, y, classes = load(folder)
  e, y = e[:2000], y[:2000]
  kept = np.random.default_rng(0).random((models, 2000)) < 0.9
  weights: Any
  if "cfg" in inspect.signature(lego.unlearn).parameters:  # up to version 0.3
    solvers = {"ridge": lego.Ridge(keep=False), "sgd": lego.Sgd()}
    start, weights = time.perf_counter(), []
    for seed in range(models):
      cfg = lego.LegoConfig(
        classes, num_adapters=100, solver=solvers[solver], seed=seed
      )
      rows = np.flatnonzero(kept[seed])
      samples = lego.make_samples(cfg, e[rows], y[rows], rows)
      weights.append(np.asarray(lego.fit(cfg, samples)[0].model.weights))
    took, weights = time.perf_counter() - start, np.stack(weights)
  else:
    import jax.numpy as jnp

    from legonet_jax import functional

    start = time.perf_counter()
    cfg, data, _ = make(solver, 100, e, y, classes)
    states = functional.many(cfg, data, jnp.arange(models), jnp.asarray(kept))
    states = functional.finish(data, states)
    weights = np.asarray(states.weights)
    took = time.perf_counter() - start
  total = int(weights.view(np.uint32).astype(np.uint64).sum())
  print(json.dumps([lego.__file__, round(took, 2), total]))


def measure_shadow(
  folder: pathlib.Path, before: pathlib.Path | None, solver: str
) -> Any:
  """Seconds for 64 models, by tree, in turns, and whether the weights are equal."""
  trees = {"after": TREE} | ({} if before is None else {"before": before.resolve()})
  found: dict[str, Any] = {name: [] for name in trees}
  sums = set()
  for _ in range(2):
    for name, tree in trees.items():
      done = subprocess.run(
        [sys.executable, __file__, "--shadows", solver, "--encodings", str(folder)],
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd=tree, capture_output=True, text=True, check=True,
      )  # fmt: skip
      file, took, total = json.loads(done.stdout.splitlines()[-1])
      if not file.startswith(str(tree)):
        raise SystemExit(f"{name} imports {file}, not {tree}; install it elsewhere")
      found[name].append(took)
      sums.add(total)
  return {**found, "equal": len(sums) == 1}


def main() -> None:
  """Measures what is asked for and writes the results."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add("--encodings", type=pathlib.Path, metavar="DIR", required=True)
  add("--encodings-100", type=pathlib.Path, metavar="DIR")
  add("--before", type=pathlib.Path, metavar="TREE")
  add("--only", nargs="+", choices=_PARTS, default=_PARTS)
  add("--adapters", type=int, nargs="+", default=[100, 1000])
  add("--rounds", type=int, default=15)
  add("--out", type=pathlib.Path, metavar="FILE",
      default=TREE / "benchmarks/results/functional.json")  # fmt: skip
  add("--shadows", choices=_SOLVERS, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.shadows:
    fit_shadows(args.encodings, args.shadows, 64)
    return
  report: dict[str, Any] = {"cores": os.cpu_count()}
  if args.out.exists():
    report = json.loads(args.out.read_text())

  def note(key: str, value: Any) -> None:
    report[key] = value
    print(key, json.dumps(value), flush=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")

  if "shadow" in args.only:
    for solver in _SOLVERS:
      note(f"shadow {solver}", measure_shadow(args.encodings, args.before, solver))
  if "growth" in args.only:
    note("growth", measure_growth(args.rounds))
  for folder in filter(None, (args.encodings, args.encodings_100)):
    e, y, classes = load(folder)
    for solver in _SOLVERS:
      for n in args.adapters:
        where = f"{solver} C={classes} n={n}"
        call = functools.partial(measure_requests, rounds=args.rounds)
        if "requests" in args.only:
          note(f"requests {where}", call(e, y, classes, n, solver))
        if "compile" in args.only and n == max(args.adapters):
          note(f"compile {where}", measure_compile(e, y, classes, n, solver))


if __name__ == "__main__":
  main()
