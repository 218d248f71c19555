"""What a reader wants first: a verdict on each statement, and the main numbers."""

from typing import Any

from experiments.reproduce import paper
from experiments.reproduce.claims import CLAIMS
from experiments.reproduce.judging import NO_DATA, RULE, combine, judged
from experiments.reproduce.results import Results, estimate, find, pick
from experiments.reproduce.table_privacy import interval, privacy_cells
from experiments.reproduce.table_time import share, timings
from experiments.reproduce.tables import SOLVERS, Entry, Table, provenance
from experiments.reproduce.trends import TRENDS


def summary(results: Results) -> Table:
  """One row for each statement and data set-up, one verdict for each solver."""
  rows: dict[tuple[str, str, str], dict[str, list[str]]] = {}
  for trend, finding in judged(results, CLAIMS + TRENDS):
    row = rows.setdefault((trend.name, trend.sentence, finding.where), {})
    row.setdefault(finding.solver, []).append(finding.verdict)
  table: list[tuple[Entry, ...]] = []
  for words, found in rows.items():
    if set(found) == {"–"}:
      solvers: list[Entry] = [None] * len(SOLVERS)
    else:
      solvers = [combine(found.get(name, [NO_DATA])) for name in SOLVERS.values()]
    rest = combine(found["–"]) if "–" in found else None
    table.append((*(word or None for word in words), *solvers, rest))
  named = tuple(f"{name} adapters" for name in SOLVERS.values())
  return Table(
    "summary",
    "Statements and verdicts",
    f"{RULE} A statement with several findings is refuted by any of them; the numbers "
    "are under Evidence. " + provenance(results, results.cells),
    ("Name", "Statement", "Measured on", *named, "RNC, SISA or computed"),
    tuple(table),
  )


def key_numbers(results: Results) -> Table:
  """Accuracy, forgetting, time and privacy of LegoNet in a few rows."""
  rows: list[tuple[Entry, ...]] = []
  lego: dict[str, Any] = {"method": "lego", "source": "encodings", "k": 10}
  for n in (100, 1000):
    ours = [
      estimate(pick(find(results, "accuracy", solver=name, n=n, **lego), "test"))
      for name in SOLVERS
    ]
    printed = paper.lego(results.dataset, n, 10)
    rows.append((f"TA of LegoNet n = {n}, k = 10 %", printed, *ours))
  linear = {"method": "linear", "source": "encodings"}
  level = [
    estimate(pick(find(results, "accuracy", solver=name, **linear), "test"))
    for name in SOLVERS
  ]
  rows.append(("TA of one linear layer on all encodings %", None, *level))
  left = [
    estimate(
      pick(
        find(results, "tasks", solver=name, n=1000, **lego),
        *("unclass", "after", "retrain", "unlearn"),
      )
    )
    for name in SOLVERS
  ]
  rows.append(("FA of LegoNet n = 1000, k = 10 after UnClass %", 0.0, *left))
  timed = timings(results)
  for n, printed in paper.SHARE.items():
    part = [share(timed, ("lego", name, 10), n // 10, 10) for name in SOLVERS]
    label = f"Time to unlearn, LegoNet n = {n} as a share of SISA s = 10 %"
    rows.append((label, printed if results.dataset == "cifar10" else None, *part))
  exact = [c for c in privacy_cells(results) if c.settings.get("strategy") == "retrain"]
  auc = [
    next((interval(c, "auc") for c in exact if _is_lego(c.settings, name)), None)
    for name in SOLVERS
  ]
  rows.append(("U-LiRA AUC of LegoNet after unlearning (chance 0.5)", None, *auc))
  return Table(
    "key_numbers",
    "Key numbers",
    "LegoNet on encodings; times side by side with SISA on the images named below, "
    "fewer and smaller than the paper's. TA, FA: accuracy on D_test and D_unlearn. Our "
    "encoder is not the paper's, so read levels through the linear layer. ± is the "
    "95 % t-interval over seeds. " + provenance(results, results.cells),
    ("Number", "Paper", *(f"Ours, {name}" for name in SOLVERS.values())),
    tuple(rows),
  )


def _is_lego(settings: dict[str, Any], name: str) -> bool:
  """LegoNet with this solver."""
  return settings.get("method") == "lego" and settings.get("solver") == name
