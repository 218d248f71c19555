"""What do integers cost? Test accuracy of integer weights against float weights.

    git worktree add ../before ade950b              the last tree with float weights
    python -m experiments.portable_accuracy --before ../before \
        --encodings DIR --encodings-100 DIR [--seeds 5]

For CIFAR-10 and CIFAR-100, k = 10, n = 100 and 1000, `Ridge`, two comparisons:

    versions   this tree's `classify` against the argmax of `predict` of the tree
               before, which draws the noise of keys from another generator. So a single
               seed differs by noise; means over seeds come with their standard error.
    rounding   this tree's integer weights against float64 weights that numpy solves
               from the same sums, with the same codes, keys and routes: the effect of
               integers alone, and how many test samples get another class.

On 2 cores about 10 minutes; results in experiments/results/portable_accuracy.json.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import common
import legonet_jax as lego


def make_fit(
  train: common.RawSplit, n: int, seed: int
) -> tuple[lego.LegoConfig, lego.LegoState]:
  """Settings and state of one fit."""
  cfg = lego.LegoConfig(
    int(train.labels.max()) + 1, num_adapters=n, seed=seed, solver=lego.Ridge()
  )
  samples = lego.make_samples(cfg, np.asarray(train.encodings), train.labels)
  return cfg, lego.fit(cfg, samples)[0]


def solve_in_float64(cfg: lego.LegoConfig, state: lego.LegoState) -> NDArray[Any]:
  """W [n, C, d] float64 from the sums that the state keeps."""
  from legonet_jax.solvers import exact_sums

  dim, solver = state.model.keys.shape[1], cfg.solver
  found = np.zeros((cfg.num_adapters, cfg.num_classes, dim))
  for j, sums in enumerate(s.statistics for s in state.solutions):
    if sums is None:
      continue
    upper = np.triu(exact_sums.to_matrix(sums.gram, dim))
    matrix = upper + np.triu(upper, 1).T
    matrix += solver.penalty * np.trace(matrix) / dim * np.eye(dim)
    found[j] = np.linalg.solve(matrix, np.asarray(sums.cross, np.float64).T).T
  return found


def classify_in_float64(
  cfg: lego.LegoConfig,
  state: lego.LegoState,
  weights: NDArray[Any],
  encodings: NDArray[Any],
) -> NDArray[np.intp]:
  """Classes [B] by float64 weights, with the codes and routes of `classify`."""
  import jax

  from legonet_jax.core import features, prediction

  codes = features.encode_array(cfg, encodings)
  active = np.asarray(jax.jit(prediction.activate)(state.model, codes))
  x = codes.astype(np.float64)
  total = np.zeros((len(x), cfg.num_classes))
  for j in range(cfg.num_adapters):
    mine = (active == j).any(axis=1)
    total[mine] += x[mine] @ weights[j].T
  found: NDArray[np.intp] = total.argmax(axis=1)
  return found


def examine(folder: pathlib.Path, n: int, seed: int) -> dict[str, Any]:
  """Both comparisons' part of this tree, for one fit."""
  train, test = (common.load(folder, split) for split in ("train", "test"))
  cfg, state = make_fit(train, n, seed)
  if not np.asarray(state.model.live).all():
    raise AssertionError("an adapter has no members; its routes would differ")
  e = np.asarray(test.encodings)
  ours = np.asarray(lego.classify(state.model, e))
  floats = classify_in_float64(cfg, state, solve_in_float64(cfg, state), e)
  return {
    "seed": seed,
    "integers": 100 * float((ours == test.labels).mean()),
    "float64_same_routes": 100 * float((floats == test.labels).mean()),
    "classes_that_differ": int((ours != floats).sum()),
    "tested": len(ours),
  }


def work(folder: pathlib.Path, n: int, seeds: int) -> None:
  """In the tree before: prints the accuracy of each seed."""
  train, test = (common.load(folder, split) for split in ("train", "test"))
  found = []
  for seed in range(seeds):
    _, state = make_fit(train, n, seed)
    p = np.asarray(lego.predict(state.model, np.asarray(test.encodings)))
    found.append(100 * float((p.argmax(axis=1) == test.labels).mean()))
  print(json.dumps([lego.__file__, found]))


def ask_before(
  tree: pathlib.Path, folder: pathlib.Path, n: int, seeds: int
) -> list[float]:
  """The accuracies of the tree before, from a process of its own."""
  done = subprocess.run(
    [sys.executable, __file__, "--work", str(folder), "--adapters", str(n),
     "--seeds", str(seeds)],
    env={**os.environ, "PYTHONPATH": str(tree)},
    cwd=tree,
    stdout=subprocess.PIPE,
    text=True,
    check=True,
  )  # fmt: skip
  file, found = json.loads(done.stdout.splitlines()[-1])
  if not file.startswith(str(tree)):
    raise SystemExit(f"{file} was imported, not {tree}; install this package elsewhere")
  return [float(one) for one in found]


def mean_and_error(values: list[float]) -> dict[str, float]:
  """The mean and its standard error."""
  error = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
  return {"mean": round(float(np.mean(values)), 4), "error": round(error, 4)}


def compare(
  tree: pathlib.Path, folder: pathlib.Path, n: int, seeds: int
) -> dict[str, Any]:
  """Both comparisons for one folder and one n."""
  rows = [examine(folder, n, seed) for seed in range(seeds)]
  for row, before in zip(rows, ask_before(tree, folder, n, seeds), strict=True):
    row["floats_before"] = before
  ours = [row["integers"] for row in rows]
  versions = [row["integers"] - row["floats_before"] for row in rows]
  same = [row["integers"] - row["float64_same_routes"] for row in rows]
  return {
    "data": folder.name,
    "n": n,
    "integers": mean_and_error(ours),
    "floats_before": mean_and_error([row["floats_before"] for row in rows]),
    "versions": mean_and_error(versions),
    "rounding": mean_and_error(same),
    "classes_that_differ": sum(row["classes_that_differ"] for row in rows),
    "tested": sum(row["tested"] for row in rows),
    "seeds": rows,
  }


def main() -> None:
  """Compares all cases and prints a table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add("--before", type=pathlib.Path, metavar="TREE", help="with float weights")
  add("--encodings", type=pathlib.Path, metavar="DIR", help="of CIFAR-10")
  add("--encodings-100", type=pathlib.Path, metavar="DIR", help="of CIFAR-100")
  add("--adapters", type=int, nargs="+", default=[100, 1000])
  add("--seeds", type=int, default=5)
  add("--out", type=pathlib.Path, default=common.RESULTS, metavar="DIR")
  add("--work", type=pathlib.Path, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.work is not None:
    work(args.work, args.adapters[0], args.seeds)
    return
  folders = [f.resolve() for f in (args.encodings, args.encodings_100) if f is not None]
  if args.before is None or not folders:
    parser.error("give --before TREE and --encodings DIR or --encodings-100 DIR")
  rows = []
  print("data, n: integers, floats before, versions, rounding (percent)")
  for folder in folders:
    for n in args.adapters:
      r = compare(args.before.resolve(), folder, n, args.seeds)
      rows.append(r)
      each = (r[name] for name in ("integers", "floats_before", "versions", "rounding"))
      cells = "  ".join(f"{c['mean']:+.3f} ± {c['error']:.3f}" for c in each)
      differ = f"{r['classes_that_differ']} of {r['tested']} classes differ"
      print(f"{folder.name}, {n}: {cells}; {differ}", flush=True)
  print(common.save(args.out, "portable_accuracy", {"top_k": 10, "rows": rows}))


if __name__ == "__main__":
  main()
