"""Figures 3, 4 and 5 of the paper, Table 1 as bars, and privacy.

Figures are drawn from the tables, so that there is one way to every number. Ours is
dark with intervals, the paper's is grey, thin and hollow. Methods differ in marker and
line style, so that no colour is needed.
"""

from collections.abc import Callable, Mapping, Sequence
import io
import pathlib
import re
from typing import Any, NamedTuple

import matplotlib
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.reproduce import labels, paper
from experiments.reproduce.datasets import DATASETS, SOURCES
from experiments.reproduce.results import Results
from experiments.reproduce.statistics import Estimate
from experiments.reproduce.table_unlearning import list_privacy
from experiments.reproduce.tables import Table, TableEntry, find_words, list_rows
from legonet_jax.measures import cost

_INK, _GREY = "#0b3c6f", "#8a8a8a"
_INKS = (_INK, "#7a3b00", "#1b6e3c", "#5b3a8e", "#a01515", "#3a3a3a")
_MARKS = "osDv^PX*"
_LINES = {"ridge": "-", "SGD": "--"}
_PALE: Any = {"color": _GREY, "linestyle": ":", "linewidth": 0.9, "mfc": "none"}
_BARS = {"RA": (_INK, ""), "FA": ("#d9822b", "///"), "TA": ("#b9cfe4", "...")}
_STYLE = pathlib.Path(__file__).parent / "figures.mplstyle"


class Drawing(NamedTuple):
  """A figure's name, what it shows, and its two files."""

  name: str
  title: str
  caption: str
  svg: bytes
  png: bytes


class FigurePoint(NamedTuple):
  """One number of a method at x, and the paper's."""

  method: str
  solver: str
  x: int
  ours: TableEntry
  paper: TableEntry


class Panel(NamedTuple):
  """Curves over the same x; `axes` are matplotlib's: title, labels, scales."""

  ticks: Mapping[int, str]
  points: Sequence[FigurePoint]
  axes: Mapping[str, Any]


def _render(
  name: str, size: tuple[float, float], draw: Callable[[Figure], None], **values: Any
) -> Drawing:
  """Draws on a figure of its own; bytes depend on nothing else."""
  with matplotlib.rc_context(fname=_STYLE):
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    entries: dict[str, Any] = {}
    for axes in figure.axes:
      handles, names = axes.get_legend_handles_labels()
      entries |= dict(zip(names, handles, strict=True))
    place: Any = {"loc": "outside lower center", "ncols": 4}
    figure.legend(list(entries.values()), list(entries), **place)
    svg, png = io.BytesIO(), io.BytesIO()
    quiet = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(svg, format="svg", metadata=quiet)
    figure.set_layout_engine("none")  # it is laid out; once is enough
    figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
  words = find_words("figures", name, **values)
  return Drawing(name, *words, svg.getvalue(), png.getvalue())


def _draw_curves(
  name: str, height: float, panels: Sequence[Panel], **values: Any
) -> Drawing:
  """Panels side by side; each method has a mark of its own, gaps are not measured."""
  methods = list(dict.fromkeys(p.method for panel in panels for p in panel.points))

  def draw(figure: Figure) -> None:
    shared = len({panel.axes["ylabel"] for panel in panels}) == 1
    every = figure.subplots(1, len(panels), squeeze=False, sharey=shared)[0]
    for axes, panel in zip(every, panels, strict=True):
      for method, solver in dict.fromkeys(point[:2] for point in panel.points):
        own = [point for point in panel.points if point[:2] == (method, solver)]
        at = methods.index(method)
        ink, mark = _INKS[at % len(_INKS)], _MARKS[at % len(_MARKS)]
        label = method if solver == labels.MISSING else f"{method}, {solver}"
        look = {"color": ink, "linestyle": _LINES.get(solver, "-."), "linewidth": 1.3}
        look["markerfacecolor"] = "white" if solver == "SGD" else ink
        _plot(axes, {p.x: p.ours for p in own}, label=label, marker=mark, **look)
        label = f"{method}, paper"
        _plot(axes, {p.x: p.paper for p in own}, label=label, marker=mark, **_PALE)
      axes.set(**panel.axes)
      if shared:
        axes.label_outer()
      axes.set_xticks(list(panel.ticks), list(panel.ticks.values()))
      axes.set_xticks([], minor=True)
      if axes.get_yscale() == "log":
        large = axes.get_ylim()[1] > 1e5
        axes.yaxis.set_major_formatter(ticker.EngFormatter() if large else "{x:g}")
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())

  return _render(name, (max(6.5, 4.2 * len(panels)), height), draw, **values)


