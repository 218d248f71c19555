"""Privacy measures and the rows that explain accuracy."""

from typing import Any

from experiments.reproduce.results import (
  Cell,
  Estimate,
  Results,
  estimate,
  same_settings,
)
from experiments.reproduce.tables import (
  SOLVERS,
  STRATEGIES,
  Entry,
  Table,
  data,
  method,
  provenance,
  solver,
)

CHANCE = 0.5


def privacy_cells(results: Results) -> list[Cell]:
  """Cells of kind privacy: exact unlearning first, controls last."""
  order = {name: at for at, name in enumerate(("retrain", "tune", "ngrad", "none"))}
  cells = [cell for cell in results.cells if cell.kind == "privacy"]
  return sorted(
    cells,
    key=lambda c: (
      order.get(str(c.settings.get("strategy")), 9),
      method(c.settings),
      str(c.settings.get("solver")),
      c.seed,
    ),
  )


def interval(cell: Cell, name: str, side: str = "ulira") -> str | None:
  """U-LiRA's "auc" or "tpr" as "0.501 [0.480, 0.522]"."""
  measured = cell.result.get(side, {})
  found = [measured.get(name + end) for end in ("", "_low", "_high")]
  if any(value is None for value in found):
    return None
  return "{:.3f} [{:.3f}, {:.3f}]".format(*found)


def privacy_table(results: Results) -> Table:
  """One row for each cell."""
  rows: list[tuple[Entry, ...]] = []
  cells = privacy_cells(results)
  for cell in cells:
    strategy = str(cell.settings.get("strategy"))
    row: list[Entry] = [
      method(cell.settings),
      solver(cell.settings),
      STRATEGIES.get(strategy, strategy),
      data(cell.settings),
      interval(cell, "auc"),
      interval(cell, "tpr"),
      interval(cell, "tpr", "ulira_null"),
    ]
    for name in ("mean", "median", "q95"):
      for side in ("klom", "null"):
        value = cell.result.get(side, {}).get(name)
        row.append(None if value is None else Estimate(value, digits=3))
    row += [cell.result.get("models"), cell.result.get("targets"), cell.seed]
    rows.append(tuple(row))
  klom = tuple(
    f"KLoM {name}{side}"
    for name in ("mean", "median", "95 % quantile")
    for side in ("", ", null")
  )
  return Table(
    "privacy",
    "Privacy after unlearning: U-LiRA and KLoM",
    "U-LiRA tells models that were trained on a sample and then unlearned it from "
    "models that never saw it. Chance is AUC 0.5; chance of the true positive rate at "
    "a false positive rate of 0.01 is its null, which tells never trained models from "
    "others; brackets are 95 % intervals. KLoM is the KL "
    "divergence of margins between unlearned and refitted models, per sample; "
    "its null compares refitted models with refitted models, and an exact method is "
    "at the null. " + provenance(results, cells),
    (
      "Method",
      "Solver",
      "Strategy",
      "Trained on",
      "U-LiRA AUC (chance 0.5)",
      "U-LiRA TPR at 1 % FPR",
      "U-LiRA TPR at 1 % FPR, null",
      *klom,
      "Models per side",
      "Samples",
      "Seed",
    ),
    tuple(rows),
  )


def explain_table(results: Results) -> Table:
  """Rows of the cells of kind explain, with the numbers averaged over seeds."""
  every = [cell for cell in results.cells if cell.kind == "explain"]
  solvers = dict.fromkeys(cell.settings.get("solver") for cell in every)
  cells = [
    cell
    for name in solvers
    for cell in same_settings([c for c in every if c.settings.get("solver") == name])
  ]
  rows = [(cell.seed, row) for cell in cells for row in cell.result.get("rows", [])]
  header = list(dict.fromkeys(name for _, row in rows for name in row))
  keys = [name for name in header if _is_key(name, [row for _, row in rows])]
  found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
  for _, row in rows:
    found.setdefault(tuple(row.get(name) for name in keys), []).append(row)
  out: list[tuple[Entry, ...]] = []
  for key in sorted(found, key=lambda key: tuple((str(type(v)), v) for v in key)):
    known = dict(zip(keys, key, strict=True))
    line: list[Entry] = []
    for name in header:
      if name in known:
        line.append(SOLVERS.get(known[name], known[name]))
      else:
        values = [r[name] for r in found[key] if r.get(name) is not None]
        whole = bool(values) and min(values) >= 1000
        line.append(estimate(values, digits=0 if whole else 2))
    out.append(tuple(line))
  return Table(
    "explain",
    "Why accuracy changes with n",
    "LegoNet on encodings. `single` is the mean test accuracy of one activated "
    "adapter, `test` that of all k together; accuracies in percent. ± is the 95 % "
    "t-interval over seeds. " + provenance(results, cells),
    tuple(header) or ("n", "k", "test"),
    tuple(out),
  )


def _is_key(name: str, rows: list[dict[str, Any]]) -> bool:
  """Settings, and whatever is not a number, tell rows apart."""
  return name in ("n", "k", "s", "penalty") or any(
    isinstance(row.get(name), (str, bool)) for row in rows
  )
