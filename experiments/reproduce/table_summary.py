"""What a reader wants first: what all numbers share, and the main ones."""

from collections.abc import Iterable
from typing import Any

from experiments.reproduce import labels
from experiments.reproduce.datasets import DATASETS
from experiments.reproduce.results import Measured, Results
from experiments.reproduce.statistics import Estimate
from experiments.reproduce.tables import Table, fill_words, list_rows, make_table


def list_cells(results: Results) -> list[Measured]:
  """Those that have a file of their own; `load` may show one of them in two ways."""
  return [cell for cell in results.cells if cell.seconds]


def introduce(results: Results) -> str:
  """What every number of the report shares, said once."""
  cells = list_cells(results)
  networks = {c.settings["encoder"] for c in cells if "encoder" in c.settings}
  machines = {cell.environment.get("processor", "an unknown machine") for cell in cells}
  commands = {f"`{cell.command}`" for cell in cells}
  return fill_words(
    labels.WORDS["introduction"]["text"],
    title=DATASETS[results.dataset].title,
    scale=results.scale,
    cells=len(cells),
    hours=sum(cell.seconds for cell in cells) / 3600,
    machine=labels.join_words(machines) or "no machine",
    command=labels.join_words(commands, ", ") or "no command",
    network=labels.join_words(networks) or "none",
  )


def tabulate_setup(results: Results) -> Table:
  """What was trained on what, with which seeds, on how many cores."""
  found: dict[tuple[str, str], list[Measured]] = {}
  for cell in list_cells(results):
    found.setdefault((cell.kind, labels.name_data(cell.settings)), []).append(cell)
  rows = []
  for (kind, data), cells in sorted(found.items()):
    methods = {labels.name_method({"method": c.settings["method"]}) for c in cells}
    cores = {c.environment.get("cores", labels.MISSING) for c in cells}
    row: dict[str, Any] = {"Kind of cell": kind, "Trained on": data}
    row |= {"Methods": labels.join_words(methods, ", "), "Cells": len(cells)}
    row["Seeds"] = labels.join_words((cell.seed for cell in cells), ", ")
    rows.append(row | {"Cores": labels.join_words(cores)})
  return make_table("setup", rows)


def tabulate_key_numbers(tables: Iterable[Table]) -> Table:
  """A few numbers out of the other tables: which of them, `words.toml` says."""
  by_name = {table.name: list_rows(table) for table in tables}
  rows = []
  for wanted in labels.WORDS["key_numbers"]:
    row: dict[str, Any] = {"Number": wanted["label"], "Paper": None}
    row |= {f"Ours, {solver}": None for solver in labels.SOLVERS.values()}
    for found in by_name.get(wanted["table"], ()):
      if wanted["where"].items() <= found.items():
        row["Paper"] = found.get(wanted.get("paper"))
        row[f"Ours, {found['Solver']}"] = found[wanted["ours"]]
    rows.append(row)
  return make_table("key_numbers", rows)


def tabulate_run(results: Results) -> list[Table]:
  """Environment and commands as the cells record them, then the list of cells."""
  cells = list_cells(results)
  times = sorted(cell.finished for cell in cells)
  facts: dict[str, set[Any]] = {
    "dataset": {results.dataset},
    "scale": {results.scale},
    "cells": {len(cells)},
    "seconds in all": {f"{sum(cell.seconds for cell in cells):,.1f}"},
    "first finished": {*times[:1]},
    "last finished": {*times[-1:]},
    "command": {cell.command for cell in cells},
    "code version": {cell.settings.get("version", "–") for cell in cells},
  }
  for cell in cells:
    for key, value in cell.environment.items():
      facts.setdefault(key, set()).add(value)
  run = [
    {"what": key, "value": labels.join_words(values) or labels.MISSING}
    for key, values in facts.items()
  ]
  listed = []
  for cell in cells:
    row = {"cell": cell.name, "kind": cell.kind, "seed": cell.seed}
    seconds = Estimate(cell.seconds, digits=1)
    listed.append({**row, "seconds": seconds, "finished": cell.finished})
  return [make_table("provenance", run), make_table("cells", listed)]
