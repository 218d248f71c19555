"""Figure 3 (right): seconds per unlearning, and LegoNet's share of SISA's.

All contenders were timed in one run, on the same images and cores. The interval is over
requests. The share is mean seconds of LegoNet over mean seconds of SISA, in percent.
"""

from typing import NamedTuple

from experiments.reproduce import paper
from experiments.reproduce.results import (
  Cell,
  Results,
  same_settings,
  significant,
)
from experiments.reproduce.tables import Entry, Table, method, provenance, solver

Contender = tuple[str, str | None, int | None]  # method, solver, k


class Timing(NamedTuple):
  """Seconds of each request of one contender at one segmentation.

  `anchors` are those of samples that are anchors of LegoNet, apart from the rest.
  """

  label: str
  solver: str
  requests: tuple[float, ...]
  anchors: tuple[float, ...]

  @property
  def mean(self) -> float:
    """Seconds per request."""
    return sum(self.requests) / len(self.requests)


def timings(results: Results) -> dict[int, dict[Contender, Timing]]:
  """By segmentation and contender; requests of several cells are put together."""
  found: dict[int, dict[Contender, Timing]] = {}
  for cell in _cells(results):
    for row in cell.result.get("rows", []):
      at = found.setdefault(row["segmentation"], {})
      who = (row["method"], row.get("solver"), row.get("k"))
      earlier = at.get(who, Timing("", "", (), ()))
      requests = (*earlier.requests, *map(float, row["requests"]))
      anchors = (*earlier.anchors, *map(float, row.get("anchor_requests", ())))
      if requests:
        at[who] = Timing(method(row), solver(row), requests, anchors)
  return dict(sorted(found.items()))


def _cells(results: Results) -> list[Cell]:
  """Cells of kind time, of one setting."""
  return same_settings([cell for cell in results.cells if cell.kind == "time"])


def share(
  found: dict[int, dict[Contender, Timing]], who: Contender, at: int, of: int
) -> float | None:
  """100 · (seconds of `who` at segmentation `at`) / (seconds of SISA with s = `of`)."""
  ours, sisa = found.get(at, {}).get(who), _sisa(found.get(of, {}))
  return None if ours is None or sisa is None else 100 * ours.mean / sisa.mean


def _sisa(at: dict[Contender, Timing]) -> Timing | None:
  """SISA's timing."""
  return next((timing for who, timing in at.items() if who[0] == "sisa"), None)


def time_table(results: Results) -> Table:
  """One row for each contender and segmentation."""
  found = timings(results)
  order = {"sisa": 0, "fixsisa": 1, "lego": 2}
  rows: list[tuple[Entry, ...]] = []
  for segmentation in sorted({*found, *paper.SEGMENTATIONS}):
    known = found.get(segmentation, {})
    absent: list[Contender] = [
      (name, None, None) for name in order if all(who[0] != name for who in known)
    ]
    for who in sorted([*known, *absent], key=lambda w: (order.get(w[0], 9), str(w))):
      timing = known.get(who)
      fallback = {"n": segmentation * 10, "k": 10} if who[0] == "lego" else {}
      fallback = fallback or {"s": segmentation}
      label = timing.label if timing else method({"method": who[0], **fallback})
      ours: list[Entry] = [None] * 5
      if timing:
        ours = [
          significant(timing.requests),
          share(found, who, segmentation, segmentation),
          share(found, who, segmentation, 10),
          len(timing.requests),
          significant(timing.anchors),
        ]
      printed = None
      if _is_papers(who, results):
        printed = paper.seconds(who[0], segmentation)
      same, ten = (
        _percent(printed, paper.seconds("sisa", s)) for s in (segmentation, 10)
      )
      rows.append(
        (
          segmentation,
          label,
          timing.solver if timing else "–",
          printed,
          ours[0],
          same,
          ours[1],
          ten,
          ours[2],
          ours[3],
          ours[4],
        )
      )
  return Table(
    "time",
    "Figure 3: seconds per unlearning",
    "One sample per request. The paper's times are its own, from another machine, for "
    "CIFAR-10 at full size; compare shares, not seconds. The paper states 32.65 % for "
    "LegoNet n = 100 and 12.91 % for n = 1000, both of SISA s = 10. Everything "
    "is compiled before. SISA and FixSISA train their shard again; LegoNet with ridge "
    "subtracts the sample. The last batch of an epoch is filled up, so a small shard "
    "passes more samples than it has. A sample that is an anchor of LegoNet (n of N; "
    "at N = 50,000 and n = 1000 one in 50) costs more and is timed apart. ± is "
    "the 95 % t-interval over requests. " + provenance(results, _cells(results)),
    (
      "s or n/k",
      "Method",
      "Solver",
      "Seconds paper",
      "Seconds ours",
      "Share of SISA at same s, paper %",
      "Share of SISA at same s, ours %",
      "Share of SISA s = 10, paper %",
      "Share of SISA s = 10, ours %",
      "Requests",
      "Seconds ours, an anchor",
    ),
    tuple(rows),
  )


def _is_papers(who: Contender, results: Results) -> bool:
  """Whether Figure 3 has this contender: CIFAR-10, and k = 10 for LegoNet."""
  return results.dataset == "cifar10" and who[2] in (None, 10)


def _percent(part: float | None, whole: float | None) -> float | None:
  """Share of two known numbers."""
  return None if part is None or whole is None else 100 * part / whole
