"""The time of a request, all contenders side by side (Figure 3, right).

SISA, FixSISA and LegoNet forget the same single samples, in turns, in one process, in
an order drawn anew for each; everything is compiled before the clock starts. A sample
that LegoNet has made an anchor of costs more, because a key moves with it. Of few
samples a large share are anchors, so both kinds are timed apart.
"""

import functools
import time
from typing import Any

import numpy as np

from experiments.reproduce.cells import Cell, Result
from experiments.reproduce.end_to_end import make_cell, make_contender
from experiments.reproduce.inputs import Inputs
from experiments.reproduce.on_encodings import SOLVERS
from experiments.reproduce.scales import Scale, trained
from experiments.reproduce.tasks import Contender, wait
from legonet_jax.baselines import SisaConfig, rnc, sisa
from legonet_jax.ids import Ids

_TURNS = 5  # requests of one cell


def time_cells(scale: Scale, inputs: Inputs) -> list[Cell]:
  """Figure 3's seconds per request, all contenders in turns in one process."""
  turns = min(_TURNS, scale.images.requests)
  return [
    make_cell(scale, inputs, "time", seed, "all", {"turns": turns}, "time", _run_time)
    for seed in range(-(-scale.images.requests // turns))
  ]


def _contenders(scale: Scale) -> list[dict[str, Any]]:
  """All that are timed: SISA, FixSISA and LegoNet at every segmentation."""
  tune, found = scale.images, []
  for s in tune.shards:
    one = {"s": s, "segmentation": s}
    found.append({"method": "sisa", **one})
    found += [{"method": "fixsisa", "solver": solver, **one} for solver in SOLVERS]
  for n in tune.adapters:
    k = min(10, n)
    size = {"n": n, "k": k, "segmentation": n // k}
    found += [{"method": "lego", "solver": solver, **size} for solver in SOLVERS]
  return found


def _run_time(scale: Scale, inputs: Inputs, settings: dict[str, Any]) -> Result:
  """One sample per request, the contenders in turns."""
  seed, turns, rows = settings["seed"], settings["turns"], _contenders(scale)
  rng = np.random.default_rng(seed)
  made = [make_contender(scale, inputs, {**row, "seed": seed}) for row in rows]
  models: list[Any] = [
    None if row["method"] == "sisa" else contender.fit(data.ids)
    for row, (contender, data) in zip(rows, made, strict=True)
  ]
  ids = made[0][1].ids
  anchors = [
    model.anchors
    for row, model in zip(rows, models, strict=True)
    if row["method"] == "lego"
  ]
  plain = np.setdiff1d(ids, functools.reduce(np.union1d, anchors))
  gone = rng.choice(plain, turns, replace=False)
  moving = rng.choice(functools.reduce(np.intersect1d, anchors), turns, replace=False)
  for at, (row, (contender, _)) in enumerate(zip(rows, made, strict=True)):
    first = [*gone[:1], *moving[:1]]
    if row["method"] == "sisa":
      # With one slice a shard is trained from the pretrained weights: its old model is
      # not looked at, so none needs to be trained before the clock starts.
      split = SisaConfig(row["s"], seed=seed)
      models[at] = sisa.SisaState(split, ids, ((None,),) * row["s"])
      first = _first_of_each_shape(scale, inputs, split, ids, gone)
    for sample in first:  # compiles before the clock starts
      _request(contender, models[at], sample)
    row["requests"] = []
    if row["method"] == "lego":
      row["anchor_requests"] = []
  for turn in range(turns):
    for at in rng.permutation(len(rows)):
      for kind, sample in (("requests", gone), ("anchor_requests", moving)):
        if kind in rows[at]:
          began = time.perf_counter()
          _request(made[at][0], models[at], sample[turn])
          rows[at][kind].append(time.perf_counter() - began)
  return {"rows": rows}


def _request(contender: Contender, model: Any, sample: int) -> None:
  wanted = np.array([sample])
  wait(contender.forget["retrain"](model, wanted, wanted))


def _first_of_each_shape(
  scale: Scale, inputs: Inputs, split: SisaConfig, ids: Ids, gone: Ids
) -> list[int]:
  """The first of the samples for each size of batch that their shards train with."""
  cfg = trained(scale.images.training.shard, inputs.classes, split.seed)
  sizes = np.bincount(sisa.shard_of(split, ids), minlength=split.shards) - 1
  shapes: dict[int, int] = {}
  for sample, shard in zip(gone.tolist(), sisa.shard_of(split, gone), strict=True):
    shapes.setdefault(rnc.batch_size(cfg, int(sizes[shard])), sample)
  return list(shapes.values())
