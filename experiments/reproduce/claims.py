"""Statements that need a judge of their own, and the tables of all verdicts.

Exactness and forgetting must hold for every seed; privacy has intervals of its own;
time and cost are not numbers by seed.
"""

from collections.abc import Callable, Iterable, Iterator
import functools
from typing import Any

from experiments.reproduce import judge, labels, table_unlearning as unlearning
from experiments.reproduce.datasets import DATASETS
from experiments.reproduce.judge import CONFIRMED, NO_DATA, NOT_CLEAR, REFUTED, Finding
from experiments.reproduce.results import Group, Results
from experiments.reproduce.statistics import compare_independent, difference
from experiments.reproduce.tables import Table, make_table, text
from legonet_jax.measures import cost

CHANCE = 0.5


def _report(verdict: str, group: Group, words: str) -> Finding:
  """A finding on one method."""
  evidence = f"{labels.name_method(group.settings)}: {words}"
  return judge.report([(verdict, evidence)], group)


def _judge_exact(results: Results, margin: float) -> Iterator[Finding]:
  for group in unlearning.group_contenders(results):
    paths = [(task, "after", "retrain", "equal") for task in labels.TASKS]
    flags = [flag for path in paths for flag in group.pick(*path).values()]
    if flags:
      words = f"{sum(flags):.0f} of {len(flags)} unlearned models"
      yield _report(CONFIRMED if all(flags) else REFUTED, group, words)


def _judge_forgotten(results: Results, margin: float) -> Iterator[Finding]:
  for group in unlearning.group_contenders(results):
    left = group.pick("unclass", "after", "retrain", "unlearn").values()
    if left:
      words = f"largest FA of {len(left)} seeds {max(left):.2f} %"
      yield _report(CONFIRMED if max(left) == 0 else REFUTED, group, words)


def _judge_harm(results: Results, margin: float) -> Iterator[Finding]:
  """Any harm confirms it: the class is still inferred, or test accuracy is lost."""
  group = results.find("tasks", source="images", method="rnc")
  left = group.pick("unclass", "after", "ngrad", "unlearn").values()
  if left:
    words = f"FA after UnClass at most {max(left):.2f} %"
    parts = [(CONFIRMED if max(left) > 0 else REFUTED, words)]
    for task, title in labels.TASKS.items():
      after, refit = (task, "after", "ngrad", "test"), (task, "refit", "test")
      delta = difference(group.pick(*after), group.pick(*refit))
      if delta is not None:
        verdict = judge.judge_difference(delta, "below", -margin)
        parts.append((verdict, f"{title} TA minus refit {text(delta)}"))
    harms = {verdict for verdict, _ in parts}
    verdict = next(v for v in (CONFIRMED, NOT_CLEAR, REFUTED) if v in harms)
    yield judge.report(parts, group)._replace(verdict=verdict)


def _judge_auc(results: Results, margin: float, strategy: str) -> Iterator[Finding]:
  """U-LiRA: at chance (its interval holds it, and little else), or above it."""
  for cell in unlearning.list_privacy(results, strategy):
    measured = cell.result.get("ulira", {})
    if "auc_low" in measured:
      low, high = measured["auc_low"], measured["auc_high"]
      verdict = judge.judge_interval(low, high, CHANCE)
      if strategy == "retrain":
        near = CHANCE - margin <= low and high <= CHANCE + margin
        verdict = CONFIRMED if near else NOT_CLEAR
        verdict = verdict if low <= CHANCE <= high else REFUTED
      words = f"AUC {unlearning.write_interval(cell, 'auc')}"
      yield _report(verdict, Group((cell,)), words)


def _judge_null(results: Results, margin: float) -> Iterator[Finding]:
  for cell in unlearning.list_privacy(results, "retrain"):
    excess = cell.result.get("excess", {})
    if "low" in excess:
      klom, null = (cell.result[side]["mean"] for side in ("klom", "null"))
      mean, low, high = (100 * excess[name] for name in ("mean", "low", "high"))
      words = f"mean {klom:.3f}, null {null:.3f}, above it by {mean:.0f} %"
      verdict = judge.judge_interval(-high, -low, -margin)
      yield _report(verdict, Group((cell,)), f"{words} [{low:.0f}, {high:.0f}]")


