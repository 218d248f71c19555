"""One request and one fit, by all contenders in turns."""

import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import seconds, summary
from experiments import common
import legonet_jax as lego
from legonet_jax.core import single
from legonet_jax.core.config import for_one_adapter

SHARDS = 10  # of FixSISA, as in the paper's first setting


class Case(NamedTuple):
  """What is measured: encodings [N, 512], labels [N], and n."""

  name: str
  encodings: NDArray[Any]
  labels: NDArray[np.int64]
  classes: int
  adapters: int


def make_case(folder: pathlib.Path | None, count: int, classes: int, n: int) -> Case:
  """Real encodings if there is a folder of them, else synthetic clusters."""
  if folder is None:
    return synthetic(count, classes, n)
  train = common.load(folder, "train")
  encodings, labels = train.encodings[:count], train.labels[:count]
  parts = classes // (int(train.labels.max()) + 1)
  if parts > 1:  # the same samples, with each class cut into several
    labels = labels * parts + np.arange(count) % parts
  return Case(folder.name, np.asarray(encodings), labels, classes, n)


def synthetic(count: int, classes: int, n: int) -> Case:
  """Clusters of uneven size, non-negative like the encodings of a ResNet."""
  rng = np.random.default_rng(0)
  centres = rng.gamma(0.5, 1.0, (200, 512)).astype(np.float32)
  which = rng.choice(200, count, p=rng.dirichlet(np.ones(200)))
  encodings = centres[which]
  for start in range(0, count, 10_000):  # bounded memory at a million
    part = encodings[start : start + 10_000]
    part += rng.gamma(0.5, 0.7, part.shape).astype(np.float32)
  return Case("synthetic", encodings, which % classes, classes, n)


def settings(case: Case, solver: Any) -> lego.LegoConfig:
  """k = 10 and otherwise the library's settings for that solver."""
  return lego.LegoConfig(case.classes, num_adapters=case.adapters, solver=solver)


def fitted(
  case: Case, solver: Any, twice: bool = True
) -> tuple[lego.LegoConfig, lego.Samples, lego.LegoState, float]:
  """A fit, and the seconds that a warm one takes."""
  cfg = settings(case, solver)
  samples = lego.make_samples(cfg, case.encodings, case.labels)
  state, info = lego.fit(cfg, samples)
  if twice:
    state, info = lego.fit(cfg, samples)
  return cfg, samples, state, info.seconds


def measure_case(
  case: Case, rounds: int, peaks: dict[str, float], batch_size: int = 64
) -> dict[str, Any]:
  """Requests for `rounds` samples, for two anchors, and the fits."""
  import torch

  from benchmarks import torch_loop, torch_ridge

  sgd_solver = lego.Sgd(batch_size=batch_size)
  sgd, samples, state, sgd_fit = fitted(case, sgd_solver)
  ridge, samples_r, state_r, ridge_fit = fitted(case, lego.Ridge())
  x, y = torch_loop.features_of(sgd, samples), torch.from_numpy(case.labels)
  x_r = torch_loop.features_of(ridge, samples_r)
  routes, ids = state.routes, state.ids  # ids are in the same order for both

  def members_without(i: int, routes: NDArray[np.int32]) -> list[NDArray[np.intp]]:
    mine = routes[ids == i][0].tolist()
    return [ids[(routes == j).any(axis=1) & (ids != i)] for j in mine]

  rng = np.random.default_rng(0)
  sure = np.setdiff1d(ids, np.union1d(state.anchors, state_r.anchors))
  wanted = rng.choice(sure, rounds, replace=False).tolist()
  names = ("sgd", "ridge", "torch", "torch_ridge", "fixsisa")
  times: dict[str, list[float]] = {name: [] for name in names}
  visits = []
  for i in wanted:
    lists = members_without(i, routes)
    lists_r = members_without(i, state_r.routes)
    visits.append(sgd_solver.epochs * sum(map(len, lists)))
    turns: dict[str, tuple[Any, ...]] = {
      "sgd": (forget, sgd, state, samples, i),
      "ridge": (forget, ridge, state_r, samples_r, i),
      "torch": (torch_loop.train, sgd, x, y, lists),
      "torch_ridge": (torch_ridge.solve, ridge, x_r, y, lists_r),
      "fixsisa": (fixsisa, sgd, samples, i),
    }
    for name, call in turns.items():
      if not times[name]:
        seconds(*call)  # warm
      times[name].append(seconds(*call))
  anchors = state.anchors[:2]  # the same for both: they depend on ids and seed only
  per_second = sum(visits) / sum(times["sgd"])
  result: dict[str, Any] = {
    "data": case.name,
    "N": len(case.labels),
    "n": case.adapters,
    "C": case.classes,
    "batch_size": batch_size,
    "seconds": {name: summary(t) for name, t in times.items()},
    "anchor_seconds": {
      "sgd": summary([seconds(forget, sgd, state, samples, i) for i in anchors]),
      "ridge": summary(
        [seconds(forget, ridge, state_r, samples_r, i) for i in anchors]
      ),
    },
    "fit_seconds": {"sgd": sgd_fit, "ridge": ridge_fit},
    "sgd_gflops": per_second * 4 * case.classes * 512 / 1e9,
    "sgd_gbps": per_second * 512 / 1e9,
    "peaks": peaks,
  }
  if case.adapters == 1000 and batch_size == 64:
    lists = [ids[(routes == j).any(axis=1)] for j in range(case.adapters)]
    result["fit_seconds"]["torch"] = seconds(torch_loop.train, sgd, x, y, lists)
  medians = {name: t["median_ms"] for name, t in result["seconds"].items()}
  result["times_faster_than_torch"] = {
    name: medians["torch"] / medians[name] for name in ("sgd", "ridge")
  }
  faster = medians["torch_ridge"] / medians["ridge"]
  result["ridge_times_faster_than_torch_ridge"] = faster
  if "torch" in result["fit_seconds"]:
    fits = result["fit_seconds"]
    result["fit_times_faster_than_torch"] = {
      name: fits["torch"] / fits[name] for name in ("sgd", "ridge")
    }
  return result


def forget(
  cfg: lego.LegoConfig, state: lego.LegoState, samples: lego.Samples, i: int
) -> jax.Array:
  """One request."""
  # `unlearn` waits for the weights. `state.model` would put them together, which no
  # request needs.
  return lego.unlearn(state, samples, [i])[0].net.keys


def fixsisa(cfg: lego.LegoConfig, samples: lego.Samples, i: int) -> NDArray[Any]:
  """Retrains the one shard of FixSISA that has sample i, with this library's engine."""
  shard = np.flatnonzero(samples.ids % SHARDS == i % SHARDS)
  shard = shard[samples.ids[shard] != i]
  one, signs = for_one_adapter(cfg), np.ones(len(shard), np.int8)
  who = np.uint32(cfg.seed), np.zeros(2, np.uint32)
  carry = single.carry_rows(one, samples.data, shard, signs, who)
  return np.asarray(single.solve_carry(one, *carry).weights)
