"""Cells on images: whole networks fine-tuned (RNC, SISA) beside LegoNet and FixSISA.

For each seed all methods have the same training and test images; LegoNet and FixSISA
see them through the frozen, pretrained encoder at the same image size.
"""

import functools
import time
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from experiments.reproduce.cells import Cell, Result
from experiments.reproduce.inputs import Inputs
from experiments.reproduce.on_encodings import (
  SOLVERS,
  fixsisa_contender,
  lego_config,
  lego_contender,
  sisa_contender,
)
from experiments.reproduce.scales import Scale, trained
from experiments.reproduce.tasks import Contender, Data, run_tasks, wait
import legonet_jax as lego
from legonet_jax import encoder, measures
from legonet_jax.baselines import ImageTable, Learner, SisaConfig, rnc, rnc_learner
from legonet_jax.baselines.images import in_blocks
from legonet_jax.config import describe, describe_hash
from legonet_jax.encoder.resnet import Variables
from legonet_jax.ids import Ids

_encode = jax.jit(encoder.encode_images, static_argnums=0)


def task_cells(scale: Scale, inputs: Inputs) -> list[Cell]:
  """Table 1 on images."""
  tune, cells = scale.images, []
  shards = tune.shards[0]
  for seed in scale.seeds:
    make = functools.partial(make_cell, scale, inputs, "tasks", seed)
    for solver in SOLVERS:
      for n in sorted({tune.adapters[0], tune.adapters[-1]}):
        size = {"solver": solver, "n": n, "k": min(10, n)}
        cells.append(make("lego", size, f"lego-{solver}-n{n}", _run_tasks))
      size = {"solver": solver, "s": shards}
      cells.append(make("fixsisa", size, f"fixsisa-{solver}-s{shards}", _run_tasks))
  for seed in scale.network_seeds:
    make = functools.partial(make_cell, scale, inputs, "tasks", seed)
    cells.append(make("rnc", {}, "rnc", _run_tasks))
  for seed in scale.sisa_seeds:
    make = functools.partial(make_cell, scale, inputs, "tasks", seed)
    size = {"s": shards, "slices": 1}
    cells.append(make("sisa", size, f"sisa-s{shards}", _run_tasks))
  return cells


def accuracy_cells(scale: Scale, inputs: Inputs) -> list[Cell]:
  """SISA's rows of Table 2 and Figure 3, and the others on the same images."""
  tune, cells = scale.images, []
  for seed in scale.seeds:
    make = functools.partial(make_cell, scale, inputs, "accuracy", seed)
    for solver in SOLVERS:
      for s in tune.shards:
        size = {"solver": solver, "s": s}
        cells.append(make("fixsisa", size, f"acc-fixsisa-{solver}-s{s}", _run_accuracy))
      for n in tune.adapters:
        size = {"solver": solver, "n": n, "k": min(10, n)}
        cells.append(make("lego", size, f"acc-lego-{solver}-n{n}", _run_accuracy))
  # The first s is trained by its task cells already.
  cells += [
    cell for cell in task_cells(scale, inputs) if cell.settings["method"] == "sisa"
  ]
  # The longest first, all seeds of one s together: with --jobs the ends meet.
  for s, seeds in tune.sweep[::-1]:
    for seed in range(seeds):
      make = functools.partial(make_cell, scale, inputs, "accuracy", seed)
      size = {"s": s, "slices": 1}
      cells.append(make("sisa", size, f"acc-sisa-s{s}", _run_accuracy))
  return cells


def make_cell(
  scale: Scale,
  inputs: Inputs,
  kind: str,
  seed: int,
  method: str,
  size: dict[str, Any],
  name: str,
  run: Any,
) -> Cell:
  """A cell on images; `size` is what its method is made with."""
  tune = scale.images
  settings = {
    "dataset": inputs.dataset,
    "scale": scale.name,
    "source": "images",
    "method": method,
    **size,
    "seed": seed,
    "N": tune.samples or 50_000,
    "size": tune.encoder.size,
    "encoder": tune.encoder.name,
    "test": tune.test or 10_000,
    "data": inputs.fingerprint(),
  }
  if kind == "tasks":
    settings |= {"evaluate": tune.retain, "forget": scale.forget}
  if kind == "time":
    settings |= {"shards": [*tune.shards], "adapters": [*tune.adapters]}
  if method in ("rnc", "sisa", "all"):
    names = ("rnc", "tune", "ngrad") if method == "rnc" else ("shard",)
    ways = {
      name: trained(getattr(tune.training, name), inputs.classes, 0) for name in names
    }
    settings["epochs"] = ways[names[0]].epochs
    settings["training"] = {name: describe(cfg) for name, cfg in ways.items()}
  if method not in ("rnc", "sisa"):
    solvers = SOLVERS if method == "all" else (size["solver"],)
    settings["config"] = " ".join(
      describe_hash(lego_config(inputs.classes, solver, 1, 1, 0)) for solver in solvers
    )
  call = functools.partial(run, scale, inputs, settings)
  return Cell(f"images-{name}-seed{seed}", kind, settings, call)


