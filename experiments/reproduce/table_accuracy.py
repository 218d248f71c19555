"""Table 2 and Figure 4: test accuracy against segmentation, n and k, paper and ours.

Our encoder is not the paper's, so levels are compared through a reference of our own:
one linear layer fitted on all encodings (LegoNet with n = k = 1).
"""

from typing import Any

from experiments.reproduce import labels, paper
from experiments.reproduce.datasets import SOURCES
from experiments.reproduce.results import Group, Results
from experiments.reproduce.statistics import difference, estimate
from experiments.reproduce.tables import Row, Table, make_table

_LEGO = {"method": "lego", "source": "encodings"}


def tabulate_ablation(results: Results) -> list[Table]:
  """Table 2, and its differences to the reference."""
  rows, gaps = [], []
  for shared, points in _list_lines(results):
    cells = [cell for group in points.values() for cell in group.cells]
    trained_on = labels.join_words(labels.name_data(cell.settings) for cell in cells)
    head = {**labels.name_head(shared), "Trained on": trained_on}
    reference = Group(())
    if "solver" in shared:
      same = {name: shared[name] for name in ("source", "solver")}
      reference = results.find("accuracy", method="linear", **same)
    printed = shared["method"] + str(shared.get("k", ""))
    row, gap = dict[str, Any](head), dict[str, Any](head)
    for s, group in points.items():
      at = f"s or n/k = {s}"
      row[f"{at}, TA paper %"] = paper.table_2(results.dataset, printed, s)
      row[f"{at}, TA ours %"] = group.mean("test")
      delta = difference(group.pick("test"), reference.pick("test"))
      gap[f"{at}, TA ours - linear"] = delta
    seeds = {"Seeds": max(len(group.cells) for group in points.values())}
    rows.append(row | seeds)
    if reference.cells and shared["method"] != "linear":
      gaps.append(gap | seeds)
  return [make_table("ablation", rows), make_table("ablation_difference", gaps)]


def _list_lines(results: Results) -> list[tuple[dict[str, Any], dict[int, Group]]]:
  """What the cells of a line share, and its groups at the paper's segmentations.

  Of LegoNet there are lines with k = 1 and k = 10.
  """
  found: dict[tuple[Any, ...], tuple[dict[str, Any], dict[int, Group]]] = {}
  for cell in results.select("accuracy"):
    names = ("source", "method", "solver", "k")
    shared = {name: cell.settings[name] for name in names if name in cell.settings}
    key = (SOURCES.index(shared["source"]), *labels.rank_method(shared))
    k = shared.get("k")
    if key in found or k not in (None, 1, 10):
      continue
    points = {}
    for s in paper.SEGMENTATIONS:
      size = {"n": s * k} if k else {"s": s} if "s" in cell.settings else {}
      points[s] = results.find("accuracy", **shared, **size)
    if any(group.cells for group in points.values()):
      found[key] = shared, points
  return [found[key] for key in sorted(found)]


def tabulate_panels(results: Results) -> Table:
  """Figure 4's three panels."""
  rows: list[Row] = []
  for panel, points in paper.PANELS.items():
    for n, k in points:
      printed = paper.lego(results.dataset, n, k)
      row: dict[str, Any] = {"Fixed": panel, "n": n, "k": k, "TA paper %": printed}
      seeds = 0
      for solver, label in labels.SOLVERS.items():
        group = results.find("accuracy", **_LEGO, solver=solver, n=n, k=k)
        row[f"TA ours, {label} %"] = group.mean("test")
        seeds = max(seeds, len(group.cells))
      rows.append(row | {"Seeds": seeds or None})
  return make_table("hyperparameters", rows)


def tabulate_grid(results: Results) -> Table:
  """Every LegoNet that was measured on encodings."""
  groups = results.groups("accuracy", **_LEGO)
  groups.sort(key=lambda g: [g.settings[name] for name in ("solver", "k", "n")])
  rows = []
  for group in groups:
    n, k = group.settings["n"], group.settings["k"]
    row: dict[str, Any] = {
      "Solver": labels.name_solver(group.settings),
      "n": n,
      "k": k,
      "TA paper %": paper.lego(results.dataset, n, k),
      "TA ours %": group.mean("test"),
      "Training accuracy %": group.mean("train"),
    }
    for name in ("smallest", "median", "largest"):
      row[f"{name.capitalize()} D_a"] = group.mean("balance", name, digits=0)
    row["Fit seconds"] = group.mean("fit_seconds")
    rows.append(row | {"Seeds": len(group.cells)})
  return make_table("grid", rows)


def tabulate_explain(results: Results) -> Table:
  """Rows of the cells of kind explain, with the numbers averaged over seeds."""
  found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
  solvers = {cell.settings.get("solver") for cell in results.select("explain")}
  for solver in solvers:
    for cell in results.find("explain", solver=solver).cells:
      for row in cell.result.get("rows", []):
        key = row["n"], row["k"], row["solver"], row["penalty"] or 0.0
        found.setdefault(key, []).append(row)
  rows = []
  for key in sorted(found):
    n, k, solver, penalty = key
    row = {"n": n, "k": k, "solver": labels.name_solver({"solver": solver})}
    row["penalty"] = penalty or None
    for name in ("train_size", "test", "single"):
      values = [one[name] for one in found[key]]
      row[name] = estimate(values, digits=0 if min(values) >= 1000 else 2)
    rows.append(row)
  return make_table("explain", rows)
