"""Cells on cached encodings: LegoNet, FixSISA and one linear layer, at full N.

`accuracy` cells feed Table 2 and Figures 3 and 4, `tasks` cells Table 1, `explain`
cells the question why accuracy rises or falls with n.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from experiments import common
from experiments.reproduce.cells import Cell, Result
from experiments.reproduce.inputs import Inputs, part
from experiments.reproduce.scales import Scale
from experiments.reproduce.tasks import Contender, Data, run_tasks
import legonet_jax as lego
from legonet_jax import measures
from legonet_jax.baselines import Learner, SisaConfig, linear_learner, sisa
from legonet_jax.config import describe_hash, for_prediction
from legonet_jax.ids import Ids
from legonet_jax.prediction import adapter_logits

SOLVERS = {"ridge": lego.Ridge(), "sgd": lego.Sgd()}
_logits = jax.jit(adapter_logits, static_argnums=0)
_BLOCK = 1000


def lego_config(
  classes: int, solver: str, n: int, k: int, seed: int
) -> lego.LegoConfig:
  """LegoNet with the library's defaults for a solver."""
  return lego.LegoConfig(classes, n, k, seed, solver=SOLVERS[solver])


def lego_contender(cfg: lego.LegoConfig, samples: lego.Samples) -> Contender:
  """LegoNet, for `run_tasks` and for timing."""

  def fit(ids: Ids) -> lego.LegoState:
    return lego.fit(cfg, lego.select(samples, ids))[0]

  def forget(state: lego.LegoState, gone: Ids, retain: Ids) -> lego.LegoState:
    return lego.unlearn(cfg, state, samples, gone)[0]

  predict = functools.partial(common.probabilities, cfg)
  return Contender(fit, {"retrain": forget}, predict, lego.digest)


def fixsisa_contender(
  cfg: lego.LegoConfig, samples: lego.Samples, shards: int
) -> Contender:
  """FixSISA whose layers are trained as `cfg` trains an adapter."""
  split = SisaConfig(shards, seed=cfg.seed)
  return sisa_contender(split, linear_learner(cfg, samples), sisa.digest)


def sisa_contender(
  split: SisaConfig,
  learner: Learner,
  digest: Callable[[sisa.SisaState], str] | None = None,
) -> Contender:
  """SISA of any learner."""

  def forget(state: sisa.SisaState, gone: Ids, retain: Ids) -> sisa.SisaState:
    return sisa.unlearn(split, learner, state, gone)[0]

  return Contender(
    lambda ids: sisa.fit(split, learner, ids)[0],
    {"retrain": forget},
    functools.partial(sisa.predict, split, learner),
    digest,
  )


def accuracy_cells(scale: Scale, inputs: Inputs) -> list[Cell]:
  """Table 2, Figures 3 and 4: the grid of LegoNet, FixSISA, one linear layer."""
  cells = []
  for seed in scale.seeds:
    for solver in SOLVERS:
      make = functools.partial(_cell, scale, inputs, "accuracy", seed, solver)
      cells.append(make("linear", {}, f"linear-{solver}", _run_lego))
      cells += [
        make("fixsisa", {"s": s}, f"fixsisa-{solver}-s{s}", _run_fixsisa)
        for s in scale.shards
      ]
      cells += [
        make("lego", {"n": n, "k": k}, f"lego-{solver}-n{n}-k{k}", _run_lego)
        for n, k in scale.grid
      ]
  return cells


def task_cells(scale: Scale, inputs: Inputs) -> list[Cell]:
  """Table 1 on all encodings: LegoNet and FixSISA."""
  cells = []
  for seed in scale.seeds:
    for solver in SOLVERS:
      make = functools.partial(_cell, scale, inputs, "tasks", seed, solver)
      cells += [
        make("lego", {"n": n, "k": 10}, f"tasks-lego-{solver}-n{n}", _run_tasks)
        for n in scale.adapters
      ]
      s = scale.shards[0]
      name = f"tasks-fixsisa-{solver}-s{s}"
      cells.append(make("fixsisa", {"s": s}, name, _run_tasks))
  return cells


def explain_cells(scale: Scale, inputs: Inputs) -> list[Cell]:
  """What n does at different penalties, and to a single adapter."""
  return [
    _cell(
      scale,
      inputs,
      "explain",
      seed,
      solver,
      "lego",
      {},
      f"explain-{solver}",
      _run_explain,
    )
    for seed in scale.explain_seeds
    for solver in SOLVERS
  ]