def encode_table(
  scale: Scale, variables: Variables, table: ImageTable
) -> NDArray[np.float32]:
  """E [N, d] of images, by the frozen encoder."""
  spec = scale.images.encoder
  params = encoder.prepare(spec, variables)
  call = functools.partial(_encode, spec, params)
  return in_blocks(call, table.images)[:, : scale.features]


@functools.lru_cache(maxsize=1)
def _encoded(
  scale: Scale, inputs: Inputs, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
  """Encodings of a seed's training and test images; its cells follow each other."""
  variables, _ = inputs.pretrained()
  train, test = inputs.images(seed)
  return encode_table(scale, variables, train), encode_table(scale, variables, test)


def rnc_contender(
  scale: Scale, classes: int, seed: int, variables: Variables, table: ImageTable
) -> Contender:
  """RNC with its three strategies."""
  cfg, _, further, opposite = (
    trained(way, classes, seed) for way in scale.images.training
  )

  def fit(ids: Ids) -> rnc.RncModel:
    return rnc.train(cfg, rnc.init(cfg, variables), table, ids)

  forget = {
    "retrain": lambda model, gone, retain: fit(retain),
    "tune": lambda model, gone, retain: rnc.tune(further, model, table, retain),
    "ngrad": lambda model, gone, retain: rnc.ngrad(opposite, model, table, gone),
  }
  return Contender(fit, forget, functools.partial(rnc.predict, cfg), None)


def make_contender(
  scale: Scale, inputs: Inputs, settings: dict[str, Any], test_only: bool = False
) -> tuple[Contender, Data]:
  """The method of a cell and what it is given: images, or their encodings.

  With `test_only` nothing but D_test will be asked: networks need not be kept.
  """
  seed, method = settings["seed"], settings["method"]
  train, test = inputs.images(seed)
  variables, _ = inputs.pretrained()
  if method in ("rnc", "sisa"):
    data = Data(train.ids, train.images, train.labels, test.images, test.labels)
    if method == "rnc":
      return rnc_contender(scale, inputs.classes, seed, variables, train), data
    cfg = trained(scale.images.training.shard, inputs.classes, seed)
    learner = rnc_learner(cfg, variables, train)
    if test_only:
      learner = _answers(learner, test.images)
    return sisa_contender(SisaConfig(settings["s"], seed=seed), learner), data
  seen, unseen = _encoded(scale, inputs, seed)
  data = Data(train.ids, seen, train.labels, unseen, test.labels)
  n, k = settings.get("n", 1), settings.get("k", 1)
  one = lego_config(inputs.classes, settings["solver"], n, k, seed)
  samples = lego.make_samples(one, seen, train.labels, train.ids)
  if method == "lego":
    return lego_contender(one, samples), data
  return fixsisa_contender(one, samples, settings["s"]), data


def _answers(learner: Learner, inputs: NDArray[np.uint8]) -> Learner:
  """A learner that keeps of a model what it answers on these inputs.

  A hundred networks fill the memory of a small machine.
  """

  def train(model: Any, ids: Ids, stream: int, share: float) -> NDArray[Any]:
    return learner.predict(learner.train(model, ids, stream, share), inputs)

  return Learner(learner.init, train, lambda answers, _: answers)


def _run_tasks(scale: Scale, inputs: Inputs, settings: dict[str, Any]) -> Result:
  contender, data = make_contender(scale, inputs, settings)
  return run_tasks(contender, data, settings["seed"], scale.forget, scale.images.retain)


def _run_accuracy(scale: Scale, inputs: Inputs, settings: dict[str, Any]) -> Result:
  contender, data = make_contender(scale, inputs, settings, test_only=True)
  began = time.perf_counter()
  model = wait(contender.fit(data.ids))
  seconds = time.perf_counter() - began
  test = measures.accuracy(contender.predict(model, data.test), data.test_labels)
  return {"train": None, "test": test, "fit_seconds": seconds, "balance": None}
