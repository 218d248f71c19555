"""Cells read back, grouped over seeds, and summed up with intervals.

For values v_1 ... v_m of m seeds the interval is mean ± t_{0.975, m-1} · sd / √m, the
95 % t-interval. Two groups are compared by the differences over the seeds that both
have (paired), because a seed fixes the samples that are forgotten; with fewer than two
common seeds by Welch's interval. One value has no interval.
"""

from collections.abc import Iterable, Mapping, Sequence
import json
import math
import pathlib
from typing import Any, NamedTuple

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from legonet_jax import errors

Values = Mapping[int, float]  # by seed
KINDS = ("accuracy", "tasks", "time", "privacy", "explain")


class Cell(NamedTuple):
  """One finished job, as its file says (see `cells`)."""

  name: str
  kind: str
  settings: dict[str, Any]
  result: dict[str, Any]
  command: str
  seed: int
  seconds: float
  finished: str
  environment: dict[str, Any]


class Results(NamedTuple):
  """All cells of one dataset at one scale, sorted by name."""

  dataset: str
  scale: str
  cells: tuple[Cell, ...]


class Estimate(NamedTuple):
  """A mean and half the width of its 95 % interval (None with one value).

  `number` of values, `digits` after the point when shown.
  """

  mean: float
  half: float | None = None
  number: int = 1
  digits: int = 2

  @property
  def low(self) -> float:
    """Lower end; minus infinity without an interval."""
    return -math.inf if self.half is None else self.mean - self.half

  @property
  def high(self) -> float:
    """Upper end; infinity without an interval."""
    return math.inf if self.half is None else self.mean + self.half


def load(folder: pathlib.Path, empty: Results | None = None) -> Results:
  """Reads folder/cells/*.json; refuses to mix datasets or scales.

  Args:
    folder: of one dataset and scale.
    empty: what to return without any cell; if not given, that is an error.
  """
  cells = tuple(_read(path) for path in sorted((folder / "cells").glob("*.json")))
  if not cells and empty is not None:
    return empty
  if not cells:
    raise errors.DataError(f"no cells in {folder / 'cells'}: run reproduce first")
  for name in ("dataset", "scale"):
    found = sorted({str(cell.settings[name]) for cell in cells})
    if len(found) > 1:
      raise errors.DataError(
        f"cells in {folder} have more than one {name} ({', '.join(found)}): keep one "
        f"folder for each"
      )
  first = cells[0].settings
  return Results(first["dataset"], first["scale"], (*cells, *_originals(cells)))


def _originals(cells: tuple[Cell, ...]) -> list[Cell]:
  """Accuracy of whole networks before they forgot: tasks cells have trained them."""

  def who(cell: Cell) -> tuple[Any, ...]:
    names = ("source", "method", "s", "seed")
    return tuple(cell.settings.get(name) for name in names)

  known = {who(cell) for cell in cells if cell.kind == "accuracy"}
  return [
    cell._replace(
      kind="accuracy",
      result={"test": cell.result["random100"]["before"]["test"]},
      seconds=0.0,
    )
    for cell in cells
    if cell.kind == "tasks"
    and cell.settings["method"] in ("rnc", "sisa")
    and who(cell) not in known
  ]


def _read(path: pathlib.Path) -> Cell:
  """One file."""
  try:
    raw = json.loads(path.read_text())
    cell = Cell(
      str(raw["cell"]),
      str(raw["kind"]),
      dict(raw["settings"]),
      dict(raw["result"]),
      str(raw["command"]),
      int(raw["seed"]),
      float(raw["seconds"]),
      str(raw["finished"]),
      dict(raw["environment"]),
    )
    missing = {"dataset", "scale", "method", "N", "source"} - set(cell.settings)
  except (OSError, ValueError, TypeError, KeyError) as e:
    raise errors.DataError(f"cannot read cell {path}: {e!r}; delete it") from e
  if missing or cell.kind not in KINDS:
    wrong = f"kind {cell.kind!r}" if not missing else f"no {', '.join(sorted(missing))}"
    raise errors.DataError(f"cell {path} has {wrong}; delete it and run it again")
  return cell


