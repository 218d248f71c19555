"""A cell: one small job with one result file, so that a killed run loses one cell.

    results/reproduce/DATASET_SCALE/cells/NAME.json

A cell's identity is a hash of its kind and of all its settings: data, sizes, seed, what
each strategy trains with, and the version of the code. A cell is done when its file has
the same identity. Files are written whole or not at all; whatever was being computed is
computed again.
"""

from collections.abc import Callable, Sequence
import datetime
import json
import os
import pathlib
import time
from typing import Any, NamedTuple

import legonet_jax as lego
from legonet_jax.io import files, hashing

# Raise it when the code of a kind of cell computes something else than before: then
# all cells are run again. A method has a version of its own (see `methods`).
VERSION = 1

# The folder where processes that share the cells say which of them they have begun.
CLAIMS = "claims"
CellSettings = dict[str, Any]
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
  settings: CellSettings
  run: Callable[[], Result]


class Tally(NamedTuple):
  """How far a list of cells is: those done before, those run now, those left."""

  found: int
  ran: int
  left: int


def identify(kind: str, settings: CellSettings) -> str:
  """The identity of a cell: a hash of everything that its result depends on."""
  return hashing.sha256_of_json([kind, settings])


def is_done(folder: pathlib.Path, cell: Cell) -> bool:
  """Whether the result of the same identity is there."""
  try:
    saved = json.loads((folder / "cells" / f"{cell.name}.json").read_text())
    return bool(saved["identity"] == identify(cell.kind, cell.settings))
  except (OSError, ValueError, TypeError, KeyError):
    return False


def run_cells(
  folder: pathlib.Path,
  cells: Sequence[Cell],
  command: str,
  minutes: float | None = None,
  shared: bool = False,
) -> Tally:
  """Runs the cells whose result is not there yet, in order.

  Args:
    folder: of one dataset and scale.
    cells: what is wanted.
    command: recorded in every result.
    minutes: no cell is begun after this time.
    shared: other processes run the same cells; each is run by who claims it first.
  """
  began, ran = time.monotonic(), 0
  todo = [cell for cell in cells if not is_done(folder, cell)]
  for number, cell in enumerate(todo, 1 + len(cells) - len(todo)):
    if minutes is not None and time.monotonic() - began > 60 * minutes:
      break
    if shared:
      (folder / CLAIMS).mkdir(parents=True, exist_ok=True)
      try:
        (folder / CLAIMS / cell.name).touch(exist_ok=False)
      except FileExistsError:
        continue
    print(f"[{number}/{len(cells)}] {cell.name}", flush=True)
    start = time.perf_counter()
    result = cell.run()
    _save(folder, cell, result, command, time.perf_counter() - start)
    ran += 1
  return Tally(len(cells) - len(todo), ran, len(todo) - ran)


def _save(
  folder: pathlib.Path, cell: Cell, result: Result, command: str, seconds: float
) -> None:
  affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
  cores = len(affinity(0)) if affinity else os.cpu_count()
  whole = {
    "name": cell.name,
    "kind": cell.kind,
    "identity": identify(cell.kind, cell.settings),
    "settings": cell.settings,
    "result": result,
    "command": command,
    "seconds": round(seconds, 3),
    "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    "environment": {**lego.environment(), "cores": cores},
  }
  path = folder / "cells" / f"{cell.name}.json"
  path.parent.mkdir(parents=True, exist_ok=True)
  files.write(path, (json.dumps(whole, indent=1, allow_nan=False) + "\n").encode())
