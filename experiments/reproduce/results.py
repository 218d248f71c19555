"""Cells read back, and found again by their settings, grouped over seeds."""

import itertools
import json
import math
import pathlib
from typing import Any, NamedTuple

from experiments.reproduce.cells import identify
from experiments.reproduce.statistics import Estimate, estimate
from legonet_jax import errors


class Measured(NamedTuple):
  """A cell that is done, as its file says (see `cells`)."""

  name: str
  kind: str
  identity: str
  settings: dict[str, Any]
  result: dict[str, Any]
  command: str
  seconds: float
  finished: str
  environment: dict[str, Any]

  @property
  def seed(self) -> int:
    """Its seed."""
    return int(self.settings["seed"])


class Group(NamedTuple):
  """Cells that differ in nothing but the seed."""

  cells: tuple[Measured, ...] = ()

  @property
  def settings(self) -> dict[str, Any]:
    """Those of the first seed."""
    return self.cells[0].settings if self.cells else {}

  def pick(self, *path: str) -> dict[int, float]:
    """The number at result[path[0]][path[1]] ... of each seed that has it."""
    picked = {}
    for cell in self.cells:
      at: Any = cell.result
      for name in path:
        at = at.get(name) if isinstance(at, dict) else None
      if isinstance(at, (int, float)) and math.isfinite(at):
        picked[cell.seed] = float(at)
    return picked

  def mean(self, *path: str, digits: int | None = 2) -> Estimate | None:
    """The mean over seeds of the numbers at this path, with its interval."""
    return estimate(self.pick(*path), digits)


class Results(NamedTuple):
  """All cells of one dataset at one scale, sorted by name."""

  dataset: str
  scale: str
  cells: tuple[Measured, ...]

  def select(self, kind: str, **settings: Any) -> list[Measured]:
    """Cells of this kind with these settings, whatever else they have."""
    wanted = settings.items()
    return [
      cell
      for cell in self.cells
      if cell.kind == kind and all(cell.settings.get(k) == v for k, v in wanted)
    ]

  def groups(self, kind: str, **settings: Any) -> list[Group]:
    """The same cells, those that differ in nothing but the seed together."""

    def key(cell: Measured) -> str:
      return json.dumps({**cell.settings, "seed": 0}, sort_keys=True)

    cells = sorted(self.select(kind, **settings), key=key)
    return [Group(tuple(part)) for _, part in itertools.groupby(cells, key)]

  def find(self, kind: str, **settings: Any) -> Group:
    """The one group with these settings; empty if there is none."""
    found = self.groups(kind, **settings)
    if len(found) > 1:
      names = ", ".join(group.cells[0].name for group in found)
      raise errors.DataError(
        f"cells {names} differ in more than the seed: keep one of these settings"
      )
    return found[0] if found else Group()


def load(folder: pathlib.Path, empty: Results | None = None) -> Results:
  """Reads folder/cells/*.json; refuses to mix datasets or scales.

  Without any cell it returns `empty`; if that is not given, it is an error.
  """
  cells = [_read(path) for path in sorted((folder / "cells").glob("*.json"))]
  if not cells and empty is not None:
    return empty
  if not cells:
    raise errors.DataError(f"no cells in {folder / 'cells'}: run reproduce first")
  first, known = cells[0].settings, dict[str, Measured]()
  for cell in cells:
    for name in ("dataset", "scale"):
      both = first[name], cell.settings[name]
      if both[0] != both[1]:
        raise errors.DataError(
          f"cells in {folder} have more than one {name} ({', '.join(both)}): keep one "
          "folder for each"
        )
    same = known.setdefault(cell.identity, cell)
    if same is not cell:
      raise errors.DataError(
        f"cells {same.name} and {cell.name} have the same settings: delete one"
      )
  return Results(first["dataset"], first["scale"], (*cells, *_find_originals(cells)))


def _find_originals(cells: list[Measured]) -> list[Measured]:
  """Accuracy of SISA before it forgot: its tasks cells have trained it."""

  def who(cell: Measured) -> tuple[Any, ...]:
    return tuple(cell.settings.get(name) for name in ("source", "method", "s", "seed"))

  known = {who(cell) for cell in cells if cell.kind == "accuracy"}
  found = []
  for cell in cells:
    sisa = cell.kind == "tasks" and cell.settings["method"] == "sisa"
    if sisa and who(cell) not in known:
      test = {"test": cell.result["random100"]["before"]["test"]}
      found.append(cell._replace(kind="accuracy", result=test, seconds=0.0))
  return found


def _read(path: pathlib.Path) -> Measured:
  """One file, whose identity must be that of its settings."""
  try:
    cell = Measured(**json.loads(path.read_text()))
    same = cell.identity == identify(cell.kind, cell.settings)
  except (OSError, ValueError, TypeError) as e:
    raise errors.DataError(f"cannot read cell {path}: {e!r}; delete it") from e
  if not same:
    raise errors.DataError(
      f"cell {path} has an identity that is not of its settings; delete it"
    )
  return cell
