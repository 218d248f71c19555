"""Seconds per request: ours, PyTorch, FixSISA and a refit, side by side.

    pip install "legonet-jax[bench]"
    python -m benchmarks.unlearn [--encodings DIR] [--out benchmarks/results]
    python -m benchmarks.unlearn --only ridge --rounds 30 --encodings DIR
                                 [--encodings-100 DIR]

Everything runs in one process on the same cores, warm, in turns, so that whatever else
the machine does hits all alike; medians with the smallest and largest of the rounds.
k = 10, d = 512; real encodings where given (C = 10; C = 100 of a folder of its own, or
with their labels cut into ten each); else synthetic clusters. PyTorch trains the same
adapters by Adam, as the paper does, and by the closed form (`torch_ridge`); `--only
ridge` measures that one alone against `Ridge`, and leaves out rounds in which other
processes were at work. Also: 1,000 requests in a stream, requests as N
grows to a million (synthetic), peak memory and start-up in processes of their own. On 2
cores about 25 minutes; `--quick` is a smaller run to try it out.
"""

import argparse
import json
import os
import pathlib
from typing import Any

from benchmarks import machine, ridge_pairs, scaling
from benchmarks.requests import make_case, measure_case
from benchmarks.startup import measure_memory, measure_startup
from legonet_jax.runtime.environment import environment


def main() -> None:
  """Measures everything and writes the results."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--encodings", type=pathlib.Path, metavar="DIR")
  parser.add_argument("--encodings-100", type=pathlib.Path, metavar="DIR")
  parser.add_argument("--rounds", type=int, default=7)
  parser.add_argument("--batch-size", type=int, default=64, help="of sgd and torch")
  parser.add_argument(
    "--only",
    choices=("requests", "growth", "ridge"),
    help="this part, in a file of its own",
  )
  parser.add_argument("--quick", action="store_true", help="N = 5,000, 2 rounds")
  parser.add_argument(
    "--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results"
  )
  args = parser.parse_args()
  rounds = 2 if args.quick else args.rounds
  count = 5_000 if args.quick else 50_000
  import torch

  torch.set_num_threads(os.cpu_count() or 1)
  load = os.getloadavg()[0]  # above 0: others were at work here as well
  report: dict[str, Any] = {
    "environment": environment(),
    "torch": torch.__version__,
    "cores": os.cpu_count(),
    "load_average_before": load,
    "peaks": machine.peaks(),
    "requests": [],
  }
  print(json.dumps(report["peaks"]))
  sizes = (5_000, 10_000) if args.quick else (50_000, 200_000, 1_000_000)
  for classes in (10, 100) if args.only != "growth" else ():
    for n in (100, 1000):
      if classes == 100 and (args.quick or args.only == "requests"):
        continue
      folder = args.encodings
      if classes == 100:
        folder = args.encodings_100 or folder
      case = make_case(folder, count, classes, n)
      if args.only == "ridge":
        found = ridge_pairs.measure_pairs(case, rounds, 5 * rounds)
        report["requests"].append(found)
        ridge_pairs.show(found)
        continue
      report["requests"].append(
        measure_case(case, rounds, report["peaks"], args.batch_size)
      )
      _show(report["requests"][-1])
  if not args.only:
    report["streams"] = scaling.streams(
      make_case(args.encodings, count, 10, 1000), 100 if args.quick else 1000
    )
    print(json.dumps(report["streams"]))
  if args.only in (None, "growth"):
    report["growth"] = scaling.growth(sizes, rounds)
    print(json.dumps(report["growth"]))
  if not args.only:
    report["memory"] = measure_memory(args.encodings, count)
    report["startup"] = measure_startup(args.encodings, count)
    print(json.dumps({k: report[k] for k in ("memory", "startup")}))
  args.out.mkdir(parents=True, exist_ok=True)
  name = "_".join(["unlearn", *([args.only] if args.only else [])])
  name += f"_{args.batch_size}" if args.batch_size != 64 else ""
  path = args.out / f"{name}{'_quick' if args.quick else ''}.json"
  path.write_text(json.dumps(report, indent=2) + "\n")
  if "growth" in report:
    scaling.plot(report["growth"], path.with_suffix(".png"))
  print(path)


def _show(r: dict[str, Any]) -> None:
  """One line per contender."""
  print(f"N = {r['N']:,}, n = {r['n']}, C = {r['C']} ({r['data']}):")
  for name, t in r["seconds"].items():
    print(
      f"  {name:8} {t['median_ms']:9.1f} ms ({t['min_ms']:.1f} to {t['max_ms']:.1f})"
    )
  print(f"  faster than torch: {r['times_faster_than_torch']}")
  print(f"  fits: {r['fit_seconds']} {r.get('fit_times_faster_than_torch', '')}")
  print(f"  sgd: {r['sgd_gflops']:.0f} GFLOP/s, {r['sgd_gbps']:.1f} GB/s", flush=True)


if __name__ == "__main__":
  main()
