"""Cuts every command on a run at every file operation, and looks what is left.

    python -m experiments.faults

Exit code 1 if anything was lost, done twice or kept that should be gone, if `verify`
was wrong about it, or if a run could not go on.
"""

import argparse
import collections
import os
import pathlib
import tempfile
import time
from typing import Any

import tqdm

from experiments import common
from experiments.faults import cuts
from experiments.faults.scenarios import SCENARIOS, Scenario

_SHOWN = 20


def main(argv: list[str] | None = None) -> int:
  """Runs the experiment; returns its exit code."""
  parser = argparse.ArgumentParser(
    prog="python -m experiments.faults",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  names = [scenario.name for scenario in SCENARIOS]
  add = parser.add_argument
  add("--out", type=pathlib.Path, default=common.RESULTS, metavar="DIR")
  add("--only", nargs="+", choices=names, default=names, metavar="SCENARIO",
      help=", ".join(names))  # fmt: skip
  add("--stride", type=int, default=1, help="every how-manieth cut (1)")
  args = parser.parse_args(argv)
  start, rows = time.perf_counter(), {}
  with tempfile.TemporaryDirectory(dir=_fast_folder()) as temporary:
    os.environ.setdefault("LEGONET_CACHE", f"{temporary}/cache")
    for number, scenario in enumerate(s for s in SCENARIOS if s.name in args.only):
      folder = pathlib.Path(temporary, str(number))
      folder.mkdir()
      rows[scenario.name] = cut_all(scenario, folder, args.stride)
  summary = {
    "cuts": sum(sum(row["cuts"].values()) for row in rows.values()),
    "problems": sum(len(row["problems"]) for row in rows.values()),
    "stride": args.stride,
    "seconds": round(time.perf_counter() - start),
  }
  print("\n".join(_make_table(rows)))
  print(common.save(args.out, "faults", {**summary, "scenarios": rows}))
  return 1 if summary["problems"] else 0


def _fast_folder() -> str | None:
  """Memory instead of a disk, where there is such a folder."""
  return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def cut_all(scenario: Scenario, folder: pathlib.Path, stride: int) -> dict[str, Any]:
  """All cuts of one scenario: how many operations and cuts, and what went wrong."""
  counts: collections.Counter[str] = collections.Counter()
  problems, last = [], 0
  world = cuts.prepare(scenario, folder)
  for cut in tqdm.tqdm(cuts.all_cuts(scenario, world, stride), desc=scenario.name):
    counts[cut.kind] += 1
    last = cut.at
    for problem in cut.problems:
      text = problem.replace(str(folder), "")
      problems.append({"kind": cut.kind, "at": cut.at, "problem": text})
      if len(problems) <= _SHOWN:
        tqdm.tqdm.write(f"{scenario.name}, {cut.kind} at {cut.at}: {text}")
  return {"operations": last, "cuts": dict(counts), "problems": problems}


def _make_table(rows: dict[str, dict[str, Any]]) -> list[str]:
  """A line per scenario, and their sum."""
  head = ["scenario", "operations", *cuts.KINDS, "problems"]
  lines = [
    [name, row["operations"], *(row["cuts"].get(kind, 0) for kind in cuts.KINDS),
     len(row["problems"])]
    for name, row in rows.items()
  ]  # fmt: skip
  sums = [sum(line[i] for line in lines) for i in range(1, len(head))]
  text = [f"{name:20}" + "".join(f"{value:>11}" for value in rest)
          for name, *rest in (head, *lines, ["all", *sums])]  # fmt: skip
  return text


if __name__ == "__main__":
  raise SystemExit(main())
