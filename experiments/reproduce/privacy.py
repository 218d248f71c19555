"""Cells of the privacy measures: U-LiRA and KLoM, on encodings.

The targets are the same for all models. "Unlearned" models are trained on a random
part of the other samples and the targets, then forget the targets; "never" models are
trained on a random part alone. The two sides have seeds and parts of their own, so that
an exact method is compared with other models, not with its own refit. The control
forgets nothing: the measures must see that.
"""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.reproduce.cells import Cell, Result
from experiments.reproduce.inputs import Inputs
from experiments.reproduce.on_encodings import (
  fixsisa_contender,
  lego_config,
  lego_contender,
)
from experiments.reproduce.scales import Scale
from experiments.reproduce.tasks import Contender
from legonet_jax import measures
from legonet_jax.config import describe_hash
from legonet_jax.ids import Ids

_SHARDS = 10


def privacy_cells(scale: Scale, inputs: Inputs) -> list[Cell]:
  """One cell for each method and strategy."""
  cells, size = [], scale.privacy
  for method, solver in size.methods:
    for strategy in ("retrain", "none"):
      settings = {
        "dataset": inputs.dataset,
        "scale": scale.name,
        "source": "encodings",
        "method": method,
        "solver": solver,
        "strategy": strategy,
        "seed": 0,
        "N": size.samples,
        "models": size.models,
        "targets": size.targets,
        "data": inputs.encodings().fingerprint,
        "config": describe_hash(lego_config(inputs.classes, solver, 1, 1, 0)),
      }
      if method == "lego":
        settings |= {"n": size.adapters, "k": min(10, size.adapters)}
      else:
        settings |= {"s": _SHARDS}
      run = functools.partial(_run, scale, inputs, settings)
      name = f"privacy-{method}-{solver}-{strategy}-seed0"
      cells.append(Cell(name, "privacy", settings, run))
  return cells


def _run(scale: Scale, inputs: Inputs, settings: dict[str, Any]) -> Result:
  size = scale.privacy
  targets, _ = _split(scale, inputs)
  side = []
  for seed in range(size.models):
    contender = _contender(scale, inputs, settings["method"], settings["solver"], seed)
    retained = _part(scale, inputs, seed)
    model = contender.fit(np.union1d(retained, targets))
    if settings["strategy"] == "retrain":
      model = contender.forget["retrain"](model, targets, retained)
    side.append(_margins(inputs, contender, model, targets))
  unlearned = np.array(side)
  never = _never(scale, inputs, settings["method"], settings["solver"])
  oracle, others = never[: size.models], never[size.models :]
  klom, null = measures.klom(unlearned, oracle), measures.klom_null(never)
  return {
    "models": size.models,
    "targets": size.targets,
    "ulira": measures.ulira(unlearned, oracle)._asdict(),
    "ulira_null": measures.ulira(others, oracle)._asdict(),
    "klom": _summary(klom),
    "null": _summary(null),
    "excess": _excess(klom, null),
  }


@functools.lru_cache(maxsize=1)
def _never(
  scale: Scale, inputs: Inputs, method: str, solver: str
) -> NDArray[np.float64]:
  """Margins [2M, S] of models that never saw the targets: oracles and their null."""
  targets, _ = _split(scale, inputs)
  rows = []
  for seed in range(scale.privacy.models, 3 * scale.privacy.models):
    contender = _contender(scale, inputs, method, solver, seed)
    model = contender.fit(_part(scale, inputs, seed))
    rows.append(_margins(inputs, contender, model, targets))
  return np.array(rows)


def _contender(
  scale: Scale, inputs: Inputs, method: str, solver: str, seed: int
) -> Contender:
  n = scale.privacy.adapters
  cfg = lego_config(inputs.classes, solver, n, min(10, n), seed)
  samples = inputs.samples(cfg)
  if method == "lego":
    return lego_contender(cfg, samples)
  return fixsisa_contender(cfg, samples, _SHARDS)


def _split(scale: Scale, inputs: Inputs) -> tuple[Ids, Ids]:
  """The targets, and all other samples."""
  ids = np.arange(len(inputs.encodings().train.labels))
  drawn = np.random.default_rng(0).permutation(ids)
  cut = scale.privacy.targets
  return np.sort(drawn[:cut]), np.sort(drawn[cut:])


def _part(scale: Scale, inputs: Inputs, seed: int) -> Ids:
  """The samples beside the targets that the model of this seed is trained on."""
  _, others = _split(scale, inputs)
  rng = np.random.default_rng([seed, 2])
  return np.sort(rng.choice(others, scale.privacy.samples, replace=False))


def _margins(
  inputs: Inputs, contender: Contender, model: Any, targets: Ids
) -> NDArray[np.float64]:
  train = inputs.encodings().train
  p = contender.predict(model, np.asarray(train.encodings[targets]))
  return measures.margins_of_probs(p, train.labels[targets])


def _excess(klom: NDArray[np.float64], null: NDArray[np.float64]) -> dict[str, float]:
  """Mean of KLoM over its null, in shares of the null; bootstrap over the targets."""
  rng = np.random.default_rng(0)
  drawn = rng.integers(len(klom), size=(1000, len(klom)))
  means = klom[drawn].mean(axis=1) / null[drawn].mean(axis=1) - 1
  low, high = np.percentile(means, [2.5, 97.5])
  point = klom.mean() / null.mean() - 1
  return {"mean": float(point), "low": float(low), "high": float(high)}


def _summary(values: NDArray[np.float64]) -> dict[str, float]:
  return {
    "median": float(np.median(values)),
    "q95": float(np.quantile(values, 0.95)),
    "mean": float(values.mean()),
  }