def _judge_faster(results: Results, margin: float) -> Iterator[Finding]:
  """LegoNet against SISA at the same segmentation; requests are independent."""
  timings = unlearning.collect_timings(results)
  for solver, label in labels.SOLVERS.items():
    parts = []
    for s in dict.fromkeys(timing.settings["segmentation"] for timing in timings):
      find = functools.partial(unlearning.find_timing, timings, segmentation=s)
      sisa, lego = find(method="sisa"), find(method="lego", solver=solver, k=10)
      if sisa and lego:
        delta = compare_independent(lego.requests, sisa.requests)
        verdict = judge.judge_difference(delta, "below", 0.0) if delta else NO_DATA
        part = unlearning.share(lego, sisa)
        parts.append((verdict, f"s = n/k = {s}: {part:.2f} % of SISA's time"))
    yield judge.report(parts, results.find("time"))._replace(solver=label)


def _judge_little(results: Results, margin: float, what: str) -> Iterator[Finding]:
  """Parameters from n = 1 to 1000, or MACs from k = 1 to 20, as in Figure 5."""
  pairs = ((1, 1), (1000, 1)) if what == "parameters" else ((1000, 1), (1000, 20))
  setting = cost.Setting(num_classes=DATASETS[results.dataset].classes)
  models = [cost.count_model(setting, cost.legonet(*pair)) for pair in pairs]
  before, after = (getattr(model, what) for model in models)
  more = 100 * (after / before - 1)
  evidence = f"{what} from {before:,} to {after:,}: +{more:.3g} %"
  where = f"ResNet-34, 224 px, C = {setting.num_classes}, computed"
  yield Finding(CONFIRMED if more < margin else REFUTED, evidence, where=where)


_JUDGES: dict[str, Callable[[Results, float], Iterator[Finding]]] = {
  "exact": _judge_exact,
  "class forgotten": _judge_forgotten,
  "NGrad unreliable": _judge_harm,
  "U-LiRA": functools.partial(_judge_auc, strategy="retrain"),
  "control": functools.partial(_judge_auc, strategy="none"),
  "KLoM": _judge_null,
  "faster": _judge_faster,
  "parameters": functools.partial(_judge_little, what="parameters"),
  "inference": functools.partial(_judge_little, what="macs"),
}


def find_all(results: Results, *names: str) -> list[tuple[dict[str, Any], Finding]]:
  """Findings on the statements of a table or of a name (or on all of them).

  Those without data are left out where others have some.
  """
  found = []
  for said in judge.STATEMENTS:
    if names and not {said["name"], said["table"]} & set(names):
      continue
    special = _JUDGES.get(said["name"])
    margin = said.get("margin", 0.0)
    every: Iterable[Finding] = judge.judge_declared(results, said)
    every = dict.fromkeys(special(results, margin) if special else every)
    known = [finding for finding in every if finding.verdict != NO_DATA]
    sentence = said["sentence"].format(margin=margin)
    row = {"Name": said["name"], "Statement": sentence}
    found += [(row, finding) for finding in known or [Finding(NO_DATA)]]
  return found


def tabulate_findings(results: Results, name: str) -> Table:
  """One row for each finding; those that differ in their evidence only share it."""
  rows: dict[tuple[str, ...], dict[str, Any]] = {}
  for said, found in find_all(results, name):
    row = {**said, "Solver": found.solver, "Measured on": found.where or None}
    row["Verdict"] = found.verdict
    row = rows.setdefault(tuple(map(str, row.values())), row)
    words = [row.get("Evidence"), found.evidence]
    row["Evidence"] = "; ".join(filter(None, words)) or None
  return make_table(name, list(rows.values()))


def tabulate_summary(results: Results) -> Table:
  """One row for each statement and data set-up, one verdict for each solver."""
  rows: dict[tuple[str, str], dict[str, Any]] = {}
  verdicts: dict[tuple[str, str], dict[str, list[str]]] = {}
  for said, found in find_all(results):
    key = said["Name"], found.where
    rows[key] = {**said, "Measured on": found.where or None}
    verdicts.setdefault(key, {}).setdefault(found.solver, []).append(found.verdict)
  for key, by_solver in verdicts.items():
    others = by_solver.pop(labels.MISSING, None)
    for solver in labels.SOLVERS.values():
      verdict = judge.combine(by_solver.get(solver, ())) if by_solver else None
      rows[key][f"{solver} adapters"] = verdict
    rows[key]["RNC, SISA or computed"] = judge.combine(others) if others else None
  return make_table("summary", list(rows.values()))
