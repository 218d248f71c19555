"""Cells in several processes, each on cores of its own.

XLA spreads a small model badly over cores: two processes with one core each do more
than one process with two. What is timed against the clock (`time`) runs alone, on all.
"""

from collections.abc import Callable, Sequence
import concurrent.futures
import concurrent.futures.process
import multiprocessing
import os
import pathlib
import signal
import threading
import time
from typing import Any

from experiments.reproduce.cells import Cell, Progress, is_done, run_cells
from legonet_jax import errors

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
    queue = context.Queue()
    for job in range(jobs):
      queue.put(job)
    pool = concurrent.futures.ProcessPoolExecutor(
      jobs, context, _begin, (queue, jobs, build, args)
    )
    with pool:
      work = [pool.submit(_work, name, folder, command, end) for name in todo]
      try:
        for done in concurrent.futures.as_completed(work):
          name, seconds = done.result()
          if seconds is not None:
            ran += 1
            say(f"[{found + ran}/{len(cells)}] {name} {seconds:.0f} s")
      except concurrent.futures.process.BrokenProcessPool:
        raise errors.RunError(
          "a process was killed, perhaps for want of memory; the same command, or one"
          " with fewer --jobs, goes on with the cells that are left"
        ) from None
      except BaseException:
        for process in multiprocessing.active_children():
          process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
  left = None if end is None else max(0.0, end - time.time()) / 60
  last = run_cells(folder, alone, command, say, left)
  missing = len(todo) - ran
  return Progress(found + last.found, ran + last.ran, missing + last.left)


def _begin(queue: Any, jobs: int, build: Build, args: Any) -> None:
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
  if hasattr(os, "sched_setaffinity"):
    mine = sorted(os.sched_getaffinity(0))[queue.get() :: jobs]
    if mine:
      os.sched_setaffinity(0, mine)
  threading.Thread(target=_follow, daemon=True).start()
  _cells.update({cell.name: cell for cell in build(args)})


def _follow() -> None:
  """Ends this process with its parent: a killed run must not go on in its children."""
  parent = multiprocessing.parent_process()
  if parent is not None:
    parent.join()
    os._exit(1)


def _work(
  name: str, folder: pathlib.Path, command: str, end: float | None
) -> tuple[str, float | None]:
  """Runs one cell; no seconds if the time was up."""
  if end is not None and time.time() > end:
    return name, None
  began = time.perf_counter()
  run_cells(folder, [_cells[name]], command, lambda line: None)
  return name, time.perf_counter() - began
