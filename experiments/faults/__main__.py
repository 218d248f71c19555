"""Cuts every command on a run at every file operation, and looks what is left.

    python -m experiments.faults

Exit code 1 if anything was lost, done twice or kept that should be gone, if `verify`
was wrong about it, or if a run could not go on.
"""

import argparse
from collections.abc import Mapping
import os
import pathlib
import tempfile
import time
from typing import Any

from experiments import common
from experiments.faults import cuts, sweep
from experiments.faults.scenarios import SCENARIOS

_NAMES = [scenario.name for scenario in SCENARIOS]


def main(argv: list[str] | None = None) -> int:
  """Runs the experiment; returns its exit code."""
  parser = argparse.ArgumentParser(
    prog="python -m experiments.faults",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add = parser.add_argument
  add("--out", type=pathlib.Path, default=common.RESULTS, metavar="DIR")
  add("--only", nargs="+", choices=_NAMES, default=_NAMES, metavar="SCENARIO",
      help=", ".join(_NAMES))  # fmt: skip
  add("--stride", type=int, default=1, help="every how-manieth cut (1)")
  add("--jobs", type=int, default=1, metavar="J", help="processes (1)")
  args = parser.parse_args(argv)
  start = time.perf_counter()
  with tempfile.TemporaryDirectory(dir=_fast_folder()) as temporary:
    os.environ.setdefault("LEGONET_CACHE", f"{temporary}/cache")
    rows = sweep.cut_all(args.only, pathlib.Path(temporary), args.stride, args.jobs)
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


def _make_table(rows: Mapping[str, dict[str, Any]]) -> list[str]:
  """A line per scenario, and their sum."""
  head = ["scenario", "operations", *cuts.KINDS, "problems"]
  lines = [
    [name, row["operations"], *(row["cuts"].get(kind, 0) for kind in cuts.KINDS),
     len(row["problems"])]
    for name, row in rows.items()
  ]  # fmt: skip
  sums = [sum(line[i] for line in lines) for i in range(1, len(head))]
  return [
    f"{name:20}" + "".join(f"{value:>11}" for value in rest)
    for name, *rest in (head, *lines, ["all", *sums])
  ]


if __name__ == "__main__":
  raise SystemExit(main())
