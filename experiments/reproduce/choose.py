"""The rates of RNC, SISA's shards, Tune and NGrad, chosen on held-out training images.

    python -m experiments.reproduce.choose train --images DIR --weights FILE
    python -m experiments.reproduce.choose forget --images DIR --weights FILE

Trains on N images and measures on 1,000 other training images; test images are not
touched. `forget`: for Tune and NGrad a class and 100 random samples are forgotten by
the model that `cpu` trains, and the rate with the largest mean ToW against a re-trained
model wins. On 2 cores about 10 minutes each; results in
experiments/results/reproduce/choose_{train,forget}_EPOCHS.json.
"""

import argparse
import dataclasses
import pathlib
from typing import Any

import numpy as np

from experiments import common
from experiments.reproduce.scales import CPU, again, ascent
from legonet_jax import data, encoder, measures
from legonet_jax.baselines import (
  ImageTable,
  RncConfig,
  SisaConfig,
  load_table,
  rnc,
  sisa,
)
from legonet_jax.encoder.resnet import Variables
from legonet_jax.ids import Ids, hash_order

RATES = (0.0025, 0.005, 0.01)
SHARD = (0.005, 0.01, 0.02)
SHARD_EPOCHS = (CPU.images.shard_epochs, 2 * CPU.images.shard_epochs)
TUNE = (0.003, 0.01, 0.02)
NGRAD = (0.0001, 0.0003, 0.001)
NGRAD_EPOCHS = CPU.images.ngrad_epochs
_SEED = 1000  # the seeds of the tables begin at 0


def split(ids: Ids, size: int, held_out: int, seed: int) -> tuple[Ids, Ids]:
  """`size` ids to train on and `held_out` others, by hash."""
  order = ids[hash_order(seed, ids)]
  return np.sort(order[:size]), np.sort(order[size : size + held_out])


def main() -> None:
  """Measures all rates of one step and prints them."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("step", choices=("train", "forget"))
  parser.add_argument("--images", type=pathlib.Path, required=True, metavar="DIR")
  parser.add_argument("--weights", type=pathlib.Path, required=True, metavar="FILE")
  parser.add_argument("--samples", type=int, default=2000)
  parser.add_argument("--size", type=int, default=64)
  parser.add_argument("--epochs", type=int, default=CPU.images.epochs)
  parser.add_argument("--batch", type=int, default=64)
  parser.add_argument("--out", type=pathlib.Path, default=common.RESULTS / "reproduce")
  args = parser.parse_args()
  dataset = data.load_dataset("cifar10", args.size, folder=args.images)
  pool = dataset.ids[dataset.split == data.TRAIN]
  train, held = split(pool, args.samples, 1000, _SEED)
  table = load_table(dataset, np.searchsorted(dataset.ids, np.union1d(train, held)))
  spec = encoder.ImageEncoder("resnet34", args.size)
  weights = encoder.load(encoder.build_resnet(spec.name), args.weights).variables
  base = RncConfig(10, spec, args.epochs, args.batch, seed=_SEED)
  settings = {
    name: value.name if isinstance(value, pathlib.Path) else value
    for name, value in vars(args).items()
    if name != "out"
  }
  report: dict[str, Any] = {"settings": settings}
  if args.step == "train":
    part = train[sisa.shard_of(SisaConfig(10, seed=_SEED), train) == 0]
    report["train"] = _rates(base, RATES, weights, table, train, held)
    report["shard"] = [
      row
      for epochs in SHARD_EPOCHS
      for row in _rates(
        dataclasses.replace(base, epochs=epochs), SHARD, weights, table, part, held
      )
    ]
  else:
    cfg = dataclasses.replace(base, learning_rate=CPU.images.learning_rate)
    model = rnc.train(cfg, rnc.init(cfg, weights), table, train)
    report["forget"] = rows = []
    for task, gone in _tasks(table, train).items():
      rows += _forget(cfg, weights, table, model, task, train, gone, held)
  print(common.save(args.out, f"choose_{args.step}_{args.epochs}", report))


def _rates(
  base: RncConfig,
  rates: tuple[float, ...],
  weights: Variables,
  table: ImageTable,
  ids: Ids,
  held: Ids,
) -> list[dict[str, Any]]:
  """Accuracy on `held` after training on `ids`, for each rate."""
  rows = []
  for rate in rates:
    cfg = dataclasses.replace(base, learning_rate=rate)
    model = rnc.train(cfg, rnc.init(cfg, weights), table, ids)
    row = {"learning_rate": rate, "epochs": cfg.epochs, "samples": len(ids)}
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
    if way == "tune":
      after = rnc.tune(again(cfg, 1, rate), model, table, retain)
    else:
      after = rnc.ngrad(ascent(cfg, NGRAD_EPOCHS, rate), model, table, gone)
    found = accuracies(after)
    row = {"task": task, "way": way, "learning_rate": rate, **found._asdict()}
    rows.append({**row, "tow": measures.tow(found, wanted), "refit": wanted._asdict()})
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
