"""Sequential requests on real encodings end, bit for bit, in a refit.

    python -m experiments.exactness --encodings DIR

For both solvers, n = 100 and n = 1000 (k = 10): fits on all training encodings, forgets
100 samples one request at a time, at least one of them an anchor, refits on what
remains, and compares digests. Beside it stands one linear layer on all encodings,
trained in the same way (a LegoNet with n = k = 1). On 2 cores and CIFAR-10 (N = 50,000)
about 5 minutes; results in experiments/results/exactness.json. Exit code 1 if a digest
differs.
"""

import argparse
import dataclasses
import sys
from typing import Any

import numpy as np

from experiments import common
import legonet_jax as lego
from legonet_jax.cli import console

SOLVERS = {"ridge": lego.Ridge(), "sgd": lego.Sgd()}


def run_one(
  cfg: lego.LegoConfig,
  samples: lego.Samples,
  test: common.RawSplit,
  num_requests: int,
) -> dict[str, Any]:
  """Fit, forget one by one, refit, compare."""
  state, fit_info = lego.fit(cfg, samples)
  result: dict[str, Any] = {
    "n": cfg.num_adapters,
    "k": cfg.top_k,
    "fit_seconds": fit_info.seconds,
    "balance": fit_info.balance._asdict(),
    "test_accuracy": common.accuracy(state, test),
  }
  if not num_requests:
    return result
  rng = np.random.default_rng(cfg.seed)
  others = rng.choice(state.ids[cfg.num_adapters :], num_requests - 1, replace=False)
  requests = rng.permutation([*others, rng.choice(state.anchors)])
  infos = []
  with console.bar(f"n = {cfg.num_adapters}", quiet=False) as progress:
    for done, i in enumerate(requests, 1):
      state, info = lego.unlearn(state, samples, [i])
      infos.append(info)
      progress(done, num_requests)
  refit, refit_info = lego.fit(cfg, lego.select(samples, state.ids))
  digest, refit_digest = lego.digest(state), lego.digest(refit)
  seconds = [info.seconds for info in infos]
  return {
    **result,
    "requests": num_requests,
    "anchors_replaced": sum(info.anchors_replaced for info in infos),
    "adapters_retrained": sum(info.adapters_retrained for info in infos),
    "median_request_seconds": float(np.median(seconds)),
    "mean_request_seconds": float(np.mean(seconds)),
    "refit_seconds": refit_info.seconds,
    "test_accuracy_after": common.accuracy(state, test),
    "digest": digest,
    "refit_digest": refit_digest,
    "equal": digest == refit_digest,
  }


def main() -> int:
  """Runs all sizes and prints a table."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  common.add_encodings(parser)
  parser.add_argument("--adapters", type=int, nargs="+", default=[100, 1000])
  parser.add_argument("--requests", type=int, default=100)
  parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=[*SOLVERS])
  parser.add_argument("--seed", type=int, default=0)
  args = parser.parse_args()
  train, test = (common.load(args.encodings, s) for s in ("train", "test"))
  classes = int(train.labels.max()) + 1
  results, references = [], []
  for name in args.solvers:
    base = lego.LegoConfig(classes, 1, top_k=1, seed=args.seed, solver=SOLVERS[name])
    samples = lego.make_samples(base, train.encodings, train.labels)
    reference = {"solver": name, **run_one(base, samples, test, 0)}
    references.append(reference)
    print(
      f"{name}, N = {len(samples.ids):,};"
      f" one linear layer: {reference['test_accuracy']:.2f} %"
    )
    for n in args.adapters:
      cfg = dataclasses.replace(base, num_adapters=n, top_k=10)
      r = {"solver": name, **run_one(cfg, samples, test, args.requests)}
      results.append(r)
      print(
        f"n = {n:5}: test {r['test_accuracy']:.2f} %, after {r['requests']} requests"
        f" ({r['anchors_replaced']} anchors) {r['test_accuracy_after']:.2f} %;"
        f" median {r['median_request_seconds']:.3f} s a request,"
        f" refit {r['refit_seconds']:.1f} s;"
        f" {r['digest'][:16]} {'==' if r['equal'] else '!='} {r['refit_digest'][:16]}"
        " (refit)"
      )
  report = {"seed": args.seed, "one_linear_layer": references, "runs": results}
  print(common.save(args.out, "exactness", report))
  return 0 if all(r["equal"] for r in results) else 1


if __name__ == "__main__":
  sys.exit(main())
