"""Table 2 and Figure 4: test accuracy against segmentation, n and k, paper and ours.

Our encoder is not the paper's, so levels are compared through a reference of our own:
one linear layer fitted on all encodings (LegoNet with n = k = 1).
"""

from typing import Any, NamedTuple

from experiments.reproduce import paper
from experiments.reproduce.results import (
  Cell,
  Results,
  difference,
  estimate,
  find,
  groups,
  pick,
)
from experiments.reproduce.tables import (
  METHODS,
  SOLVERS,
  Entry,
  Table,
  data,
  matching,
  provenance,
  solvers_of,
)


class Series(NamedTuple):
  """One line of Table 2: `settings(segmentation)` names its cells."""

  label: str
  printed: str
  source: str
  solver: str | None
  top_k: int | None

  def settings(self, segmentation: int) -> dict[str, Any]:
    """What `find` needs."""
    base: dict[str, Any] = {"source": self.source}
    if self.solver:
      base["solver"] = self.solver
    if self.top_k is None:
      return base | {"method": self.printed, "s": segmentation}
    return base | {"method": "lego", "n": segmentation * self.top_k, "k": self.top_k}


def series(results: Results) -> list[Series]:
  """The lines of Table 2; on images those that were measured, and SISA."""
  lines = [Series(METHODS["sisa"], "sisa", "images", None, None)]
  for source in ("encodings", "images"):
    lines += [
      Series(METHODS["fixsisa"], "fixsisa", source, name, None)
      for name in solvers_of(results, "accuracy", source=source, method="fixsisa")
    ]
    for k in (1, 10):
      lines += [
        Series(f"LegoNet k = {k}", f"lego{k}", source, name, k)
        for name in solvers_of(results, "accuracy", source=source, method="lego", k=k)
      ]
  return [
    line
    for line in lines
    if line.solver is None or line.source == "encodings" or _measured(results, line)
  ]


def _measured(results: Results, line: Series) -> bool:
  """Whether the line has a point."""
  return any(find(results, "accuracy", **line.settings(s)) for s in paper.SEGMENTATIONS)


def ablation(results: Results) -> list[Table]:
  """Table 2, and its differences to the reference."""
  rows: list[tuple[Entry, ...]] = []
  gaps: list[tuple[Entry, ...]] = []
  used: list[Cell] = []
  for line in series(results):
    cells = {
      s: find(results, "accuracy", **line.settings(s)) for s in paper.SEGMENTATIONS
    }
    reference = _reference(results, line.source, line.solver)
    used += [cell for group in cells.values() for cell in group.values()]
    head = (line.label, SOLVERS.get(line.solver or "", "–"), _data(cells, line.source))
    row, gap = list[Entry](head), list[Entry](head)
    for s, group in cells.items():
      test = pick(group, "test")
      row += [paper.table_2(results.dataset, line.printed, s), estimate(test)]
      gap.append(difference(test, pick(reference, "test")))
    seeds = max(map(len, cells.values())) or None
    rows.append((*row, seeds))
    if line.solver and (reference or line.source == "encodings"):
      gaps.append((*gap, seeds))
  for source, name in dict.fromkeys((s.source, s.solver) for s in series(results)):
    group = _reference(results, source, name)
    if group and name:
      used += group.values()
      level = estimate(pick(group, "test"))
      shown = (None, level) * len(paper.SEGMENTATIONS)
      head = (METHODS["linear"], SOLVERS[name], _data({0: group}, source))
      rows.append((*head, *shown, len(group)))
  columns = [f"s or n/k = {s}" for s in paper.SEGMENTATIONS]
  first = ("Method", "Solver", "Trained on")
  text = (
    "Test accuracy (TA) in percent. Segmentation is s for SISA and FixSISA, n/k for "
    "LegoNet. "
  )
  sisa = (
    "SISA trains whole networks, on images: compare it with rows on as many. Its "
    "epochs and rate are those chosen for s = 10, at every s. "
  )
  origin = provenance(results, used)
  return [
    Table(
      "ablation",
      "Table 2: ablation",
      text
      + sisa
      + "One linear layer on all encodings is the reference, the same for every "
      "segmentation. ± is the 95 % t-interval over seeds; Seeds is the most of a row, "
      "and a number without ± has one. " + origin,
      (
        *first,
        *(f"{c}, TA {who} %" for c in columns for who in ("paper", "ours")),
        "Seeds",
      ),
      tuple(rows),
    ),
    Table(
      "ablation_difference",
      "Table 2 through the reference: ours minus one linear layer",
      text + "Points above (+) or below (-) one linear layer fitted by the same solver "
      "on the same data, paired over seeds. " + origin,
      (*first, *(f"{c}, TA ours - linear" for c in columns), "Seeds"),
      tuple(gaps),
    ),
  ]


