"""Table 1: accuracy before and after unlearning, paper and ours.

RA, FA, TA are the accuracies on D_retain, D_unlearn (forgotten) and D_test. MIA is the
share of D_unlearn that the attack calls non-members; ToW = Π (1 - |acc - acc_refit|)
over the three sets; both are to be read against a model fitted on D_retain only.
"""

from collections.abc import Mapping
from typing import Any

from experiments.reproduce import paper
from experiments.reproduce.results import (
  Cell,
  Results,
  estimate,
  find,
  pick,
  significant,
)
from experiments.reproduce.tables import (
  STRATEGIES,
  Entry,
  Table,
  matching,
  method,
  provenance,
  solver,
  solvers_of,
)

TASKS = {"random100": "Random100", "unclass": "UnClass"}
SETS = {"retain": "RA", "unlearn": "FA", "test": "TA"}
_ORDER = ("rnc", "sisa", "fixsisa", "lego")
_HEADER = (
  "Method",
  "Solver",
  "Strategy",
  "RA paper %",
  "RA ours %",
  "FA paper %",
  "FA ours %",
  "TA paper %",
  "TA ours %",
  "MIA efficacy %",
  "MIA of refit %",
  "ToW",
  "Equal to refit, bit for bit",
  "Seconds",
  "Seeds",
)


def main_tables(results: Results) -> list[Table]:
  """One table for each source and task."""
  return [
    _table(results, source, task)
    for source in ("encodings", "images")
    for task in TASKS
  ]


def contenders(results: Results, source: str) -> list[dict[str, Any]]:
  """Settings of the rows: those of the paper, then others that were measured."""
  wanted: list[dict[str, Any]] = []
  if source == "images":
    wanted += [{"method": "rnc"}, {"method": "sisa", "s": 10}]
  wanted += [
    {"method": "fixsisa", "solver": name, "s": 10}
    for name in solvers_of(results, "tasks", source=source, method="fixsisa")
  ]
  wanted += [
    {"method": "lego", "solver": name, "n": n, "k": 10}
    for n in (100, 1000)
    for name in solvers_of(results, "tasks", source=source, method="lego")
  ]
  for cell in matching(results, "tasks", source=source):
    found: dict[str, Any] = {
      name: cell.settings[name]
      for name in ("method", "solver", "s", "n", "k")
      if name in cell.settings
    }
    if found not in wanted:
      wanted.append(found)
  rank = {name: at for at, name in enumerate(_ORDER)}
  return sorted(wanted, key=lambda w: rank.get(w["method"], len(rank)))


def strategies(group: Mapping[int, Cell], task: str, name: str) -> list[str]:
  """Strategies of a method, the paper's first, then others that were measured."""
  known = ["origin", "retrain"] + (["tune", "ngrad"] if name == "rnc" else [])
  found = {
    s for cell in group.values() for s in cell.result.get(task, {}).get("after", {})
  }
  return known + sorted(found - set(known))


def _table(results: Results, source: str, task: str) -> Table:
  """All methods at one task."""
  rows: list[tuple[Entry, ...]] = []
  used: list[Cell] = []
  for settings in contenders(results, source):
    group = find(results, "tasks", source=source, **settings)
    used += group.values()
    rows += [
      _row(results.dataset, settings, group, task, strategy)
      for strategy in strategies(group, task, settings["method"])
    ]
  sizes = sorted({cell.result.get(task, {}).get("forgotten", 0) for cell in used})
  forgotten = f"{sizes[0]:,}" if sizes else "some"
  if sizes and sizes[0] != sizes[-1]:
    forgotten += f" to {sizes[-1]:,}"
  what_for = {"random100": "drawn at random", "unclass": "of one class, drawn by seed"}
  caption = (
    f"Table 1 of the paper, forgetting {forgotten} training samples {what_for[task]}. "
    "RA, FA, TA: accuracy on D_retain, "
    "D_unlearn and D_test. Origin is before unlearning. MIA efficacy: share of "
    "D_unlearn that a membership attack calls non-members, beside that of a model "
    "fitted on D_retain only (refit). ToW is 1 for accuracies equal to the refit's. "
    "Seconds are for the whole request, with compilation and on a machine that did "
    "other work: compare methods by the time table instead. ± is the 95 % t-interval "
    "over seeds. "
  )
  return Table(
    f"main_{source}_{task}",
    f"Table 1, {TASKS[task]}: {source}",
    caption + provenance(results, used),
    _HEADER,
    tuple(rows),
  )


def _row(
  dataset: str,
  settings: Mapping[str, Any],
  group: Mapping[int, Cell],
  task: str,
  strategy: str,
) -> tuple[Entry, ...]:
  """One method after one strategy."""
  where = (task, "before") if strategy == "origin" else (task, "after", strategy)
  size = settings.get("n", settings.get("s", 0))
  printed = paper.table_1(dataset, task, settings["method"], size, strategy)
  row: list[Entry] = [
    method(settings),
    solver(settings),
    STRATEGIES.get(strategy, strategy),
  ]
  for name in SETS:
    ours = estimate(pick(group, *where, name))
    row += [None if printed is None else getattr(printed, name), ours]
  if strategy == "origin":
    row += [None] * 5
  else:
    row += [
      estimate(pick(group, *where, "mia")),
      estimate(pick(group, task, "refit", "mia")),
      estimate(pick(group, *where, "tow"), digits=3),
      equality(group, task, strategy),
      significant(list(pick(group, *where, "seconds").values())),
    ]
  return (*row, len(pick(group, *where, "test")) or None)


def equality(group: Mapping[int, Cell], task: str, strategy: str) -> str | None:
  """As "5 of 5": seeds whose unlearned model is the refit; None if never compared."""
  checks = list(equal_flags(group, task, strategy))
  return f"{sum(checks)} of {len(checks)}" if checks else None


def equal_flags(group: Mapping[int, Cell], task: str, strategy: str) -> list[bool]:
  """Whether it equals the refit, for each seed that compared them."""
  found = (
    cell.result.get(task, {}).get("after", {}).get(strategy, {}).get("equal")
    for cell in group.values()
  )
  return [flag for flag in found if isinstance(flag, bool)]
