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
from experiments.reproduce.inputs import CLASSES
from experiments.reproduce.jobs import run_jobs
from experiments.reproduce.results import Results
from experiments.reproduce.scales import SCALES
from experiments.reproduce.show import show
from experiments.reproduce.suites import ABOUT, build
from legonet_jax import errors
from legonet_jax.cli import console

LEFT = 3  # exit code: the time was up before the cells were


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog="python -m experiments.reproduce",
    description=__doc__.splitlines()[0],
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="suites:\n"
    + "\n".join(f"  {name:16} {about}" for name, about in ABOUT.items())
    + "\n\nexit code: 0 all cells are there, 2 bad input, 3 --minutes were up first",
  )
  add = parser.add_argument
  add("suite", choices=ABOUT)
  add("--scale", choices=SCALES, default="smoke", help="default: smoke, one minute")
  add("--dataset", choices=CLASSES, default="cifar10")
  add(
    "--encodings",
    type=pathlib.Path,
    metavar="DIR",
    help="made by `legonet encode`, or {train,test}_{encodings,labels}.npy",
  )
  add(
    "--images",
    type=pathlib.Path,
    metavar="DIR",
    help="folder of the dataset's own files; downloaded if not given",
  )
  add(
    "--weights",
    type=pathlib.Path,
    metavar="FILE",
    help="pretrained .safetensors or .pth; torchvision's, downloaded, if not given",
  )
  add(
    "--out",
    type=pathlib.Path,
    default=common.RESULTS / "reproduce",
    metavar="DIR",
    help="for results (default: experiments/results/reproduce)",
  )
  add("--only", metavar="REGEX", help="only cells whose name this matches")
  add("--minutes", type=float, metavar="M", help="begin no cell after this time")
  add(
    "--jobs", type=int, default=1, metavar="J", help="processes, on cores of their own"
  )
  add("--list", action="store_true", help="name the cells and whether they are done")
  return parser


def main(argv: list[str] | None = None) -> int:
  """Runs the command; returns its exit code."""
  args = _parser().parse_args(argv)
  try:
    return _run(args)
  except (errors.LegoError, OSError) as e:
    print(f"error: {e}", file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    print("stopped; the same command goes on with the next cell", file=sys.stderr)
    return 130


def _command(args: argparse.Namespace) -> str:
  """The command that makes a cell anew, on a machine with folders of its own."""
  words = ["python -m experiments.reproduce", args.suite, "--scale", args.scale]
  words += ["--dataset", args.dataset]
  for name in ("encodings", "images", "weights"):
    path = getattr(args, name)
    words += [] if path is None else [f"--{name}", path.name]
  return " ".join(words)


def _run(args: argparse.Namespace) -> int:
  folder = args.out / f"{args.dataset}_{args.scale}"
  if args.jobs < 1:
    raise errors.ConfigError(f"--jobs is {args.jobs}; it must be at least 1")
  cells = build(args)
  if args.only is not None:
    try:
      wanted = re.compile(args.only)
    except re.error as e:
      raise errors.ConfigError(
        f"--only {args.only!r} is no regular expression: {e}"
      ) from None
    cells = [cell for cell in cells if wanted.search(cell.name)]
  if args.list:
    for cell in cells:
      print("done" if is_done(folder, cell) else "    ", cell.name)
    return 0
  say, command = console.sayer(False), _command(args)
  if args.jobs == 1:
    done = run_cells(folder, cells, command, say, args.minutes)
  else:
    done = run_jobs(build, args, folder, cells, command, say, args.minutes, args.jobs)
  print(f"{done.found} cells found, {done.ran} run, {done.left} left")
  if not done.left or done.found + done.ran:
    show(folder, folder, Results(args.dataset, args.scale, ()))
    print(folder / "report.html")
  return LEFT if done.left else 0


if __name__ == "__main__":
  sys.exit(main())