def _reference(results: Results, source: str, name: str | None) -> dict[int, Cell]:
  """One linear layer; none for a network trained end to end."""
  if name is None:
    return {}
  return find(results, "accuracy", source=source, method="linear", solver=name)


def _data(cells: dict[int, dict[int, Cell]], source: str) -> str:
  """What a line was trained on."""
  every = {data(cell.settings) for group in cells.values() for cell in group.values()}
  return "; ".join(sorted(every)) or source


def hyperparameters(results: Results) -> list[Table]:
  """Figure 4's three panels, and every (n, k) that was measured on encodings."""
  names = solvers_of(results, "accuracy", source="encodings", method="lego")
  rows: list[tuple[Entry, ...]] = []
  used: list[Cell] = []
  for panel, points in paper.PANELS.items():
    for n, k in points:
      row: list[Entry] = [panel, n, k, paper.lego(results.dataset, n, k)]
      seeds = 0
      for name in names:
        want = {"method": "lego", "source": "encodings", "solver": name, "n": n, "k": k}
        group = find(results, "accuracy", **want)
        used += group.values()
        seeds = max(seeds, len(group))
        row.append(estimate(pick(group, "test")))
      rows.append((*row, seeds or None))
  ours = tuple(f"TA ours, {SOLVERS[name]} %" for name in names)
  panels = Table(
    "hyperparameters",
    "Figure 4: n and k",
    "Test accuracy (TA) in percent of LegoNet with k, n or n/k fixed, on encodings. "
    "± is the 95 % t-interval over seeds. " + provenance(results, used),
    ("Fixed", "n", "k", "TA paper %", *ours, "Seeds"),
    tuple(rows),
  )
  return [panels, _grid(results)]


def _grid(results: Results) -> Table:
  """All LegoNets, with training accuracy and the sizes of D_aj."""
  cells = matching(results, "accuracy", method="lego", source="encodings")
  every = groups(cells)
  every.sort(key=lambda g: _place(next(iter(g.values())).settings))
  rows: list[tuple[Entry, ...]] = []
  for group in every:
    s = next(iter(group.values())).settings
    sizes = [
      estimate(pick(group, "balance", name), digits=0)
      for name in ("smallest", "median", "largest")
    ]
    rows.append(
      (
        SOLVERS.get(s["solver"], s["solver"]),
        s["n"],
        s["k"],
        paper.lego(results.dataset, s["n"], s["k"]),
        estimate(pick(group, "test")),
        estimate(pick(group, "train")),
        *sizes,
        estimate(pick(group, "fit_seconds")),
        len(group),
      )
    )
  sizes_of = ("Smallest D_a", "Median D_a", "Largest D_a")
  return Table(
    "grid",
    "Every n and k that was measured",
    "LegoNet on encodings: accuracy on D_test (TA) and on the training set, samples "
    "per adapter, and seconds for one fit. ± is the 95 % t-interval over seeds. "
    + provenance(results, cells),
    (
      "Solver",
      "n",
      "k",
      "TA paper %",
      "TA ours %",
      "Training accuracy %",
      *sizes_of,
      "Fit seconds",
      "Seeds",
    ),
    tuple(rows),
  )


def _place(settings: dict[str, Any]) -> tuple[str, int, int, str]:
  """Order of the grid."""
  return settings["solver"], settings["k"], settings["n"], data(settings)