def _plot(axes: Axes, points: Mapping[int, Any], **look: Any) -> None:
  """A curve through what is known, with intervals if there are any."""
  known = {x: y for x, y in points.items() if y is not None}
  found = [y if isinstance(y, Estimate) else Estimate(y) for y in known.values()]
  halves = [e.half or 0.0 for e in found] if any(e.half for e in found) else None
  if known:
    axes.errorbar(list(known), [e.mean for e in found], halves, capsize=2, **look)


def draw_segmentation(ablation: Table, time: Table) -> Drawing | None:
  """Figure 3; the accuracy's panels are one for each source."""
  ticks = {s: str(s) for s in paper.SEGMENTATIONS}
  shared = {"xscale": "log", "xlabel": "s or n/k"}
  panels = []
  for source in SOURCES:
    points = [
      FigurePoint(
        row["Method"], row["Solver"], s, row[f"{at} ours %"], row[f"{at} paper %"]
      )
      for row in list_rows(ablation)
      if row["Trained on"].startswith(source)
      for s, at in ((s, f"s or n/k = {s}, TA") for s in ticks)
    ]
    words = {"title": f"Test accuracy, {source}", "ylabel": "accuracy on D_test (%)"}
    panels.append(Panel(ticks, points, shared | words))
  points = []
  for row in list_rows(time):
    method = re.sub(r" [sn] = \d+,?", "", row["Method"])
    seconds = row["Seconds ours"], row["Seconds paper"]
    points.append(FigurePoint(method, row["Solver"], row["s or n/k"], *seconds))
  words = {"title": "Time per unlearning, images", "ylabel": "seconds", "yscale": "log"}
  panels = [p for p in (*panels, Panel(ticks, points, shared | words)) if p.points]
  return _draw_curves("figure_3", 4.8, panels) if panels else None


def draw_panels(table: Table) -> Drawing | None:
  """Figure 4: three panels with k, n and n/k fixed."""
  panels = []
  for fixed in paper.PANELS:
    rows = [row for row in list_rows(table) if row["Fixed"] == fixed]
    points = [
      FigurePoint("LegoNet", solver, x, row[f"TA ours, {solver} %"], row["TA paper %"])
      for solver in labels.SOLVERS.values()
      for x, row in enumerate(rows)
    ]
    ticks = {x: f"n={row['n']}\nk={row['k']}" for x, row in enumerate(rows)}
    words = {"title": f"{fixed} fixed", "ylabel": "accuracy on D_test (%)"}
    panels.append(Panel(ticks, points, words))
  measured = any(row["Seeds"] for row in list_rows(table))
  return _draw_curves("figure_4", 3.8, panels) if measured else None


