"""Cells in several processes, each on cores of its own.

XLA spreads a small model badly over cores: two processes with one core each do more
than one process with two. What is timed against the clock (`time`) runs alone, on all.
"""

from collections.abc import Callable, Sequence
import multiprocessing
import os
import pathlib
import signal
import time
from typing import Any

from experiments.reproduce.cells import Cell, Progress, is_done, run_cells

Build = Callable[[Any], list[Cell]]

# What a worker process was started with: a pool can hand over nothing else.
_cells: dict[str, Cell] = {}


def run_jobs(
  build: Build,
  args: Any,
  folder: pathlib.Path,
  cells: Sequence[Cell],
  command: str,
  say: Callable[[str], None],
  minutes: float | None,
  jobs: int,
) -> Progress:
  """As `run_cells`, in `jobs` processes.

  Args:
    build: makes the cells from `args`; a function at the top of a module.
    args: what `build` takes; it travels to the processes.
    folder, cells, command, say, minutes: as for `run_cells`.
    jobs: how many processes.
  """
  end = None if minutes is None else time.time() + 60 * minutes
  shared = [cell for cell in cells if cell.kind != "time"]
  alone = [cell for cell in cells if cell.kind == "time"]
  todo = [cell.name for cell in shared if not is_done(folder, cell)]
  found, ran = len(shared) - len(todo), 0
  if todo:
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    available = sorted(os.sched_getaffinity(0))
    for job in range(jobs):
      cores.put(set(available[job::jobs]) or set(available))
    # Leaving the block, by Ctrl-C as well, ends the processes.
    with context.Pool(jobs, _begin, (cores, build, args)) as pool:
      work = ((name, folder, command, end) for name in todo)
      for name, seconds in pool.imap_unordered(_work, work):
        if seconds is not None:
          ran += 1
          say(f"[{found + ran}/{len(cells)}] {name} {seconds:.0f} s")
  left = None if end is None else max(0.0, end - time.time()) / 60
  last = run_cells(folder, alone, command, say, left)
  missing = len(todo) - ran
  return Progress(found + last.found, ran + last.ran, missing + last.left)


def _begin(cores: Any, build: Build, args: Any) -> None:
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
  os.sched_setaffinity(0, cores.get())
  _cells.update({cell.name: cell for cell in build(args)})


def _work(
  task: tuple[str, pathlib.Path, str, float | None],
) -> tuple[str, float | None]:
  """Runs one cell; no seconds if the time was up."""
  name, folder, command, end = task
  if end is not None and time.time() > end:
    return name, None
  began = time.perf_counter()
  run_cells(folder, [_cells[name]], command, lambda line: None)
  return name, time.perf_counter() - began
