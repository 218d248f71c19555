"""What the paper says about accuracy and time, judged by our numbers.

Each trend is a short name, the paper's sentence and a function from results to
findings, one for each solver and each data set-up that has numbers.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from experiments.reproduce import paper
from experiments.reproduce.judging import (
  NO_DATA,
  Finding,
  Trend,
  about,
  above,
  below,
  combine,
  rising,
)
from experiments.reproduce.results import Results, Values, difference, find, pick
from experiments.reproduce.table_main import contenders
from experiments.reproduce.tables import SOLVERS, method, samples, text, where_of
from experiments.reproduce.trends_cost import LITTLE, faster, little

DRASTIC = 5.0  # points of accuracy that we call "drastic" or "far"
GREATLY = 1.0  # points that we call "greatly"


class Point(NamedTuple):
  """Test accuracy by seed, and what it was measured on."""

  values: Values
  where: str


def accuracy(results: Results, source: str, **settings: Any) -> Point:
  """Of one group of kind accuracy."""
  group = find(results, "accuracy", source=source, **settings)
  words = {samples(cell.settings) for cell in group.values()}
  return Point(pick(group, "test"), "; ".join(sorted(words)))


def _lego(results: Results, source: str, solver: str, n: int, k: int) -> Point:
  return accuracy(results, source, method="lego", solver=solver, n=n, k=k)


def _sides(results: Results) -> Iterator[tuple[str, str]]:
  """Source and solver of all groups of kind accuracy, as a product."""
  cells = [cell.settings for cell in results.cells if cell.kind == "accuracy"]
  for source in sorted({s["source"] for s in cells}) or ["encodings"]:
    for solver in SOLVERS:
      yield source, solver


def _along(panel: str, sign: int) -> Callable[[Results], list[Finding]]:
  """Figure 4: accuracy along one of its panels."""

  def judge(results: Results) -> list[Finding]:
    found = []
    for source, solver in _sides(results):
      points = [
        (f"n={n},k={k}", _lego(results, source, solver, n, k))
        for n, k in paper.PANELS[panel]
      ]
      verdict, evidence = rising([(name, p.values) for name, p in points], sign)
      where = next((p.where for _, p in points if p.where), source)
      found.append(Finding(verdict, evidence, SOLVERS[solver], where))
    return found

  return judge


def _maintained(results: Results) -> list[Finding]:
  found = []
  loss = paper.TABLE_2[results.dataset]["lego10"]
  allowed = loss[0] - loss[-1]
  for source, solver in _sides(results):
    a, b = (_lego(results, source, solver, n, 10) for n in (100, 1000))
    delta = difference(b.values, a.values)
    evidence = f"n=1000 minus n=100: {text(delta)}; the paper loses {allowed:.2f}"
    verdict = above(delta, -allowed)
    found.append(Finding(verdict, evidence, SOLVERS[solver], a.where))
  return found


def _compare(
  one: Callable[[Results, str, str, int], Point],
  other: Callable[[Results, str, str, int], Point],
  judge: Callable[[Results, Any], str],
  segmentations: tuple[int, ...],
) -> Callable[[Results], list[Finding]]:
  """Two methods at the same segmentations, on the same samples."""

  def compare(results: Results) -> list[Finding]:
    found = []
    for source, solver in _sides(results):
      verdicts, words, where = [], [], source
      for s in segmentations:
        a, b = one(results, source, solver, s), other(results, source, solver, s)
        if a.where and b.where and a.where != b.where:
          words.append(f"{s}: not on the same samples ({a.where}; {b.where})")
          continue
        delta = difference(a.values, b.values)
        if delta is not None:
          verdicts.append(judge(results, delta))
          words.append(f"{s}: {text(delta)}")
          where = a.where
      evidence = "Difference at s or n/k = " + ", ".join(words) if words else ""
      found.append(Finding(combine(verdicts), evidence, SOLVERS[solver], where))
    return found

  return compare


def _sisa(results: Results, source: str, solver: str, s: int) -> Point:
  return accuracy(results, source, method="sisa", s=s)


def _fixsisa(results: Results, source: str, solver: str, s: int) -> Point:
  return accuracy(results, source, method="fixsisa", solver=solver, s=s)


def _lego_1(results: Results, source: str, solver: str, s: int) -> Point:
  return _lego(results, source, solver, s, 1)


def _lego_10(results: Results, source: str, solver: str, s: int) -> Point:
  return _lego(results, source, solver, 10 * s, 10)


def _near(results: Results, delta: Any) -> str:
  """As near as the paper's own two rows are."""
  rows = paper.TABLE_2[results.dataset]
  gaps = [abs(a - b) for a, b in zip(rows["lego1"], rows["fixsisa"], strict=True)]
  return about(delta, max(gaps))


