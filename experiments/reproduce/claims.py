"""What is said about unlearning itself: exactness, forgetting, baselines, privacy.

Statements of the paper about Table 1's strategies, and this library's own promises.
"""

from collections.abc import Mapping
from typing import Any

from experiments.reproduce import paper
from experiments.reproduce.judging import (
  CONFIRMED,
  NO_DATA,
  NOT_CLEAR,
  REFUTED,
  Finding,
  Trend,
  about,
  above,
  below,
  beyond,
  combine,
)
from experiments.reproduce.results import Cell, Results, difference, find, pick
from experiments.reproduce.table_main import SETS, TASKS, contenders, equal_flags
from experiments.reproduce.table_privacy import CHANCE, interval, privacy_cells
from experiments.reproduce.tables import SOLVERS, data, method, solver, text
from experiments.reproduce.trends import accuracy

AT_NULL = 0.2  # KLoM above its null, in shares of it, that we call "at the null"
AT_CHANCE = 0.05  # distance of the AUC from 0.5 that we call "at chance"
SIMILAR = 1.0  # points between Tune and Re-train, or the paper's own gap if larger
DAMAGE = 1.0  # points of test accuracy that an unreliable method loses


def _groups(results: Results) -> list[tuple[dict[str, Any], str, dict[int, Cell]]]:
  """Settings, data and cells of every measured group of kind tasks."""
  found = []
  for source in ("encodings", "images"):
    for settings in contenders(results, source):
      group = find(results, "tasks", source=source, **settings)
      if group:
        found.append((settings, data(next(iter(group.values())).settings), group))
  return found


def _forgets_class(results: Results) -> list[Finding]:
  found = []
  for settings, where, group in _groups(results):
    values = pick(group, "unclass", "after", "retrain", "unlearn")
    if values:
      worst = max(values.values())
      verdict = CONFIRMED if worst == 0 else REFUTED
      evidence = f"{method(settings)}: largest FA of {len(values)} seeds {worst:.2f} %"
      found.append(Finding(verdict, evidence, solver(settings), where))
  return found


def _bit_equal(results: Results) -> list[Finding]:
  found = []
  for settings, where, group in _groups(results):
    checks = [flag for task in TASKS for flag in equal_flags(group, task, "retrain")]
    if checks:
      verdict = CONFIRMED if all(checks) else REFUTED
      evidence = f"{method(settings)}: {sum(checks)} of {len(checks)} unlearned models"
      found.append(Finding(verdict, evidence, solver(settings), where))
  return found


def _rnc(results: Results) -> tuple[dict[int, Cell], str]:
  group = find(results, "tasks", source="images", method="rnc")
  return group, next((data(cell.settings) for cell in group.values()), "images")


def _gap(group: Mapping[int, Cell], task: str, strategy: str, name: str) -> Any:
  """Accuracy after a strategy minus that of the refit."""
  after = pick(group, task, "after", strategy, name)
  return difference(after, pick(group, task, "refit", name))


def _tune_similar(results: Results) -> list[Finding]:
  """To a point, or as near to Re-train as the paper's Tune is to its Re-train."""
  group, where = _rnc(results)
  verdicts, words = [], []
  for task in TASKS:
    tune, again = (
      paper.table_1(results.dataset, task, "rnc", 0, strategy)
      for strategy in ("tune", "retrain")
    )
    for name, short in SETS.items():
      gap = _gap(group, task, "tune", name)
      if gap is not None:
        printed = abs(getattr(tune, name) - getattr(again, name))
        allowed = max(SIMILAR, printed)
        verdicts.append(about(gap, allowed))
        words.append(f"{TASKS[task]} {short} {text(gap)} (allowed ±{allowed:.2f})")
  evidence = f"Tune minus refit: {', '.join(words)}" if words else ""
  return [Finding(combine(verdicts), evidence, where=where)]


def _ngrad_fast(results: Results) -> list[Finding]:
  group, where = _rnc(results)
  verdicts, words = [], []
  for task in TASKS:
    a, b = (pick(group, task, "after", s, "seconds") for s in ("ngrad", "retrain"))
    delta = difference(a, b)
    if delta is not None:
      verdicts.append(below(delta))
      words.append(f"{TASKS[task]}: NGrad minus Re-train {text(delta)} s")
  return [Finding(combine(verdicts), ", ".join(words), where=where)]


