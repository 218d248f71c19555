"""Streams of requests, and requests as N grows."""

import pathlib
import time
from typing import Any

import numpy as np

from benchmarks.machine import seconds, summary
from benchmarks.requests import Case, fitted, forget, synthetic
import legonet_jax as lego

BATCHES = (1, 10, 100)
_MOST_SGD = 200_000  # it grows with N; two points show how


def streams(case: Case, requests: int) -> list[dict[str, Any]]:
  """Forgets the same samples one at a time, by ten and by a hundred."""
  results = []
  for solver in (lego.Ridge(), lego.Sgd()):
    _, samples, start, _ = fitted(case, solver, twice=False)
    wanted = np.random.default_rng(1).choice(start.ids, requests, replace=False)
    lego.unlearn(start, samples, wanted[:1])  # warm
    digests = set()
    for batch in BATCHES:
      state, adapters, began = start, 0, time.perf_counter()
      for first in range(0, requests, batch):
        part = wanted[first : first + batch]
        state, info = lego.unlearn(state, samples, part)
        adapters += info.adapters_retrained
      spent = time.perf_counter() - began
      digests.add(lego.digest(state))
      results.append(
        {
          "solver": type(solver).__name__.lower(),
          "n": case.adapters,
          "N": len(case.labels),
          "requests": requests,
          "batch": batch,
          "requests_per_second": requests / spent,
          "adapters_per_request": adapters / requests,
          "anchors": int(np.isin(wanted, start.anchors).sum()),
        }
      )
    if len(digests) != 1:
      raise AssertionError(f"batching changed the state: {digests}")
  return results


def growth(sizes: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
  """One request at n = 1000, C = 10, for each N; the samples are no anchors."""
  results = []
  for count in sizes:
    solvers = (lego.Ridge(), lego.Sgd()) if count <= _MOST_SGD else (lego.Ridge(),)
    for solver in solvers:
      # The encodings are gone before the requests: gigabytes that nobody touches make
      # a machine with little memory page out what the requests need.
      cfg, samples, state, fit = fitted(synthetic(count, 10, 1000), solver, twice=False)
      others = np.setdiff1d(state.ids, state.anchors)
      wanted = np.random.default_rng(2).choice(others, 3 * rounds + 2, replace=False)
      for i in wanted[:2]:
        forget(cfg, state, samples, i)  # warm
      times = [seconds(forget, cfg, state, samples, i) for i in wanted[2:]]
      results.append(
        {
          "solver": type(solver).__name__.lower(),
          "N": count,
          "fit_seconds": fit,
          **summary(times),
          "drop_row_ms": 1e3 * seconds(lego.drop, samples, wanted[:1]),
        }
      )
      del cfg, samples, state
  return results


def plot(results: list[dict[str, Any]], path: pathlib.Path) -> None:
  """Time of one request against N, for both solvers."""
  import matplotlib as mpl

  mpl.use("Agg")
  from matplotlib import pyplot as plt

  figure, axes = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
  for solver, marker, line in (("sgd", "s", "--"), ("ridge", "o", "-")):
    mine = [r for r in results if r["solver"] == solver]
    n = [r["N"] for r in mine]
    middle = np.array([r["median_ms"] for r in mine])
    low = middle - [r["min_ms"] for r in mine]
    high = np.array([r["max_ms"] for r in mine]) - middle
    axes.errorbar(
      n, middle, yerr=(low, high), marker=marker, ls=line, color="black", label=solver,
      capsize=3, mfc="white" if solver == "sgd" else "black",
    )  # fmt: skip
  axes.set(
    xscale="log", yscale="log", xlabel="N, samples in the model", ylim=(1, None),
    ylabel="ms for one request", title="Forgetting one sample (n = 1000, k = 10)",
  )  # fmt: skip
  axes.grid(alpha=0.3)
  axes.legend(frameon=False)
  figure.savefig(path, dpi=150)
