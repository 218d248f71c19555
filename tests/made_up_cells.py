"""Made-up cells of the reproduction, with results that are known."""

import csv
import json
import math
import re

import numpy as np
import pytest

from experiments.reproduce import (
  cells,
  paper,
  report,
)

COMMAND = "python -m experiments.reproduce all --scale cpu --dataset cifar10"
ENVIRONMENT = {"jax": "0.10.1", "processor": "A CPU", "cores": 2}
ENCODINGS = {"source": "encodings", "N": 50_000}
IMAGES = {"source": "images", "N": 2_000, "size": 64}


def put(folder, kind, result, seed=0, name=None, scale="cpu", **settings):
  (folder / "cells").mkdir(parents=True, exist_ok=True)
  words = [kind, *(str(settings[k]) for k in sorted(settings)), f"seed{seed}"]
  name = name or "-".join(words)
  settings = {"dataset": "cifar10", "scale": scale, "seed": seed} | settings
  cell = {
    "name": name,
    "kind": kind,
    "identity": cells.identify(kind, settings),
    "settings": settings,
    "result": result,
    "command": COMMAND,
    "seconds": 1.5,
    "finished": f"2026-01-01T00:00:{seed:02}+00:00",
    "environment": ENVIRONMENT,
  }
  path = folder / "cells" / (re.sub(r"[^\w.-]", "_", name) + ".json")
  path.write_text(json.dumps(cell))


def put_accuracy(folder, test, seed=0, **settings):
  balance = {"smallest": 10, "median": 400, "largest": 3000, "gini": 0.4}
  result = {"train": test + 3, "test": test, "fit_seconds": 4.0, "balance": balance}
  put(folder, "accuracy", result, seed, **settings)


def task(ra, fa, ta, strategies, forgotten=100):
  after = {
    name: {
      "retain": ra - loss,
      "unlearn": left,
      "test": ta - loss,
      "mia": 12.0,
      "tow": 1 - loss / 100,
      "seconds": seconds,
      "equal": equal,
      "digest": None,
      "refit_digest": None,
    }
    for name, (loss, left, seconds, equal) in strategies.items()
  }
  return {
    "forgotten": forgotten,
    "class": None,
    "before": {"retain": ra, "unlearn": ra, "test": ta},
    "refit": {"retain": ra, "unlearn": fa, "test": ta, "mia": 12.0},
    "after": after,
  }


def put_tasks(
  folder, ra, ta, seed, seconds, equal=True, left=0.0, tune_loss=0.1, **settings
):
  def ways(fa):
    found = {"retrain": (0.0, fa, seconds, equal)}
    if settings["method"] == "rnc":
      found["tune"] = (tune_loss, fa, seconds / 2, None)
      found["ngrad"] = (6.0, max(fa - 2, 0.5), seconds / 50, None)
    return found

  result = {
    "random100": task(ra, ta, ta, ways(ta)),
    "unclass": task(ra, 0.0, 0.9 * ta, ways(left), 5000),
  }
  put(folder, "tasks", result, seed, **settings)


def put_privacy(folder, auc, klom, strategy="retrain", wide=0.02, **settings):
  excess = 1.1 * klom / 0.33 - 1
  result = {
    "models": 64,
    "targets": 200,
    "ulira": {
      **{"auc": auc, "auc_low": auc - wide, "auc_high": auc + wide},
      **{"tpr": 0.011, "tpr_low": 0.006, "tpr_high": 0.018, "fpr": 0.01},
    },
    "klom": {"median": klom, "q95": 2 * klom, "mean": 1.1 * klom},
    "null": {"median": 0.30, "q95": 0.61, "mean": 0.33},
    "excess": {"mean": excess, "low": excess - 0.1, "high": excess + 0.1},
  }
  result["ulira_null"] = result["ulira"] | {"tpr": 0.013}
  put(folder, "privacy", result, strategy=strategy, **settings)


