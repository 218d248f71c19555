"""How RNC, SISA's shards, Tune and NGrad train, chosen on held-out training images.

    python -m experiments.reproduce.choose rnc --images DIR --weights FILE
    python -m experiments.reproduce.choose shard --images DIR --weights FILE
    python -m experiments.reproduce.choose forget --images DIR --weights FILE

Trains on N images and measures on 1,000 other training images; test images are not
touched. `forget`: for Tune and NGrad a class and 100 random samples are forgotten by
the model that `cpu` trains, and the rate with the largest mean ToW against a re-trained
model wins. On one core 3 to 15 minutes each; results in
experiments/results/reproduce/choose_{rnc,shard,forget}.json.
"""

import argparse
import dataclasses
import pathlib
from typing import Any

import numpy as np

from experiments import common
from experiments.reproduce.scales import CPU, trained
from legonet_jax import data, encoder, errors, measures
from legonet_jax.baselines import (
  ImageTable,
  RncConfig,
  SisaConfig,
  load_table,
  rnc,
  sisa,
)
from legonet_jax.cli import compiled
from legonet_jax.config import describe
from legonet_jax.encoder.resnet import Variables
from legonet_jax.ids import Ids, hash_order

# BatchNorm's statistics, samples of a batch, learning rate.
RNC = (
  *(("batch", 64, rate) for rate in (0.005, 0.01)),
  *(("running", 32, rate) for rate in (0.00025, 0.0005, 0.001)),
  ("running", 16, 0.0005),
)
SHARD = (
  *(("batch", 64, rate) for rate in (0.01, 0.02)),
  ("batch", 16, 0.005),
  *(("running", 16, rate) for rate in (0.0005, 0.001, 0.002)),
  ("running", 32, 0.001),
)
TUNE = (0.0005, 0.001, 0.002)
NGRAD = (0.000003, 0.00001, 0.00002)
_SEED = 1000  # the seeds of the tables begin at 0


def split(ids: Ids, size: int, held_out: int, seed: int) -> tuple[Ids, Ids]:
  """`size` ids to train on and `held_out` others, by hash."""
  order = ids[hash_order(seed, ids)]
  return np.sort(order[:size]), np.sort(order[size : size + held_out])


def main() -> None:
  """Measures all rates of one step and prints them."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("step", choices=("rnc", "shard", "forget"))
  parser.add_argument("--images", type=pathlib.Path, required=True, metavar="DIR")
  parser.add_argument("--weights", type=pathlib.Path, required=True, metavar="FILE")
  parser.add_argument("--out", type=pathlib.Path, default=common.RESULTS / "reproduce")
  args = parser.parse_args()
  compiled.use_cache()
  tune = CPU.images
  dataset = data.load_dataset("cifar10", tune.encoder.size, folder=args.images)
  pool = dataset.ids[dataset.split == data.TRAIN]
  train, held = split(pool, tune.samples or len(pool), 1000, _SEED)
  table = load_table(dataset, np.searchsorted(dataset.ids, np.union1d(train, held)))
  net = encoder.build_resnet(tune.encoder.name)
  weights = encoder.load(net, args.weights).variables
  settings = {"images": args.images.name, "weights": args.weights.name}
  report: dict[str, Any] = {"settings": settings | {"samples": len(train)}}
  if args.step == "rnc":
    report["rnc"] = _rates(tune.training.rnc, RNC, weights, table, train, held)
  elif args.step == "shard":
    part = train[sisa.shard_of(SisaConfig(10, seed=_SEED), train) == 0]
    report["shard"] = _rates(tune.training.shard, SHARD, weights, table, part, held)
  else:
    cfg = trained(tune.training.rnc, 10, _SEED)
    report["training"] = describe(cfg)
    model = rnc.train(cfg, rnc.init(cfg, weights), table, train)
    report["forget"] = rows = []
    for task, gone in _tasks(table, train).items():
      rows += _forget(cfg, weights, table, model, task, train, gone, held)
  print(common.save(args.out, f"choose_{args.step}", report))


def _rates(
  base: RncConfig,
  candidates: tuple[tuple[Any, int, float], ...],
  weights: Variables,
  table: ImageTable,
  ids: Ids,
  held: Ids,
) -> list[dict[str, Any]]:
  """Accuracy on `held` after training on `ids`, for each candidate."""
  rows = []
  for norm, batch, rate in candidates:
    own = {"norm": norm, "batch_size": batch, "learning_rate": rate}
    cfg = dataclasses.replace(trained(base, 10, _SEED), **own)
    model = rnc.train(cfg, rnc.init(cfg, weights), table, ids)
    row = {**own, "epochs": cfg.epochs, "samples": len(ids)}
    rows.append({**row, "held_out": _accuracy(cfg, model, table, held)})
    print(rows[-1], flush=True)
  return rows


def _tasks(table: ImageTable, train: Ids) -> dict[str, Ids]:
  labels = table.labels[np.searchsorted(table.ids, train)]
  random = train[hash_order(_SEED + 1, train)][:100]
  return {"random100": np.sort(random), "unclass": train[labels == _SEED % 10]}


def _forget(
  cfg: RncConfig,
  weights: Variables,
  table: ImageTable,
  model: rnc.RncModel,
  task: str,
  train: Ids,
  gone: Ids,
  held: Ids,
) -> list[dict[str, Any]]:
  """Every rate of Tune and NGrad on one task, against a re-trained model."""
  retain = np.setdiff1d(train, gone)
  refit = rnc.train(cfg, rnc.init(cfg, weights), table, retain)

  def accuracies(model: rnc.RncModel) -> measures.Accuracies:
    parts = (retain[:500], gone, held)
    return measures.Accuracies(*(_accuracy(cfg, model, table, ids) for ids in parts))

  wanted, rows = accuracies(refit), []
  ways = [("tune", rate) for rate in TUNE] + [("ngrad", rate) for rate in NGRAD]
  for way, rate in ways:
    base = trained(getattr(CPU.images.training, way), 10, _SEED)
    used = dataclasses.replace(base, learning_rate=rate)
    if way == "tune":
      after = rnc.tune(used, model, table, retain)
    else:
      after = rnc.ngrad(used, model, table, gone)
    row: dict[str, Any] = {"task": task, "way": way, "learning_rate": rate}
    try:
      found = accuracies(after)
      row |= {**found._asdict(), "tow": measures.tow(found, wanted)}
    except errors.SampleError:  # ascent has no bound: probabilities are NaN
      row |= {"diverged": True, "tow": 0.0}
    rows.append({**row, "refit": wanted._asdict()})
    print(rows[-1], flush=True)
  return rows


def _accuracy(
  cfg: RncConfig, model: rnc.RncModel, table: ImageTable, ids: Ids
) -> float:
  rows = np.searchsorted(table.ids, ids)
  return measures.accuracy(
    rnc.predict(cfg, model, table.images[rows]), table.labels[rows]
  )


if __name__ == "__main__":
  main()
