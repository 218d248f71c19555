"""Unlearning in tables: accuracy around it (Table 1), its time (Figure 3), privacy.

MIA is the share of D_unlearn that the attack calls non-members; ToW = Π (1 - |acc -
acc_refit|) over the three sets; both are to be read against a model fitted on D_retain
only. All contenders were timed in one run, on the same images and cores; a share is
mean seconds over mean seconds of SISA.
"""

from typing import Any, NamedTuple

import numpy as np

from experiments.reproduce import labels, paper
from experiments.reproduce.results import Group, Measured, Results
from experiments.reproduce.statistics import Estimate, estimate
from experiments.reproduce.tables import Row, Table, make_table


def group_contenders(results: Results, **settings: Any) -> list[Group]:
  """The groups of kind tasks: each method with its sizes, as the tables order them."""
  found = [(g.settings, g) for g in results.groups("tasks", **settings)]
  found.sort(key=lambda pair: (pair[0]["source"], labels.rank_method(pair[0])))
  return [group for _, group in found]


def tabulate_tasks(results: Results, source: str, task: str) -> Table:
  """All methods on one source at one task, before it and after each strategy."""
  rows, counts = list[Row](), list[float]()
  for group in group_contenders(results, source=source):
    after = (cell.result.get(task, {}).get("after", {}) for cell in group.cells)
    ways = ("origin", *dict.fromkeys(way for found in after for way in found))
    rows += [_describe_task(results.dataset, group, task, way) for way in ways]
    counts += group.pick(task, "forgotten").values()
  words = {
    "task": labels.TASKS[task],
    "source": source,
    "drawn": labels.WORDS["labels"]["drawn"][task],
    "forgotten": " to ".join(f"{n:,.0f}" for n in sorted({min(counts), max(counts)})),
  }
  return make_table(f"main_{source}_{task}", rows, "main", **words)


def _describe_task(dataset: str, group: Group, task: str, strategy: str) -> Row:
  """One method after one strategy."""
  settings, origin = group.settings, strategy == "origin"
  where = (task, "before") if origin else (task, "after", strategy)
  size = settings.get("n", settings.get("s", 0))
  printed = paper.table_1(dataset, task, settings["method"], size, strategy)
  row: dict[str, Any] = labels.name_head(settings, strategy)
  for name, short in labels.SETS.items():
    row[f"{short} paper %"] = printed.get(name)
    row[f"{short} ours %"] = group.mean(*where, name)
  equal = group.pick(*where, "equal").values()
  return row | {
    "MIA efficacy %": group.mean(*where, "mia"),
    "MIA of refit %": None if origin else group.mean(task, "refit", "mia"),
    "ToW": group.mean(*where, "tow", digits=3),
    "Equal to refit, bit for bit": (
      f"{sum(equal):.0f} of {len(equal)}" if equal else None
    ),
    "Seconds": group.mean(*where, "seconds", digits=None),
    "Seeds": len(group.pick(*where, "test")) or None,
  }


class Timing(NamedTuple):
  """Seconds of each request of one contender at one segmentation.

  `anchors` are those of samples that are anchors of LegoNet, apart from the rest.
  """

  settings: dict[str, Any]
  requests: tuple[float, ...]
  anchors: tuple[float, ...]


def collect_timings(results: Results) -> list[Timing]:
  """By segmentation, then as tables order methods; requests of cells put together."""
  found: dict[tuple[Any, ...], Timing] = {}
  for cell in results.find("time").cells:
    for row in cell.result.get("rows", []):
      key = (row["segmentation"], labels.rank_method(row))
      earlier = found.get(key, Timing(row, (), ()))
      requests = (*earlier.requests, *row["requests"])
      anchors = (*earlier.anchors, *row.get("anchor_requests", ()))
      found[key] = Timing(row, requests, anchors)
  return [found[key] for key in sorted(found)]


def find_timing(timings: list[Timing], **settings: Any) -> Timing | None:
  """The first timing with these settings."""
  return next((t for t in timings if settings.items() <= t.settings.items()), None)


def share(ours: Timing | None, sisa: Timing | None) -> float | None:
  """Mean seconds of one contender in percent of another's."""
  if ours is None or sisa is None:
    return None
  return 100 * float(np.mean(ours.requests) / np.mean(sisa.requests))


def tabulate_time(results: Results) -> Table:
  """One row for each contender and segmentation."""
  timings, rows = collect_timings(results), []
  for timing in timings:
    at, method = timing.settings["segmentation"], timing.settings["method"]
    printed = paper.seconds(results.dataset, method, at)
    if timing.settings.get("k", 10) != 10:  # the paper's LegoNet has k = 10
      printed = None
    row: dict[str, Any] = {"s or n/k": at, **labels.name_head(timing.settings)}
    row["Seconds paper"] = printed
    row["Seconds ours"] = estimate(timing.requests, digits=None)
    for s, words in ((at, "at same s"), (10, "s = 10")):
      sisa = paper.seconds(results.dataset, "sisa", s)
      theirs = 100 * printed / sisa if printed and sisa else None
      row[f"Share of SISA {words}, paper %"] = theirs
      ours = share(timing, find_timing(timings, method="sisa", s=s))
      row[f"Share of SISA {words}, ours %"] = ours
    anchors = estimate(timing.anchors, digits=None)
    row |= {"Requests": len(timing.requests), "Seconds ours, an anchor": anchors}
    rows.append(row)
  return make_table("time", rows)


def list_privacy(results: Results, *strategies: str) -> list[Measured]:
  """Cells of kind privacy (with these strategies): exact ones first, controls last."""
  order = {name: at for at, name in enumerate(labels.STRATEGIES)}
  found = [
    (order.get(way, len(order)), labels.rank_method(cell.settings), cell.seed, cell)
    for cell in results.select("privacy")
    if (way := str(cell.settings.get("strategy"))) in (strategies or (way,))
  ]
  return [cell for *_, cell in sorted(found, key=lambda row: row[:3])]


def write_interval(cell: Measured, name: str, side: str = "ulira") -> str | None:
  """U-LiRA's "auc" or "tpr" as "0.501 [0.480, 0.522]"."""
  measured = cell.result.get(side, {})
  found = [measured.get(name + end) for end in ("", "_low", "_high")]
  return None if None in found else "{:.3f} [{:.3f}, {:.3f}]".format(*found)


def tabulate_privacy(results: Results) -> Table:
  """U-LiRA and KLoM beside their nulls, one row for each cell."""
  rows = []
  for cell in list_privacy(results):
    row: dict[str, Any] = {
      **labels.name_head(cell.settings, cell.settings.get("strategy")),
      "Trained on": labels.name_data(cell.settings),
      "U-LiRA AUC (chance 0.5)": write_interval(cell, "auc"),
      "U-LiRA TPR at 1 % FPR": write_interval(cell, "tpr"),
      "U-LiRA TPR at 1 % FPR, null": write_interval(cell, "tpr", "ulira_null"),
    }
    for name in ("mean", "median", "q95"):
      for side, ending in (("klom", ""), ("null", ", null")):
        words = name.replace("q95", "95 % quantile") + ending
        value = cell.result.get(side, {}).get(name)
        row[f"KLoM {words}"] = None if value is None else Estimate(value, digits=3)
    models, targets = cell.result.get("models"), cell.result.get("targets")
    rows.append(
      row | {"Models per side": models, "Samples": targets, "Seed": cell.seed}
    )
  return make_table("privacy", rows)