def draw_cost(results: Results) -> Drawing:
  """Figure 5: parameters against s or n, MACs against s or k, computed."""
  setting = cost.Setting(num_classes=DATASETS[results.dataset].classes)
  panels = []
  for what, title, letter, sizes in (
    ("parameters", "Parameters", "n", (1, 10, 100, 1000)),
    ("macs", "MACs of one inference", "k", (1, 10, 20)),
  ):
    points = []
    for x in sizes:
      lego = cost.legonet(x, 1) if letter == "n" else cost.legonet(1000, x)
      for label, made in (("LegoNet", lego), ("SISA", cost.sisa(x))):
        count = getattr(cost.count_model(setting, made), what)
        points.append(FigurePoint(label, labels.MISSING, x, count, None))
    words = {"title": title, "xlabel": f"s (SISA) or {letter} (LegoNet)"}
    words |= {
      "ylabel": what,
      "yscale": "log",
      "xscale": "log" if letter == "n" else "linear",
    }
    panels.append(Panel({x: str(x) for x in sizes}, points, words))
  return _draw_curves("figure_5", 3.4, panels, classes=setting.num_classes)


def draw_privacy(results: Results) -> Drawing | None:
  """U-LiRA's AUC with intervals, and KLoM beside its null."""
  cells = [cell for cell in list_privacy(results) if "ulira" in cell.result]
  names = []
  for cell in cells:
    head = labels.name_head(cell.settings, str(cell.settings.get("strategy")))
    names.append("{Method}, {Solver}\n{Strategy}".format(**head))

  def draw(figure: Figure) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    for y, cell in enumerate(cells):
      auc, low, high = (cell.result["ulira"][n] for n in ("auc", "auc_low", "auc_high"))
      exact = cell.settings.get("strategy") == "retrain"
      look: Any = {"color": _INK, "capsize": 3, "mfc": _INK if exact else "white"}
      ends = [[max(auc - low, 0.0)], [max(high - auc, 0.0)]]
      left.errorbar(auc, y, xerr=ends, fmt="o" if exact else "s", **look)
      for side, label, mark, ink, at in (
        ("klom", "unlearned against refitted", "o", _INK, y - 0.12),
        ("null", "null: refitted against refitted", "x", _GREY, y + 0.12),
      ):
        found = cell.result[side]
        right.hlines(at, found["median"], found["q95"], color=ink)
        right.plot(found["median"], at, mark, color=ink, label=label)
    left.axvline(0.5, color="black", linestyle="--", linewidth=0.9)
    left.set(title="U-LiRA", xlabel="AUC with 95 % interval (dashed: chance)")
    left.set_yticks(range(len(cells)), names)
    left.invert_yaxis()
    right.set(title="KLoM", xlabel="median (mark) to 95 % quantile (end of the line)")

  size = 9.0, 1.4 + 0.5 * len(cells)
  return _render("privacy", size, draw) if cells else None


def draw_bars(tables: Sequence[Table]) -> Drawing:
  """Table 1: RA, FA and TA before and after, a panel for each task."""
  names = []
  for row in list_rows(tables[0]):
    words = row["Method"].replace(" ", "\n", 1).replace(", ", "\n")
    names.append("\n".join([words, row["Solver"], row["Strategy"]]))

  def draw(figure: Figure) -> None:
    panels = figure.subplots(len(tables), 1, sharex=True)
    for axes, table, task in zip(panels, tables, labels.TASKS.values(), strict=True):
      for shift, (short, (ink, hatch)) in enumerate(_BARS.items(), -1):
        found = [row[f"{short} ours %"] for row in list_rows(table)]
        known = {x + 0.27 * shift: e for x, e in enumerate(found) if e is not None}
        means = [e.mean for e in known.values()]
        halves = [e.half or 0.0 for e in known.values()]
        look: Any = {"label": short, "color": ink, "hatch": hatch, "linewidth": 0.5}
        axes.bar(list(known), means, 0.25, yerr=halves, edgecolor="black", **look)
      axes.set(title=task, ylabel="accuracy (%)", ylim=(0, 105))
      axes.grid(axis="x", visible=False)
    panels[-1].set_xticks(range(len(names)), names, fontsize=7)

  source = tables[0].name.split("_")[1]
  return _render(f"main_{source}", (max(7.0, 0.85 * len(names)), 5.6), draw)