def _cell(
  scale: Scale,
  inputs: Inputs,
  kind: str,
  seed: int,
  solver: str,
  method: str,
  size: dict[str, int],
  name: str,
  run: Any,
) -> Cell:
  encoded = inputs.encodings()
  settings: dict[str, Any] = {
    "dataset": inputs.dataset,
    "scale": scale.name,
    "source": "encodings",
    "method": method,
    "solver": solver,
    **size,
    "seed": seed,
    "N": len(encoded.train.labels),
    "data": encoded.fingerprint,
    "evaluate": scale.evaluate,
    "config": describe_hash(lego_config(inputs.classes, solver, 1, 1, 0)),
  }
  if kind == "tasks":
    settings["forget"] = scale.forget
  if kind == "explain":
    settings |= {"adapters": [*scale.adapters], "penalties": [*scale.penalties]}
  call = functools.partial(run, scale, inputs, settings)
  return Cell(f"{name}-seed{seed}", kind, settings, call)


def _run_lego(scale: Scale, inputs: Inputs, settings: dict[str, Any]) -> Result:
  encoded = inputs.encodings()
  n, k = settings.get("n", 1), settings.get("k", 1)
  cfg = lego_config(inputs.classes, settings["solver"], n, k, settings["seed"])
  state, info = lego.fit(cfg, inputs.samples(cfg))
  rows = part(
    np.random.default_rng(cfg.seed),
    np.arange(len(encoded.train.labels)),
    scale.evaluate,
  )
  seen = common.Split(encoded.train.encodings[rows], encoded.train.labels[rows])
  return {
    "train": common.accuracy(cfg, state, seen),
    "test": common.accuracy(cfg, state, encoded.test),
    "fit_seconds": info.seconds,
    "balance": info.balance._asdict(),
  }


def _run_fixsisa(scale: Scale, inputs: Inputs, settings: dict[str, Any]) -> Result:
  encoded = inputs.encodings()
  cfg = lego_config(inputs.classes, settings["solver"], 1, 1, settings["seed"])
  samples = inputs.samples(cfg)
  learner = linear_learner(cfg, samples)
  split = SisaConfig(settings["s"], seed=cfg.seed)
  state, info = sisa.fit(split, learner, samples.ids)
  rows = part(np.random.default_rng(cfg.seed), samples.ids, scale.evaluate)

  def accuracy(encodings: NDArray[Any], labels: NDArray[Any]) -> float:
    p = sisa.predict(split, learner, state, np.asarray(encodings))
    return measures.accuracy(p, labels)

  return {
    "train": accuracy(encoded.train.encodings[rows], encoded.train.labels[rows]),
    "test": accuracy(*encoded.test),
    "fit_seconds": info.seconds,
    "balance": None,
  }


def _run_tasks(scale: Scale, inputs: Inputs, settings: dict[str, Any]) -> Result:
  encoded = inputs.encodings()
  n, k = settings.get("n", 1), min(settings.get("k", 1), settings.get("n", 1))
  cfg = lego_config(inputs.classes, settings["solver"], n, k, settings["seed"])
  samples = inputs.samples(cfg)
  if settings["method"] == "lego":
    contender = lego_contender(cfg, samples)
  else:
    contender = fixsisa_contender(cfg, samples, settings["s"])
  data = Data(samples.ids, *encoded.train, *encoded.test)
  return run_tasks(contender, data, cfg.seed, scale.forget, scale.evaluate)


def _run_explain(scale: Scale, inputs: Inputs, settings: dict[str, Any]) -> Result:
  """One row for each n, k and penalty: the ensemble, and one adapter at a time."""
  encoded, rows = inputs.encodings(), []
  pairs = [(n, min(10, n)) for n in scale.adapters] + [(scale.adapters[0], 1)]
  for n, k in pairs:
    base = lego_config(inputs.classes, settings["solver"], n, k, settings["seed"])
    choices: list[Any] = [base.solver]
    if settings["solver"] == "ridge":
      choices = [lego.Ridge(penalty=penalty) for penalty in scale.penalties]
    for solver in choices:
      cfg = dataclasses.replace(base, solver=solver)
      state, info = lego.fit(cfg, inputs.samples(cfg))
      single = _single_accuracy(cfg, state, encoded.test)
      rows.append(
        {
          "n": n,
          "k": cfg.top_k,
          "solver": settings["solver"],
          "penalty": getattr(solver, "penalty", None),
          "train_size": info.balance.median,
          "test": common.accuracy(cfg, state, encoded.test),
          "single": single,
        }
      )
  return {"rows": rows}


def _single_accuracy(
  cfg: lego.LegoConfig, state: lego.LegoState, split: common.Split
) -> float:
  """Mean accuracy of one activated adapter by itself, in percent."""
  right, shared = [], for_prediction(cfg)
  for at in range(0, len(split.labels), _BLOCK):
    z, share = _logits(
      shared, state.model, np.asarray(split.encodings[at : at + _BLOCK])
    )
    labels = split.labels[at : at + _BLOCK, None]
    hits = np.asarray(z).argmax(axis=2) == labels
    right.append((hits * np.asarray(share)).sum(axis=1))
  return 100 * float(np.concatenate(right).mean())
