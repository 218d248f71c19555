"""How RNC, SISA's shards, Tune and NGrad train, chosen on held-out training images.

    python -m experiments.reproduce choose --scale cpu --images DIR --weights FILE

Trains on N images and measures on 1,000 other training images; test images are not
touched. `forget`: for Tune and NGrad a class and random samples are forgotten by the
model that the scale trains, and the rate with the largest mean ToW against a
re-trained model wins. At `cpu`, on one core, 3 to 15 minutes for each of the three.
"""

import dataclasses
from typing import Any

import numpy as np

from experiments.reproduce.cells import CellSettings, Result
from experiments.reproduce.contenders import build_rnc
from experiments.reproduce.datasets import Bench, Data
from experiments.reproduce.methods import METHODS, configure_network
from experiments.reproduce.tasks import answer_sets
from legonet_jax import data as images, errors, measures
from legonet_jax.baselines import SisaConfig, load_table, sisa
from legonet_jax.core.ids import Ids, hash_order

# What is tried. Training: BatchNorm's statistics, samples of a batch, learning rate.
CANDIDATES: dict[str, Any] = {
  "rnc": [
    *(["batch", 64, rate] for rate in (0.005, 0.01)),
    *(["running", 32, rate] for rate in (0.00025, 0.0005, 0.001)),
    ["running", 16, 0.0005],
  ],
  "shard": [
    *(["batch", 64, rate] for rate in (0.01, 0.02)),
    ["batch", 16, 0.005],
    *(["running", 16, rate] for rate in (0.0005, 0.001, 0.002)),
    ["running", 32, 0.001],
  ],
  "forget": {"tune": [5e-4, 1e-3, 2e-3], "ngrad": [3e-6, 1e-5, 2e-5]},
}


def run_choose(bench: Bench, settings: CellSettings) -> Result:
  """All candidates of one step: `rnc`, `shard` or `forget`."""
  pool = bench.images.ids[bench.images.split == images.TRAIN]
  pool, size = pool[hash_order(settings["seed"], pool)], settings["N"]
  seen, unseen = (
    load_table(bench.images, np.searchsorted(bench.images.ids, np.sort(ids)))
    for ids in (pool[:size], pool[size : size + 1000])
  )
  data = Data(seen.ids, seen.images, seen.labels, unseen.images, unseen.labels)
  run = _try_forgetting if settings["step"] == "forget" else _try_training
  return {"rows": run(bench, data, settings)}


def _try_training(bench: Bench, data: Data, settings: CellSettings) -> list[Result]:
  """Accuracy on held-out images after training with each candidate."""
  ids, rows = data.ids, []
  if settings["step"] == "shard":
    ids = ids[sisa.shard_of(SisaConfig(10, seed=settings["seed"]), ids) == 0]
  for norm, batch, rate in settings["candidates"]:
    own: dict[str, Any] = {"norm": norm, "batch_size": batch, "learning_rate": rate}
    base = configure_network(bench, settings, settings["step"])
    contender = build_rnc(bench, data, {"retrain": dataclasses.replace(base, **own)})
    answers = contender.predict(contender.fit(ids), data.test)
    row = {**own, "epochs": base.epochs, "samples": len(ids)}
    rows.append({**row, "held_out": measures.accuracy(answers, data.test_labels)})
  return rows


def _try_forgetting(bench: Bench, data: Data, settings: CellSettings) -> list[Result]:
  """Every rate of Tune and NGrad on both tasks, against a re-trained model."""
  recipe, rows = METHODS["rnc"].recipe(bench, settings), []
  contender, seed = build_rnc(bench, data, recipe), settings["seed"]
  model = contender.fit(data.ids)

  def measure(model: Any, retain: Ids, gone: Ids) -> measures.Accuracies:
    pairs = answer_sets(contender, model, retain[:500], gone)
    return measures.Accuracies(*(measures.accuracy(*pair) for pair in pairs))

  random = np.sort(data.ids[hash_order(seed + 1, data.ids)][: settings["forget"]])
  of_class = data.ids[data.labels == seed % bench.dataset.classes]
  for task, gone in {"random100": random, "unclass": of_class}.items():
    retain = np.setdiff1d(data.ids, gone)
    wanted = measure(contender.fit(retain), retain, gone)
    for way, rates in settings["candidates"].items():
      for rate in rates:
        changed = {way: dataclasses.replace(recipe[way], learning_rate=rate)}
        forget = build_rnc(bench, data, {**recipe, **changed}).forget[way]
        row: dict[str, Any] = {"task": task, "way": way, "learning_rate": rate}
        try:
          found = measure(forget(model, gone, retain), retain, gone)
          row |= {**found._asdict(), "tow": measures.tow(found, wanted)}
        except errors.SampleError:  # ascent has no bound: probabilities are NaN
          row |= {"diverged": True, "tow": 0.0}
        rows.append({**row, "refit": wanted._asdict()})
  return rows