def group_key(cell: Cell) -> str:
  """Kind and settings without the seed, as sorted JSON."""
  settings = {k: v for k, v in cell.settings.items() if k != "seed"}
  return json.dumps([cell.kind, settings], sort_keys=True)


def groups(cells: Iterable[Cell]) -> list[dict[int, Cell]]:
  """Cells that differ in nothing but the seed, by seed."""
  found: dict[str, dict[int, Cell]] = {}
  for cell in cells:
    group = found.setdefault(group_key(cell), {})
    if cell.seed in group:
      raise errors.DataError(
        f"cells {group[cell.seed].name} and {cell.name} have the same settings and "
        f"seed: delete one"
      )
    group[cell.seed] = cell
  return [found[key] for key in sorted(found)]


def same_settings(cells: Sequence[Cell]) -> list[Cell]:
  """The cells, or DataError if they differ in more than the seed."""
  found = groups(cells)
  if len(found) > 1:
    names = ", ".join(next(iter(group.values())).name for group in found)
    raise errors.DataError(
      f"cells {names} differ in more than the seed: keep one of these settings"
    )
  return list(cells)


def find(results: Results, kind: str, **settings: Any) -> dict[int, Cell]:
  """The one group with these settings, by seed; empty if there is none."""
  matching = [
    cell
    for cell in results.cells
    if cell.kind == kind and settings.items() <= _hashable(cell.settings).items()
  ]
  return {cell.seed: cell for cell in same_settings(matching)}


def _hashable(settings: dict[str, Any]) -> dict[str, Any]:
  """Settings that `find` can compare."""
  return {k: v for k, v in settings.items() if not isinstance(v, (list, dict))}


def pick(group: Mapping[int, Cell], *path: str) -> dict[int, float]:
  """The number at result[path[0]][path[1]] ... of each seed that has it."""
  picked = {}
  for seed, cell in group.items():
    at: Any = cell.result
    for name in path:
      at = at.get(name) if isinstance(at, dict) else None
    if isinstance(at, (int, float)) and math.isfinite(at):
      picked[seed] = float(at)
  return picked


def estimate(values: Values | Sequence[float], digits: int = 2) -> Estimate | None:
  """Mean and 95 % t-interval; None without values."""
  v = np.array(list(values.values() if isinstance(values, Mapping) else values), float)
  if v.size == 0:
    return None
  half = None
  if v.size > 1:
    error = float(v.std(ddof=1)) / math.sqrt(v.size)
    half = float(stats.t.ppf(0.975, v.size - 1)) * error
  return Estimate(float(v.mean()), half, v.size, digits)


def significant(values: Sequence[float]) -> Estimate | None:
  """`estimate`, shown with three significant digits of the mean."""
  found = estimate(values)
  if found is None or found.mean == 0:
    return found
  size = math.floor(math.log10(abs(found.mean)))
  return found._replace(digits=min(max(2 - size, 0), 9))


def difference(a: Values, b: Values, digits: int = 2) -> Estimate | None:
  """a - b: paired over common seeds if there are two, else Welch's interval."""
  common = sorted(set(a) & set(b))
  if len(common) > 1 or (len(common) == 1 and len(a) == len(b) == 1):
    return estimate([a[seed] - b[seed] for seed in common], digits)
  return welch(list(a.values()), list(b.values()), digits)


def welch(a: Sequence[float], b: Sequence[float], digits: int = 2) -> Estimate | None:
  """mean(a) - mean(b) of independent values of unequal variance."""
  if not a or not b:
    return None
  mean, count = float(np.mean(a) - np.mean(b)), min(len(a), len(b))
  if count < 2:
    return Estimate(mean, None, count, digits)
  va, vb = (float(np.var(v, ddof=1)) / len(v) for v in (a, b))
  if va + vb == 0:
    return Estimate(mean, 0.0, count, digits)
  dof = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
  half = float(stats.t.ppf(0.975, dof)) * math.sqrt(va + vb)
  return Estimate(mean, half, count, digits)
