"""When a statement counts as confirmed; most are declared in `statements.toml`.

A difference Δ with its 95 % interval and a margin m is judged so:

    confirmed   the whole interval is beyond m
    refuted     the whole interval is short of m
    not clear   the interval covers m, or there is one value and so no interval
    no data     nothing to compare

"About equal" within a tolerance e is the same with |Δ|: confirmed if the interval lies
in [-e, e], refuted if it lies outside. A statement of several parts is refuted by any
part, confirmed by all; parts without data do not count.
"""

from collections.abc import Iterable, Iterator
import itertools
import pathlib
import tomllib
from typing import Any, NamedTuple

from experiments.reproduce import labels, paper
from experiments.reproduce.datasets import SOURCES
from experiments.reproduce.results import Group, Results
from experiments.reproduce.statistics import Estimate, difference
from experiments.reproduce.tables import text

CONFIRMED, REFUTED = "confirmed", "refuted"
NOT_CLEAR, NO_DATA = "not clear", "no data"
Part = tuple[str, str]  # verdict and evidence
DeclaredClaim = dict[str, Any]  # as `statements.toml` has it
STATEMENTS: list[DeclaredClaim] = tomllib.loads(
  (pathlib.Path(__file__).parent / "statements.toml").read_text()
)["statement"]


class Finding(NamedTuple):
  """A verdict, the numbers behind it, and what they were measured with and on."""

  verdict: str
  evidence: str = ""
  solver: str = labels.MISSING
  where: str = ""


def judge_interval(low: float, high: float, margin: float) -> str:
  """Is a number with this interval above the margin?"""
  if low > margin:
    return CONFIRMED
  return REFUTED if high <= margin else NOT_CLEAR


def judge_difference(delta: Estimate, rule: str, margin: float) -> str:
  """Is Δ `above` the margin, `below` it, or `within` ± margin?"""
  if rule == "above":
    return judge_interval(delta.low, delta.high, margin)
  if rule == "below":
    return judge_interval(-delta.high, -delta.low, -margin)
  if delta.low >= -margin and delta.high <= margin:
    return CONFIRMED
  return REFUTED if delta.low > margin or delta.high < -margin else NOT_CLEAR


def combine(verdicts: Iterable[str]) -> str:
  """One verdict of several parts; parts without data do not count."""
  found, order = set(verdicts), (REFUTED, NOT_CLEAR, CONFIRMED)
  return next((verdict for verdict in order if verdict in found), NO_DATA)


def report(parts: list[Part], *groups: Group) -> Finding:
  """A finding on these groups, which say with what solver and on what data."""
  settings = [cell.settings for group in groups for cell in group.cells]
  solvers = {labels.name_solver(s) for s in settings} - {labels.MISSING}
  where = labels.join_words(map(labels.name_data, settings))
  if ";" in where:  # epochs differ, or some have none
    where = labels.join_words(map(labels.name_samples, settings))
  verdict = combine(verdict for verdict, _ in parts)
  evidence = ", ".join(words for _, words in parts)
  return Finding(verdict, evidence, labels.join_words(solvers) or labels.MISSING, where)


class Number(NamedTuple):
  """A number that a statement names: of a method with its sizes, at a path."""

  kind: str
  method: str
  sizes: dict[str, int]
  path: tuple[str, ...]

  def find(self, results: Results, **side: str) -> Group:
    """The cells that have it, on one source and with one solver, or with none."""
    wanted: dict[str, Any] = {"method": self.method, **self.sizes, **side}
    found, alone = results.find(self.kind, **wanted), wanted | {"solver": None}
    return found if found.cells else results.find(self.kind, **alone)

  def find_printed(self, dataset: str) -> float | None:
    """What the paper prints for it."""
    n, k, s = (self.sizes.get(name, 0) for name in ("n", "k", "s"))
    if self.kind == "tasks":
      task, *way, name = self.path
      strategy = {"before": "origin", "refit": "retrain"}.get(way[0], way[-1])
      return paper.table_1(dataset, task, self.method, n or s, strategy).get(name)
    if self.method == "lego":
      return paper.lego(dataset, n, k)
    return paper.table_2(dataset, self.method, s)