def _ngrad_unreliable(results: Results) -> list[Finding]:
  """Any harm confirms it: the class is still inferred, or test accuracy is lost."""
  group, where = _rnc(results)
  left = pick(group, "unclass", "after", "ngrad", "unlearn")
  if not left:
    return [Finding(NO_DATA, where=where)]
  words = [f"FA after UnClass at most {max(left.values()):.2f} %"]
  harms = [CONFIRMED if max(left.values()) > 0 else REFUTED]
  for task in TASKS:
    gap = _gap(group, task, "ngrad", "test")
    harms.append(below(gap, -DAMAGE))
    words.append(f"{TASKS[task]} TA minus refit {text(gap)}")
  verdict = CONFIRMED if CONFIRMED in harms else REFUTED
  if verdict == REFUTED and NOT_CLEAR in harms:
    verdict = NOT_CLEAR
  return [Finding(verdict, ", ".join(words), where=where)]


def _privacy(results: Results, strategies: tuple[str, ...]) -> list[Cell]:
  return [c for c in privacy_cells(results) if c.settings.get("strategy") in strategies]


def _at_chance(results: Results) -> list[Finding]:
  found = []
  for cell in _privacy(results, ("retrain",)):
    measured = cell.result.get("ulira", {})
    if "auc_low" in measured:
      verdict = _about(measured["auc_low"], measured["auc_high"])
      found.append(_finding(cell, verdict, f"AUC {interval(cell, 'auc')}"))
  return found


def _control_seen(results: Results) -> list[Finding]:
  found = []
  for cell in _privacy(results, ("none",)):
    measured = cell.result.get("ulira", {})
    if "auc_low" in measured:
      verdict = beyond(measured["auc_low"], measured["auc_high"], CHANCE)
      found.append(_finding(cell, verdict, f"AUC {interval(cell, 'auc')}"))
  return found


def _at_null(results: Results) -> list[Finding]:
  found = []
  for cell in _privacy(results, ("retrain",)):
    klom, null = cell.result.get("klom", {}), cell.result.get("null", {})
    excess = cell.result.get("excess", {})
    if "low" in excess:
      words = (
        f"mean {klom['mean']:.3f}, null {null['mean']:.3f}, above it by "
        f"{100 * excess['mean']:.0f} % [{100 * excess['low']:.0f}, "
        f"{100 * excess['high']:.0f}]"
      )
      verdict = beyond(-excess["high"], -excess["low"], -AT_NULL)
      found.append(_finding(cell, verdict, words))
  return found


def _about(low: float, high: float) -> str:
  """Is the AUC at chance? Its interval must hold it, and little else."""
  if not low <= CHANCE <= high:
    return REFUTED
  near = low >= CHANCE - AT_CHANCE and high <= CHANCE + AT_CHANCE
  return CONFIRMED if near else NOT_CLEAR


def _finding(cell: Cell, verdict: str, words: str) -> Finding:
  """A verdict on one privacy cell."""
  evidence = f"{method(cell.settings)}: {words}"
  return Finding(verdict, evidence, solver(cell.settings), data(cell.settings))


def _level(results: Results) -> list[Finding]:
  """Our best configuration at n = 1000, k = 10 against the paper's number."""
  printed = paper.FIGURE_4[results.dataset][1000, 10]
  found = []
  for name in SOLVERS:
    point = accuracy(results, "encodings", method="lego", solver=name, n=1000, k=10)
    delta = difference(point.values, dict.fromkeys(point.values, printed))
    if delta is not None:
      words = f"ours {delta.mean + printed:.2f} %, paper {printed} %, Δ {text(delta)}"
      found.append(Finding(above(delta, -0.05), words, SOLVERS[name], point.where))
  return found


CLAIMS = (
  Trend(
    "exact",
    "The unlearned model of an exact method is the refit on what remains, bit for bit.",
    _bit_equal,
  ),
  Trend(
    "class forgotten",
    "After UnClass the accuracy on D_unlearn is 0.00 for exact methods.",
    _forgets_class,
  ),
  Trend(
    "level",
    "LegoNet n = 1000, k = 10 reaches the paper's test accuracy (to 0.05 points).",
    _level,
  ),
  Trend("Tune", "Tune is similar to Re-train in RA, FA and TA.", _tune_similar),
  Trend("NGrad fast", "NGrad unlearns faster than Re-train.", _ngrad_fast),
  Trend(
    "NGrad unreliable",
    "NGrad does not forget reliably, or harms the model (here: the class is still "
    f"inferred, or more than {DAMAGE:g} point of TA is lost).",
    _ngrad_unreliable,
  ),
  Trend(
    "U-LiRA",
    f"After exact unlearning U-LiRA is at chance (AUC 0.5; here: to {AT_CHANCE:g}).",
    _at_chance,
  ),
  Trend("control", "Without unlearning U-LiRA is above chance.", _control_seen),
  Trend(
    "KLoM",
    "After exact unlearning KLoM is at its null (here: its mean is less than "
    f"{100 * AT_NULL:g} % above the null's).",
    _at_null,
  ),
)