def _sisa_drops(results: Results) -> list[Finding]:
  points = [(f"s={s}", _sisa(results, "images", "", s)) for s in paper.SEGMENTATIONS]
  known = [(name, p) for name, p in points if p.values]
  _, evidence = rising([(name, p.values) for name, p in known], -1)
  if len(known) < 2:
    return [Finding(NO_DATA, evidence, where="images")]
  delta = difference(known[-1][1].values, known[0][1].values)
  return [Finding(below(delta, -DRASTIC), evidence, where=known[0][1].where)]


def _order(results: Results) -> list[Finding]:
  """RNC > SISA > LegoNet before unlearning, on images."""

  def test(settings: dict[str, Any]) -> Values:
    group = find(results, "tasks", source="images", **settings)
    return pick(group, "random100", "before", "test")

  rnc, sisa = test({"method": "rnc"}), test({"method": "sisa", "s": 10})
  found = []
  for settings in contenders(results, "images"):
    if settings["method"] == "lego":
      lego = test(settings)
      deltas = difference(rnc, sisa), difference(sisa, lego)
      evidence = (
        f"{method(settings)}: RNC minus SISA {text(deltas[0])}, "
        f"SISA minus LegoNet {text(deltas[1])}"
      )
      verdict = combine(map(above, deltas)) if None not in deltas else NO_DATA
      where = where_of(results, "tasks", source="images", **settings)
      found.append(Finding(verdict, evidence, SOLVERS[settings["solver"]], where))
  return found


TRENDS = (
  Trend("more k", "With n = 100, accuracy grows with k.", _along("n = 100", 1)),
  Trend("more n", "With k = 10, accuracy falls as n grows.", _along("k = 10", -1)),
  Trend(
    "n well kept",
    "From n = 100 to 1000 LegoNet keeps its accuracy well.",
    _maintained,
  ),
  Trend("both", "With n/k = 10, accuracy grows with n and k.", _along("n/k = 10", 1)),
  Trend(
    "SISA drops",
    "SISA's accuracy drops drastically with s (here: by more than "
    f"{DRASTIC:g} points; epochs are the same at every s).",
    _sisa_drops,
  ),
  Trend(
    "FixSISA over SISA",
    "FixSISA is better than SISA at s = 50 and 100.",
    _compare(_fixsisa, _sisa, lambda _, d: above(d), (50, 100)),
  ),
  Trend(
    "LegoNet k = 1",
    "LegoNet with k = 1 is about as good as FixSISA (here: within the paper's own "
    "largest gap).",
    _compare(_lego_1, _fixsisa, _near, paper.SEGMENTATIONS),
  ),
  Trend(
    "LegoNet k = 10",
    f"LegoNet with k = 10 is greatly better than with k = 1 (here: {GREATLY:g} point).",
    _compare(_lego_10, _lego_1, lambda _, d: above(d, GREATLY), paper.SEGMENTATIONS),
  ),
  Trend(
    "LegoNet over SISA",
    "LegoNet n = 1000 is far better than SISA s = 100 (here: by more than "
    f"{DRASTIC:g} points).",
    _compare(_lego_10, _sisa, lambda _, d: above(d, DRASTIC), (100,)),
  ),
  Trend("order", "On D_test RNC is better than SISA, and SISA than LegoNet.", _order),
  Trend(
    "faster", "LegoNet unlearns faster than SISA at the same segmentation.", faster
  ),
  Trend(
    "parameters",
    f"Parameters change little from n = 1 to 1000 (here: by less than {LITTLE:g} %).",
    little("parameters"),
  ),
  Trend(
    "inference",
    f"MACs change little from k = 1 to 20 (here: by less than {LITTLE:g} %).",
    little("macs"),
  ),
)