def parse_number(spec: str) -> Number:
  """As `statements.toml` writes it: "lego n=100 k=10", "rnc unclass.refit.test"."""
  method, *words = spec.split()
  sizes = {word[0]: int(word[2:]) for word in words if "=" in word}
  path = [part for word in words if "=" not in word for part in word.split(".")]
  return Number("tasks" if path else "accuracy", method, sizes, (*path,) or ("test",))


def judge_declared(results: Results, said: DeclaredClaim) -> Iterator[Finding]:
  """A statement with `follow` or `compare`, on each source and with each solver."""
  judge_side = _follow if "follow" in said else _compare
  for source in said.get("sources", SOURCES):
    for solver in labels.SOLVERS:
      yield judge_side(results, said, {"source": source, "solver": solver})


def _follow(results: Results, said: DeclaredClaim, side: dict[str, str]) -> Finding:
  """A step that surely goes the other way makes a confirmed trend not clear."""
  specs = said["follow"]
  groups = {spec: parse_number(spec).find(results, **side) for spec in specs}
  known = {spec: group for spec, group in groups.items() if group.pick("test")}
  values = [group.pick("test") for group in known.values()]
  if len(known) < 2:
    return Finding(NO_DATA)
  rule, margin = said["rule"], said.get("margin", 0.0)
  delta = difference(values[-1], values[0])
  steps = [difference(b, a) for a, b in itertools.pairwise(values)]
  assert delta is not None
  verdict = judge_difference(delta, rule, margin)
  turns = REFUTED in (judge_difference(step, rule, 0.0) for step in steps if step)
  means = {spec.split(" ", 1)[1]: group.mean("test") for spec, group in known.items()}
  words = ", ".join(f"{spec}: {text(mean)}" for spec, mean in means.items())
  evidence = f"{words}; last minus first {text(delta)}"
  verdict = NOT_CLEAR if verdict == CONFIRMED and turns else verdict
  return report([(verdict, evidence)], *known.values())


def _compare(results: Results, said: DeclaredClaim, side: dict[str, str]) -> Finding:
  """Two numbers at a time, which must be of the same samples."""
  parts, used = list[Part](), list[Group]()
  margins = _find_margins(results.dataset, said)
  for (words, *specs), margin in zip(said["compare"], margins, strict=True):
    a, b = (parse_number(spec) for spec in specs)
    groups = [number.find(results, **side) for number in (a, b)]
    values = [groups[0].pick(*a.path), groups[1].pick(*b.path)]
    if specs[1] == "paper":
      printed = a.find_printed(results.dataset)
      values[1] = {} if printed is None else dict.fromkeys(values[0], printed)
    delta = difference(*values)
    places = {labels.name_samples(g.settings) for g in groups if g.cells}
    if len(places) > 1:
      where = "; ".join(sorted(places))
      parts.append((NO_DATA, f"{words}: not on the same samples ({where})"))
    elif delta is not None and margin is not None:
      allowed = f" (margin {margin:.2f})" if "paper" in said else ""
      verdict = judge_difference(delta, said["rule"], margin)
      parts.append((verdict, f"{words}: {text(delta)}{allowed}"))
      used += groups
  return report(parts, *used)


def _find_margins(dataset: str, said: DeclaredClaim) -> list[float | None]:
  """The margin of each pair; None if it is a number that the paper does not print."""
  own, way = said.get("margin", 0.0), said.get("paper")
  margins: list[float | None] = []
  for _, *specs in said["compare"]:
    a, b = (parse_number(spec).find_printed(dataset) if way else None for spec in specs)
    margins.append(None if a is None or b is None else a - b)
  gaps = [abs(margin) for margin in margins if margin is not None]
  if way == "largest":
    return [max(gaps, default=None) for _ in margins]
  if way == "larger":
    return [max(own, abs(margin or 0.0)) for margin in margins]
  return margins if way == "pair" else [own for _ in margins]
