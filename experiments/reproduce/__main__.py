"""Reproduces the paper's tables and figures, cell by cell.

    python -m experiments.reproduce all --scale cpu --encodings DIR --images DIR

Every cell is one result file; a killed run goes on where it stopped. At the end tables
(Markdown, CSV), figures (SVG, PNG) and one HTML report are written beside the cells.
"""

import argparse
import pathlib
import re
import sys

from experiments import common
from experiments.reproduce.cells import is_done, run_cells
from experiments.reproduce.datasets import DATASETS, Bench
from experiments.reproduce.jobs import begin_worker, run_jobs
from experiments.reproduce.labels import WORDS
from experiments.reproduce.plan import make_cells
from experiments.reproduce.report import show
from experiments.reproduce.results import Results
from experiments.reproduce.scales import SCALES
from legonet_jax import errors
from legonet_jax.runtime import compile_cache

LEFT = 3  # exit code: the time was up before the cells were
_FOLDERS = {
  "encodings": "made by `legonet encode`, or {train,test}_{encodings,labels}.npy",
  "images": "folder of the dataset's own files; downloaded if not given",
  "weights": "pretrained .safetensors or .pth file; torchvision's if not given",
}


def _make_parser() -> argparse.ArgumentParser:
  suites = WORDS["suites"]
  about = "\n".join(f"  {name:16} {suite['about']}" for name, suite in suites.items())
  parser = argparse.ArgumentParser(
    prog="python -m experiments.reproduce",
    description=__doc__.splitlines()[0],
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog=f"suites:\n{about}\n\n"
    "exit code: 0 all cells are there, 2 bad input, 3 --minutes were up first",
  )
  add = parser.add_argument
  add("suite", choices=suites)
  add("--scale", choices=SCALES, default="smoke", help="default: smoke, one minute")
  add("--dataset", choices=DATASETS, default="cifar10")
  for name, words in _FOLDERS.items():
    add(f"--{name}", type=pathlib.Path, metavar="PATH", help=words)
  results = common.RESULTS / "reproduce"
  words = "for results (default: experiments/results/reproduce)"
  add("--out", type=pathlib.Path, default=results, metavar="DIR", help=words)
  add("--only", metavar="REGEX", help="only cells whose name this matches")
  add("--minutes", type=float, metavar="M", help="begin no cell after this time")
  add(
    "--jobs", type=int, default=1, metavar="J", help="processes, on cores of their own"
  )
  add("--list", action="store_true", help="name the cells and whether they are done")
  add("--worker", metavar="I/J", help=argparse.SUPPRESS)  # one of the --jobs
  return parser


def main(argv: list[str] | None = None) -> int:
  """Runs the command; returns its exit code."""
  argv = sys.argv[1:] if argv is None else argv
  args = _make_parser().parse_args(argv)
  try:
    return _run(args, argv)
  except (errors.LegoError, OSError) as e:
    print(f"error: {e}", file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    print("stopped; the same command goes on with the next cell", file=sys.stderr)
    return 130


def _write_command(args: argparse.Namespace) -> str:
  """The command that makes a cell anew, on a machine with folders of its own."""
  words = ["python -m experiments.reproduce", args.suite, "--scale", args.scale]
  words += ["--dataset", args.dataset]
  given = {name: path for name in _FOLDERS if (path := getattr(args, name))}
  return " ".join(words + [f"--{name} {path.name}" for name, path in given.items()])


def _run(args: argparse.Namespace, argv: list[str]) -> int:
  folder = args.out / f"{args.dataset}_{args.scale}"
  if args.worker:
    begin_worker(args.worker)
  if args.jobs < 1:
    raise errors.ConfigError(f"--jobs is {args.jobs}; it must be at least 1")
  try:
    wanted = re.compile(args.only or "")
  except re.error as e:
    words = f"--only {args.only!r} is no regular expression: {e}"
    raise errors.ConfigError(words) from None
  compile_cache.use_compile_cache()
  folders = args.encodings, args.images, args.weights
  bench = Bench(SCALES[args.scale], args.dataset, *folders)
  cells = [c for c in make_cells(args.suite, bench) if wanted.search(c.name)]
  if args.list:
    for cell in cells:
      print("done" if is_done(folder, cell) else "    ", cell.name)
    return 0
  command = _write_command(args)
  if args.worker:
    cells = [cell for cell in cells if cell.kind != "time"]
    run_cells(folder, cells, command, args.minutes, shared=True)
    return 0
  if args.jobs == 1:
    done = run_cells(folder, cells, command, args.minutes)
  else:
    done = run_jobs(folder, cells, command, args.minutes, argv, args.jobs)
  print(f"{done.found} cells found, {done.ran} run, {done.left} left")
  if not done.left or done.found + done.ran:
    show(folder, folder, Results(args.dataset, args.scale, ()))
    print(folder / "report.html")
  return LEFT if done.left else 0


if __name__ == "__main__":
  sys.exit(main())
