"""One request of `Ridge` against PyTorch's closed form, in turns: part of `unlearn`.

Both know the members already. PyTorch uses all cores in two ways: each adapter on all
threads, or one adapter per thread. Threads that wait for each other lose much on a busy
machine, so a round counts as *calm* if all other processes together took less than a
tenth of the cores during it; medians are given over all rounds and over the calm ones.
"""

from concurrent import futures
import statistics
import time
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.requests import Case, fitted, forget
import legonet_jax as lego

_CALM = 0.1
_PAUSE = 0.02  # threads of the last contender stop spinning
OURS = "ridge"


def measure_pairs(case: Case, rounds: int, most_rounds: int) -> dict[str, Any]:
  """Until `rounds` rounds were calm, or `most_rounds` in all; no anchors."""
  import torch

  from benchmarks import torch_loop, torch_ridge

  cfg, samples, state, fit = fitted(case, lego.Ridge())
  x, y = torch_loop.features_of(cfg, samples), torch.from_numpy(case.labels)
  routes, ids, cores = state.routes, state.ids, torch.get_num_threads()

  pool = futures.ThreadPoolExecutor(cores)
  others = np.setdiff1d(ids, state.anchors)
  wanted = np.random.default_rng(0).choice(others, most_rounds + 2, replace=False)
  rows: list[dict[str, Any]] = []
  for turn, i in enumerate(wanted.tolist()):
    mine = routes[ids == i][0].tolist()
    lists = [ids[(routes == j).any(axis=1) & (ids != i)] for j in mine]
    calls: dict[str, tuple[Any, ...]] = {
      OURS: (forget, cfg, state, samples, i),
      "torch": (torch_ridge.solve, cfg, x, y, lists),
      "torch, pool": (torch_ridge.solve_in_pool, pool, cfg, x, y, lists),
    }
    names = list(calls)
    names = names[turn % 3 :] + names[: turn % 3]
    row: dict[str, Any] = {"members": sum(map(len, lists))}
    watch = machine.Watch()
    for name in names:
      time.sleep(_PAUSE)
      row[name] = machine.seconds(*calls[name])
    row["others"] = watch.others()
    if turn >= 2:  # the first two warm up
      rows.append(row)
    if sum(row["others"] < _CALM for row in rows) >= rounds:
      break
  calm = [row for row in rows if row["others"] < _CALM]
  return {
    "data": case.name,
    "N": len(case.labels),
    "n": case.adapters,
    "C": case.classes,
    "ridge_fit_seconds": fit,
    "all_rounds": _summarise(rows),
    "calm_rounds": _summarise(calm),
    "rows": rows,
  }


def _summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
  """Medians, and medians of each round's ratio to ours."""
  if not rows:
    return {"rounds": 0}
  names = [name for name in rows[0] if name not in ("members", "others")]
  ratios = {
    name: statistics.median(row[name] / row[OURS] for row in rows)
    for name in names
    if name != OURS
  }
  return {
    "rounds": len(rows),
    "members": statistics.median(row["members"] for row in rows),
    "others": statistics.median(row["others"] for row in rows),
    "seconds": {name: machine.summary([row[name] for row in rows]) for name in names},
    "times_faster_than": ratios,
  }


def show(r: dict[str, Any]) -> None:
  """A few lines of one case."""
  print(f"N = {r['N']:,}, n = {r['n']}, C = {r['C']} ({r['data']}):")
  for kind in ("all_rounds", "calm_rounds"):
    found = r[kind]
    print(f"  {kind}: {found['rounds']}", flush=True)
    for name, t in found.get("seconds", {}).items():
      faster = found["times_faster_than"].get(name)
      print(
        f"    {name:18} {t['median_ms']:8.2f} ms ({t['min_ms']:.2f} to"
        f" {t['max_ms']:.2f})",
        f"ridge is {faster:.2f} times as fast" if faster else "",
        flush=True,
      )
