"""Three more kinds of cells: the time of a request, privacy, and why n matters.

Time (Figure 3, right): all contenders forget the same single samples, in turns, in one
process, in an order drawn anew for each, after everything is compiled. An anchor of
LegoNet costs more, because a key moves with it, so anchors are timed apart.

Privacy (U-LiRA, KLoM): "unlearned" models are trained on the targets and a random part
of the other samples, then forget the targets; "never" models are trained on a random
part alone. Both sides have seeds and parts of their own, so that an exact method is
compared with other models, not with its own refit. The control forgets nothing: the
measures must see that.
"""

from collections.abc import Iterable
import dataclasses
import functools
import json
import time
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from experiments import common
from experiments.reproduce.cells import CellSettings, Result
from experiments.reproduce.contenders import make_samples
from experiments.reproduce.datasets import Bench, load_data
from experiments.reproduce.methods import METHODS, configure_lego, make_contender
from experiments.reproduce.statistics import bootstrap_excess
from experiments.reproduce.tasks import Contender, wait
import legonet_jax as lego
from legonet_jax import measures
from legonet_jax.core.prediction import adapter_logits

_logits = jax.jit(adapter_logits)
_BLOCK = 1000


def list_timed(bench: Bench) -> list[CellSettings]:
  """Method and sizes of all that are timed; segmentation is s, or n/k."""
  found: list[CellSettings] = [
    {"method": name, **sizes}
    for name, method in METHODS.items()
    for sizes in method.sizes(bench.scale).get(("time", "images"), ())
  ]
  for row in found:
    row["segmentation"] = row["s"] if "s" in row else row.get("n", 1) // row.get("k", 1)
  return found


def run_time(bench: Bench, settings: CellSettings) -> Result:
  """One sample per request, the contenders in turns."""
  turns, rng = settings["turns"], np.random.default_rng(settings["seed"])
  rows = list_timed(bench)
  contenders = [make_contender(bench, settings | row) for row in rows]
  ids = contenders[0].data.ids
  models = [None if c.prepare_timing else c.fit(ids) for c in contenders]
  pairs = zip(contenders, models, strict=True)
  anchors = [c.anchors(model) for c, model in pairs if c.anchors]
  plain = np.setdiff1d(ids, functools.reduce(np.union1d, anchors))
  gone = rng.choice(plain, turns, replace=False)
  moving = rng.choice(functools.reduce(np.intersect1d, anchors), turns, replace=False)
  asked, seconds = [], []
  for at, contender in enumerate(contenders):
    first, samples = gone[:1], {"requests": gone}
    if contender.prepare_timing:
      models[at], first = contender.prepare_timing(gone)
    if contender.anchors:
      first, samples["anchor_requests"] = np.append(first, moving[:1]), moving
    for sample in first:  # compiles before the clock starts
      _time_request(contender, models[at], sample)
    asked.append(samples)
    seconds.append({kind: list[float]() for kind in samples})
  for turn in range(turns):
    for at in rng.permutation(len(rows)):
      for kind, samples in asked[at].items():
        took = _time_request(contenders[at], models[at], samples[turn])
        seconds[at][kind].append(took)
  return {"rows": [row | found for row, found in zip(rows, seconds, strict=True)]}


def _time_request(contender: Contender, model: Any, sample: int) -> float:
  """Seconds of forgetting one sample exactly."""
  gone = np.array([sample])
  began = time.perf_counter()
  wait(contender.forget["retrain"](model, gone, gone))
  return time.perf_counter() - began


def run_privacy(bench: Bench, settings: CellSettings) -> Result:
  """Unlearned models (or the control) against models that never saw the targets."""
  count = settings["models"]
  unlearned = _measure_margins(bench, settings, range(count), seen=True)
  # The strategy has no part in models that never saw the targets.
  shared = {name: value for name, value in settings.items() if name != "strategy"}
  never = _measure_never(bench, json.dumps(shared))
  oracle, others = never[:count], never[count:]
  klom, null = measures.klom(unlearned, oracle), measures.klom_null(never)
  return {
    "models": count,
    "targets": settings["targets"],
    "ulira": measures.ulira(unlearned, oracle)._asdict(),
    "ulira_null": measures.ulira(others, oracle)._asdict(),
    "klom": _sum_up(klom),
    "null": _sum_up(null),
    "excess": bootstrap_excess(klom, null),
  }


@functools.lru_cache(maxsize=1)
def _measure_never(bench: Bench, settings: str) -> NDArray[np.float64]:
  """Of models that never saw the targets: oracles, and as many others as their null."""
  found = json.loads(settings)
  seeds = range(found["models"], 3 * found["models"])
  return _measure_margins(bench, found, seeds, seen=False)


def _measure_margins(
  bench: Bench, settings: CellSettings, seeds: Iterable[int], seen: bool
) -> NDArray[np.float64]:
  """Margins [models, targets], with one model for each seed."""
  rows = []
  for seed in seeds:
    contender = make_contender(bench, settings | {"seed": seed})
    data = contender.data
    drawn = np.random.default_rng(0).permutation(data.ids)
    targets = np.sort(drawn[: settings["targets"]])
    others = np.sort(drawn[settings["targets"] :])
    part = np.random.default_rng([seed, 2]).choice(others, settings["N"], replace=False)
    retained = np.sort(part)
    model = contender.fit(np.union1d(retained, targets) if seen else retained)
    if seen and settings["strategy"] != "none":
      model = contender.forget[settings["strategy"]](model, targets, retained)
    p = contender.predict(model, np.asarray(data.inputs[targets]))
    rows.append(measures.margins_of_probs(p, data.labels[targets]))
  return np.array(rows)


def _sum_up(values: NDArray[np.float64]) -> dict[str, float]:
  found = {"median": np.median(values), "q95": np.quantile(values, 0.95)}
  return {name: float(x) for name, x in found.items()} | {"mean": float(values.mean())}


def run_explain(bench: Bench, settings: CellSettings) -> Result:
  """One row for each n, k and penalty: the ensemble, and one adapter at a time."""
  data = load_data(bench, settings["source"], "encodings", settings["seed"])
  test, rows = common.RawSplit(data.test, data.test_labels), []
  adapters = settings["adapters"]
  for n, k in [*((n, min(10, n)) for n in adapters), (adapters[0], 1)]:
    base = configure_lego(bench, settings | {"n": n, "k": k})
    solvers: list[Any] = [base.solver]
    if settings["solver"] == "ridge":
      solvers = [lego.Ridge(penalty=penalty) for penalty in settings["penalties"]]
    for solver in solvers:
      cfg = dataclasses.replace(base, solver=solver)
      samples = make_samples(data, cfg.num_classes, cfg.feature_map)
      state, info = lego.fit(cfg, samples)
      row = {"n": n, "k": k, "solver": settings["solver"]}
      row["penalty"] = getattr(solver, "penalty", None)
      row["train_size"] = info.balance.median
      row["test"] = common.accuracy(state, test)
      rows.append({**row, "single": _measure_single(state, test)})
  return {"rows": rows}


def _measure_single(state: lego.LegoState, split: common.RawSplit) -> float:
  """Mean accuracy of one activated adapter by itself, in percent."""
  right = []
  for at in range(0, len(split.labels), _BLOCK):
    block = slice(at, at + _BLOCK)
    z, share = _logits(state.model, np.asarray(split.encodings[block]))
    hits = np.asarray(z).argmax(axis=2) == split.labels[block, None]
    right.append((hits * np.asarray(share)).sum(axis=1))
  return 100 * float(np.concatenate(right).mean())