def world(folder, seeds=5):
  """Synthetic numbers for every kind of cell."""
  noise = np.random.default_rng(0)

  def jitter(value):
    return value + 0.05 * float(noise.normal())

  for seed in range(seeds):
    for solver, shift in (("ridge", 0.0), ("sgd", -0.8)):
      here = {"seed": seed, "solver": solver}
      put_accuracy(folder, jitter(86.6 + shift), method="linear", **here, **ENCODINGS)
      for s in paper.SEGMENTATIONS:
        level = jitter(87.0 + shift - s / 40)
        put_accuracy(folder, level, method="fixsisa", s=s, **here, **ENCODINGS)
        level = jitter(60.0 + shift - s / 10)
        put_accuracy(folder, level, method="fixsisa", s=s, **here, **IMAGES)
      points = {p for panel in paper.PANELS.values() for p in panel}
      points |= {(n, k) for n in (100, 200, 500, 1000) for k in (1, 2, 5, 10)}
      for n, k in sorted(points | {(20, 1), (50, 1)}):
        level = jitter(85 + shift + 1.5 * math.log(k) + 0.15 * math.log(n / 10))
        put_accuracy(folder, level, method="lego", n=n, k=k, **here, **ENCODINGS)
      for where in (ENCODINGS, IMAGES):
        ta = jitter((89.0 if where is ENCODINGS else 62.0) + shift)
        for n in (100, 1000):
          lego = {"method": "lego", "n": n, "k": 10, **here, **where}
          put_tasks(folder, ta + 4, ta, seconds=0.8 / n, **lego)
        fix = {"method": "fixsisa", "s": 10, **here, **where}
        put_tasks(folder, ta + 1, ta - 2, seconds=0.1, **fix)
    for s in paper.SEGMENTATIONS:
      sisa = {"method": "sisa", "s": s, "slices": 1, "epochs": 4, "seed": seed}
      put_accuracy(folder, jitter(66 - s / 3), **sisa, **IMAGES)
    ends = {"seed": seed, "epochs": 4, **IMAGES}
    put_tasks(folder, 99.0, jitter(75.0), seconds=80.0, method="rnc", **ends)
    sisa = {"method": "sisa", "s": 10, "slices": 1, **ends}
    put_tasks(folder, 70.0, jitter(66.0), seconds=75.0, **sisa)
    rows = [
      {"n": n, "k": 10, "solver": "ridge", "penalty": 1.0, "train_size": 500_000 / n}
      | {"test": jitter(88 + n / 1000), "single": jitter(85 - n / 1000)}
      for n in (100, 1000)
    ]
    put(folder, "explain", {"rows": rows}, seed, method="lego", **ENCODINGS)
  timed = []
  for s in paper.SEGMENTATIONS:
    for row, level in (
      ({"method": "sisa", "s": s}, 80 / s),
      ({"method": "fixsisa", "solver": "ridge", "s": s}, 0.6 / s),
      ({"method": "lego", "solver": "ridge", "n": 10 * s, "k": 10}, 1.2 / s),
      ({"method": "lego", "solver": "sgd", "n": 10 * s, "k": 10}, 4.0 / s),
    ):
      requests = [level * (1 + 0.02 * i) for i in range(5)]
      more = {"segmentation": s, "requests": requests}
      if row["method"] == "lego":
        more["anchor_requests"] = [5.0, 5.0]
      timed.append(row | more)
  put(folder, "time", {"rows": timed}, method="all", epochs=4, **IMAGES)
  for solver in ("ridge", "sgd"):
    lego = {"method": "lego", "solver": solver, "n": 100, "k": 10, **ENCODINGS}
    put_privacy(folder, 0.503, 0.31, **lego)
    put_privacy(folder, 0.74, 0.9, strategy="none", **lego)
  for strategy, auc in (("retrain", 0.495), ("tune", 0.63), ("ngrad", 0.58)):
    rnc = {"method": "rnc", "epochs": 4, **IMAGES}
    put_privacy(folder, auc, 0.3 if strategy == "retrain" else 0.8, strategy, **rnc)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
  folder = tmp_path_factory.mktemp("world")
  world(folder, seeds=3)
  report.show(folder, folder / "out")
  return folder


def rows_of(path):
  with path.open(newline="") as file:
    return list(csv.DictReader(file))
