"""The most work that one request can make: samples chosen to hurt, and the limit.

    python -m benchmarks.worst --encodings DIR        real encodings, N = 50,000

Who can see the model, or just knows the settings, can aim: at anchors, whose keys move
and change many adapters, or at samples whose adapters are the largest. From one and the
same state, in one process and in turns, this measures a request for

    plain      a random sample that is no anchor
    hub        the sample whose k adapters have the most members together
    anchor     a random anchor, and the anchor of the largest adapter
    anchors    ten anchors in one request
    deferred   an anchor with `defer`, which is what `--defer-over` leaves of it
    refit      a fresh fit on what remains

DIR has train_encodings.npy [N, d] and train_labels.npy [N].
"""

import argparse
import json
import pathlib
import time
from typing import Any

import numpy as np

from experiments import common
import legonet_jax as lego


def choose(state: lego.LegoState, rng: np.random.Generator) -> dict[str, list[Any]]:
  """The ids of each kind of request."""
  anchors = state.anchors
  plain = np.setdiff1d(state.ids, anchors)
  sizes = state.sizes[state.routes].sum(axis=1)
  free = ~np.isin(state.ids, anchors)
  hub = state.ids[free][np.argmax(sizes[free])]
  largest = anchors[np.argmax(state.sizes)]
  return {
    "plain": [[i] for i in rng.choice(plain, 5, replace=False)],
    "hub": [[hub]] * 3,
    "anchor": [*([i] for i in rng.choice(anchors, 4, replace=False)), [largest]],
    "anchors": [rng.choice(anchors, 10, replace=False) for _ in range(2)],
    "deferred": [*([i] for i in rng.choice(anchors, 2, replace=False)), [largest]],
  }


def measure(cfg: lego.LegoConfig, samples: lego.Samples, seed: int) -> dict[str, Any]:
  """Seconds and adapters of each kind of request, and of a refit."""
  state, _ = lego.fit(cfg, samples)
  requests = choose(state, np.random.default_rng(seed))
  lego.unlearn(state, samples, requests["plain"][0])  # warms up
  found: dict[str, Any] = {}
  for kind, batches in requests.items():
    seconds, adapters = [], []
    for ids in batches:
      start = time.perf_counter()
      _, info = lego.unlearn(state, samples, ids, defer=kind == "deferred")
      seconds.append(time.perf_counter() - start)
      adapters.append(info.adapters_retrained + info.adapters_masked)
    found[kind] = {
      "median_seconds": float(np.median(seconds)),
      "worst_seconds": float(max(seconds)),
      "most_adapters": int(max(adapters)),
    }
  start = time.perf_counter()
  lego.fit(cfg, samples)
  found["refit"] = {"median_seconds": time.perf_counter() - start}
  return found


def main() -> None:
  """Runs the benchmark."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--encodings", type=pathlib.Path, metavar="DIR", required=True)
  parser.add_argument("--adapters", type=int, nargs="+", default=[100, 1000])
  parser.add_argument("--solvers", nargs="+", default=["ridge", "sgd"])
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--out", type=pathlib.Path, default=common.RESULTS)
  args = parser.parse_args()
  split = common.load(args.encodings, "train")
  result: dict[str, Any] = {"samples": len(split.labels)}
  for name in args.solvers:
    for n in args.adapters:
      solver = lego.Ridge() if name == "ridge" else lego.Sgd()
      cfg = lego.LegoConfig(num_classes=10, num_adapters=n, solver=solver)
      table = (np.asarray(split.encodings), split.labels, np.arange(len(split.labels)))
      found = measure(cfg, lego.make_samples(cfg, *table), args.seed)
      result[f"{name}, n = {n}"] = found
      print(name, n, json.dumps(found, indent=1), flush=True)
  print(common.save(args.out, "worst", result))


if __name__ == "__main__":
  main()
