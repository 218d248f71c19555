"""Cells in several processes, each on cores of its own.

XLA spreads a small model badly over cores: two processes with one core each do more
than one process with two. What is timed against the clock (`time`) runs alone, on all.
"""

from collections.abc import Sequence
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

from experiments.reproduce.cells import CLAIMS, Cell, Tally, is_done, run_cells
from legonet_jax import errors


def run_jobs(
  folder: pathlib.Path,
  cells: Sequence[Cell],
  command: str,
  minutes: float | None,
  argv: Sequence[str],
  jobs: int,
) -> Tally:
  """As `run_cells`, in `jobs` processes that get the command line `argv`, too."""
  began = time.monotonic()
  found = sum(is_done(folder, cell) for cell in cells)
  if any(cell.kind != "time" and not is_done(folder, cell) for cell in cells):
    shutil.rmtree(folder / CLAIMS, ignore_errors=True)
    line = [sys.executable, "-m", "experiments.reproduce", *argv, "--worker"]
    workers = [
      subprocess.Popen([*line, f"{job}/{jobs}"], stdin=subprocess.PIPE)
      for job in range(jobs)
    ]
    try:
      codes = [worker.wait() for worker in workers]
    finally:
      for worker in workers:
        worker.terminate()
        worker.wait()
      shutil.rmtree(folder / CLAIMS, ignore_errors=True)
    if any(codes):
      raise errors.RunError(
        "a process failed, or was killed, perhaps for want of memory; the same command,"
        " or one with fewer --jobs, goes on with the cells that are left"
      )
  if minutes is not None:
    minutes -= (time.monotonic() - began) / 60
  run_cells(folder, [cell for cell in cells if cell.kind == "time"], command, minutes)
  done = sum(is_done(folder, cell) for cell in cells)
  return Tally(found, done - found, len(cells) - done)


def begin_worker(share: str) -> None:
  """Makes this process number I of J (`share` is "I/J"): its cores, and its end."""
  job, jobs = map(int, share.split("/"))
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
  if hasattr(os, "sched_setaffinity"):
    mine = sorted(os.sched_getaffinity(0))[job::jobs]
    if mine:
      os.sched_setaffinity(0, mine)
  threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
  """Ends this process with its parent: a killed run must not go on in its children."""
  os.read(0, 1)  # returns when the parent's end of the pipe is closed
  os._exit(1)
