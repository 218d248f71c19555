"""This tree against an earlier one, in turns: a request, a fit, predictions.

    git worktree add ../before REVISION
    python -m benchmarks.before_after --before ../before --encodings DIR
        [--encodings-100 DIR] [--adapters 100 1000] [--solvers ridge sgd]
        [--rounds 30] [--out FILE]

Each tree has a process of its own, which fits and then waits. They measure the
same requests in turns, one at a time, so that whatever else the machine does hits both
alike; the ratio is the median of the pairs' ratios. `load` is the system's load average
of the last minute, in which this counts as 1 to 2. DIR has
{train,test}_{encodings,labels}.npy.
"""

import argparse
from collections.abc import Callable, Iterator
import contextlib
import inspect
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
_TREES = ("before", "after")


def work(folder: pathlib.Path, n: int, solver: str) -> None:
  """The process of one tree: answers each line of its input with seconds."""
  import jax

  import legonet_jax as lego

  solvers = {"ridge": lego.Ridge(), "sgd": lego.Sgd()}
  e, y, test = (
    np.load(folder / f"{name}.npy")
    for name in ("train_encodings", "train_labels", "test_encodings")
  )
  cfg = lego.LegoConfig(int(y.max()) + 1, num_adapters=n, solver=solvers[solver])
  samples = lego.make_samples(cfg, e, y.astype(np.int64))
  state, _ = lego.fit(cfg, samples)

  # Up to version 0.3 every call took the settings of the fit.
  lead = (cfg,) if "cfg" in inspect.signature(lego.unlearn).parameters else ()

  def request(i: str) -> None:
    jax.block_until_ready(lego.unlearn(*lead, state, samples, [int(i)])[0].ids)

  def fit() -> None:
    jax.block_until_ready(lego.fit(cfg, samples)[0].ids)

  def predict() -> None:
    jax.block_until_ready(lego.predict(*lead, state.model, test))

  calls: dict[str, Callable[..., None]] = {
    "request": request, "fit": fit, "predict": predict,
  }  # fmt: skip
  print(json.dumps([lego.__file__, state.anchors.tolist()]), flush=True)
  for line in sys.stdin:
    name, *arguments = line.split()
    start = time.perf_counter()
    calls[name](*arguments)
    print(time.perf_counter() - start, flush=True)


@contextlib.contextmanager
def started(
  tree: pathlib.Path, folder: pathlib.Path, n: int, solver: str
) -> Iterator[Any]:
  """A process of `tree`: a function that sends it a line and returns its seconds."""
  command = [sys.executable, __file__, "--work", str(folder), "--adapters", str(n)]
  command += ["--solvers", solver]
  process = subprocess.Popen(
    command,
    env={**os.environ, "PYTHONPATH": str(tree)},
    cwd=tree,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )

  def ask(line: str = "") -> Any:
    if line:
      process.stdin.write(line + "\n")
      process.stdin.flush()
    return json.loads(process.stdout.readline())

  try:
    yield ask
  finally:
    process.stdin.close()
    process.wait()


def measure(
  trees: dict[str, pathlib.Path],
  folder: pathlib.Path,
  n: int,
  solver: str,
  rounds: int,
) -> dict[str, Any]:
  """All measurements of one folder of encodings and one n."""
  with contextlib.ExitStack() as stack:
    ask, anchors = {}, []
    for name, tree in trees.items():
      ask[name] = stack.enter_context(started(tree, folder, n, solver))
      file, mine = ask[name]()
      if not file.startswith(str(tree)):
        raise SystemExit(f"{name} imports {file}, not {tree}; install it elsewhere")
      anchors += mine
    count = len(np.load(folder / "train_labels.npy", mmap_mode="r"))
    plain = np.setdiff1d(np.arange(count), anchors)
    wanted = np.random.default_rng(0).choice(plain, rounds + 2, replace=False)
    few = max(3, rounds // 5)
    lines = {
      "request": [f"request {i}" for i in wanted],
      "request for an anchor": [
        f"request {i}" for i in np.intersect1d(*np.split(np.array(anchors), 2))[:few]
      ],
      "fit": ["fit"] * few,
      "predict": ["predict"] * few,
    }
    found: dict[str, Any] = {"data": folder.name, "n": n, "solver": solver}
    for what, each in lines.items():
      times: dict[str, list[float]] = {name: [] for name in trees}
      for turn, line in enumerate(each):
        for name in _TREES if turn % 2 else _TREES[::-1]:
          times[name].append(ask[name](line))
      found[what] = _summarise(times, 2 if what == "request" else 1)
      found[what]["load"] = round(os.getloadavg()[0], 2)
      print(
        f"{folder.name}, {solver}, n = {n}, {what}:",
        json.dumps(found[what]),
        flush=True,
      )
  return found


def _summarise(times: dict[str, list[float]], warm: int) -> dict[str, Any]:
  before, after = (times[name][warm:] for name in _TREES)
  pairs = zip(after, before, strict=True)
  return {
    "before_ms": round(1e3 * statistics.median(before), 2),
    "after_ms": round(1e3 * statistics.median(after), 2),
    "before_min_ms": round(1e3 * min(before), 2),
    "after_min_ms": round(1e3 * min(after), 2),
    "after_over_before": round(statistics.median(a / b for a, b in pairs), 3),
    "rounds": len(after),
  }


def main() -> None:
  """Measures all cases and writes the results."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add("--before", type=pathlib.Path, metavar="TREE", help="the earlier tree")
  add("--encodings", type=pathlib.Path, metavar="DIR")
  add("--encodings-100", type=pathlib.Path, metavar="DIR")
  add("--adapters", type=int, nargs="+", default=[100, 1000])
  add("--solvers", nargs="+", choices=["ridge", "sgd"], default=["ridge"])
  add("--rounds", type=int, default=30)
  add("--out", type=pathlib.Path, metavar="FILE",
      default=TREE / "benchmarks/results/before_after.json")  # fmt: skip
  add("--work", type=pathlib.Path, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.work is not None:
    work(args.work, args.adapters[0], args.solvers[0])
    return
  if args.before is None or args.encodings is None:
    parser.error("give --before TREE and --encodings DIR")
  trees = {"before": args.before.resolve(), "after": TREE}
  folders = [f.resolve() for f in (args.encodings, args.encodings_100) if f is not None]
  rows = [
    measure(trees, folder, n, solver, args.rounds)
    for folder in folders
    for n in args.adapters
    for solver in args.solvers
  ]
  commits = {
    name: subprocess.run(
      ["git", "-C", str(tree), "describe", "--always", "--dirty"],
      capture_output=True,
      text=True,
    ).stdout.strip()
    for name, tree in trees.items()
  }
  report = {"commits": commits, "cores": os.cpu_count(), "rows": rows}
  args.out.write_text(json.dumps(report, indent=1) + "\n")
  print(args.out)


if __name__ == "__main__":
  main()
