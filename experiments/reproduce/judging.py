"""When a trend counts as confirmed.

A difference Δ with its 95 % interval and a margin m is judged so:

    confirmed   the whole interval is beyond m
    refuted     the whole interval is short of m
    not clear   the interval covers m, or there is one value and so no interval
    no data     nothing to compare

"About equal" within a tolerance e is the same with |Δ|: confirmed if the interval lies
in [-e, e], refuted if it lies outside. A claim of several parts is refuted by any part,
confirmed by all.
"""

from collections.abc import Callable, Iterable, Sequence
import itertools
from typing import NamedTuple

from experiments.reproduce.results import (
  Estimate,
  Results,
  Values,
  difference,
  estimate,
)
from experiments.reproduce.tables import Table, provenance, text

CONFIRMED, REFUTED = "confirmed", "refuted"
NOT_CLEAR, NO_DATA = "not clear", "no data"
RULE = (
  "Confirmed or refuted: the whole 95 % interval is on one side; not clear: it covers "
  "the margin, or there is one seed only. Seeds are paired where they match. Margins "
  "in brackets are our choice. Parts that were not measured do not count, and "
  "intervals are not corrected for the number of statements."
)


class Finding(NamedTuple):
  """A verdict, the numbers behind it, and what they were measured on."""

  verdict: str
  evidence: str = ""
  solver: str = "–"
  where: str = ""


class Trend(NamedTuple):
  """A statement and how it is judged."""

  name: str
  sentence: str
  judge: Callable[[Results], list[Finding]]


def above(delta: Estimate | None, margin: float = 0.0) -> str:
  """Is Δ > margin?"""
  return NO_DATA if delta is None else beyond(delta.low, delta.high, margin)


def beyond(low: float, high: float, margin: float) -> str:
  """Is a number with this interval above the margin?"""
  if low > margin:
    return CONFIRMED
  return REFUTED if high <= margin else NOT_CLEAR


def below(delta: Estimate | None, margin: float = 0.0) -> str:
  """Is Δ < margin?"""
  return above(None if delta is None else delta._replace(mean=-delta.mean), -margin)


def about(delta: Estimate | None, tolerance: float) -> str:
  """Is |Δ| <= tolerance?"""
  if delta is None:
    return NO_DATA
  if delta.low >= -tolerance and delta.high <= tolerance:
    return CONFIRMED
  outside = delta.low > tolerance or delta.high < -tolerance
  return REFUTED if outside else NOT_CLEAR


def combine(verdicts: Iterable[str]) -> str:
  """One verdict of several parts; parts without data do not count."""
  found = [verdict for verdict in verdicts if verdict != NO_DATA]
  if not found:
    return NO_DATA
  if REFUTED in found:
    return REFUTED
  return NOT_CLEAR if NOT_CLEAR in found else CONFIRMED


def rising(points: Sequence[tuple[str, Values]], sign: int = 1) -> tuple[str, str]:
  """Does accuracy go up (sign 1) or down (-1) along the points that have values?

  Judged by last minus first. A step that surely goes the other way makes a confirmed
  trend not clear.
  """
  known = [(name, values) for name, values in points if values]
  evidence = ", ".join(f"{name}: {text(estimate(values))}" for name, values in known)
  if len(known) < 2:
    return NO_DATA, evidence
  judge = above if sign > 0 else below
  delta = difference(known[-1][1], known[0][1])
  verdict = judge(delta)
  steps = [judge(difference(b[1], a[1])) for a, b in itertools.pairwise(known)]
  if verdict == CONFIRMED and REFUTED in steps:
    verdict = NOT_CLEAR
  return verdict, f"{evidence}; last minus first {text(delta)}"


def judged(results: Results, trends: tuple[Trend, ...]) -> list[tuple[Trend, Finding]]:
  """All findings, without those that have no data where others have."""
  found = []
  for trend in trends:
    every = trend.judge(results) or [Finding(NO_DATA)]
    known = [finding for finding in every if finding.verdict != NO_DATA]
    found += [(trend, finding) for finding in known or every[:1]]
  return found


def trend_table(
  results: Results, name: str, title: str, caption: str, trends: tuple[Trend, ...]
) -> Table:
  """Findings as a table; those that differ in their evidence only share a row."""
  found: dict[tuple[str, ...], list[str]] = {}
  for t, f in judged(results, trends):
    key = (t.name, t.sentence, f.solver, f.where, f.verdict)
    found.setdefault(key, []).extend([f.evidence] if f.evidence else [])
  rows = tuple(
    (*(word or None for word in key), "; ".join(words) or None)
    for key, words in found.items()
  )
  return Table(
    name,
    title,
    caption + " " + provenance(results, results.cells),
    ("Name", "Statement", "Solver", "Measured on", "Verdict", "Evidence"),
    rows,
  )
