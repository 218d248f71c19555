"""A cell: one small job with one result file, so that a killed run loses one cell.

    results/reproduce/DATASET_SCALE/cells/NAME.json

A cell is done when its file is there and says the same settings. Files are written
whole or not at all; whatever was being computed is computed again.
"""

from collections.abc import Callable, Sequence
import datetime
import json
import os
import pathlib
import time
from typing import Any, NamedTuple

from legonet_jax import digests, files

Result = dict[str, Any]


class Cell(NamedTuple):
  """A job.

  Attributes:
    name: of the result file, without suffix.
    kind: which form the result has: accuracy, tasks, time, privacy or explain.
    settings: all that decides the result, as plain JSON values.
    run: computes the result.
  """

  name: str
  kind: str
  settings: dict[str, Any]
  run: Callable[[], Result]


class Progress(NamedTuple):
  """How far a list of cells is: those done before, those run now, those left."""

  found: int
  ran: int
  left: int


def is_done(folder: pathlib.Path, cell: Cell) -> bool:
  """Whether the result is there, with these settings."""
  try:
    saved = json.loads(_path(folder, cell).read_text())
  except (OSError, ValueError):
    return False
  if not isinstance(saved, dict):
    return False
  return bool(saved.get("kind") == cell.kind and saved.get("settings") == cell.settings)


def run_cells(
  folder: pathlib.Path,
  cells: Sequence[Cell],
  command: str,
  say: Callable[[str], None],
  minutes: float | None = None,
) -> Progress:
  """Runs the cells whose result is not there yet, in order.

  Args:
    folder: of one dataset and scale.
    cells: what is wanted.
    command: recorded in every result.
    say: prints a line.
    minutes: no cell is begun after this time.
  """
  began = time.monotonic()
  todo = [cell for cell in cells if not is_done(folder, cell)]
  found = len(cells) - len(todo)
  for number, cell in enumerate(todo):
    if minutes is not None and time.monotonic() - began > 60 * minutes:
      return Progress(found, number, len(todo) - number)
    say(f"[{found + number + 1}/{len(cells)}] {cell.name}")
    start = time.perf_counter()
    result = cell.run()
    _save(folder, cell, result, command, time.perf_counter() - start)
  return Progress(found, len(todo), 0)


def machine() -> dict[str, Any]:
  """The environment and the processor that a result was measured on."""
  found = digests.environment()
  return {**found, "cores": cores(), "cpu": found["processor"]}


def cores() -> int:
  """How many cores this process may use."""
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _save(
  folder: pathlib.Path, cell: Cell, result: Result, command: str, seconds: float
) -> None:
  now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
  whole = {
    "cell": cell.name,
    "kind": cell.kind,
    "settings": cell.settings,
    "result": result,
    "command": command,
    "seed": cell.settings["seed"],
    "seconds": round(seconds, 3),
    "finished": now.isoformat(),
    "environment": machine(),
  }
  path = _path(folder, cell)
  path.parent.mkdir(parents=True, exist_ok=True)
  files.write(path, (json.dumps(whole, indent=1, allow_nan=False) + "\n").encode())


def _path(folder: pathlib.Path, cell: Cell) -> pathlib.Path:
  return folder / "cells" / f"{cell.name}.json"
