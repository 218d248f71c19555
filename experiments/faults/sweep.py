"""All cuts of all scenarios, in processes of their own."""

import collections
import concurrent.futures
import multiprocessing
import pathlib
from typing import Any

from experiments.faults import cuts
from experiments.faults.scenarios import SCENARIOS

_SHOWN = 20


def cut_all(
  names: list[str], folder: pathlib.Path, stride: int, jobs: int
) -> dict[str, dict[str, Any]]:
  """Makes the cuts of several scenarios; what came of them, by name.

  Args:
    names: of the scenarios.
    folder: to work in.
    stride: every how-manieth cut.
    jobs: how many processes.
  """
  spawn = multiprocessing.get_context("spawn")  # jax has threads: no fork
  with concurrent.futures.ProcessPoolExecutor(jobs, spawn) as pool:
    work = {name: pool.submit(cut_one, name, folder, stride) for name in names}
    return {name: one.result() for name, one in work.items()}


def cut_one(name: str, folder: pathlib.Path, stride: int) -> dict[str, Any]:
  """All cuts of one scenario: how many operations and cuts, and what went wrong.

  Args:
    name: of the scenario.
    folder: to work in.
    stride: every how-manieth cut.
  """
  number = [scenario.name for scenario in SCENARIOS].index(name)
  place = folder / str(number)
  place.mkdir()
  counts: collections.Counter[str] = collections.Counter()
  problems, operations = [], 0
  world = cuts.prepare(SCENARIOS[number], place)
  for cut in cuts.all_cuts(SCENARIOS[number], world, stride):
    counts[cut.kind] += 1
    operations = max(operations, cut.at if cut.kind == "kill" else 0)
    for problem in cut.problems:
      text = problem.replace(str(place), "")
      problems.append({"kind": cut.kind, "at": cut.at, "problem": text})
      if len(problems) <= _SHOWN:
        print(f"{name}, {cut.kind} at {cut.at}: {text}", flush=True)
  print(f"{name}: {counts.total()} cuts, {len(problems)} problems", flush=True)
  return {"operations": operations, "cuts": dict(counts), "problems": problems}
