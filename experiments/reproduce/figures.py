"""Figures 3 and 4 of the paper, drawn from our numbers with the paper's beside them.

Ours is dark with filled markers and intervals, the paper's is grey, thin and hollow.
Methods differ in marker and line style, so that no colour is needed.
"""

from collections.abc import Callable, Sequence
import io
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.reproduce import paper
from experiments.reproduce.results import Estimate, Results, estimate, find, pick
from experiments.reproduce.table_ablation import series
from experiments.reproduce.table_time import timings
from experiments.reproduce.tables import SOLVERS, provenance

# (marker, line style, grey level) by method; a solver changes the line style.
MARKS = {"sisa": "s", "fixsisa": "D", "lego1": "v", "lego10": "o", "lego": "o"}
LINES = {None: "-", "ridge": "-", "sgd": "--"}
INKS = {"sisa": "#7a3b00", "fixsisa": "#1b6e3c", "lego1": "#5b3a8e"}
INK, PALE = "#0b3c6f", "#8a8a8a"
STYLE: Any = {
  "svg.hashsalt": "legonet",  # the same ids every time
  "svg.fonttype": "none",
  "text.parse_math": False,
  "font.size": 9,
  "axes.grid": True,
  "axes.axisbelow": True,
  "grid.color": "#dddddd",
  "axes.spines.top": False,
  "axes.spines.right": False,
  "legend.frameon": False,
  "legend.fontsize": 8,
  "lines.markersize": 5,
}


def plain(value: float, _: float) -> str:
  """A tick's label without mathematics, which labels of methods must not have."""
  return f"{value:g}"


class Drawing(NamedTuple):
  """A figure's name, what it shows, and its two files."""

  name: str
  title: str
  caption: str
  svg: bytes
  png: bytes


def render(
  name: str, title: str, caption: str, size: tuple[float, float], draw: "Draw"
) -> Drawing:
  """Draws on a figure of its own; bytes depend on nothing else."""
  with matplotlib.rc_context(STYLE):
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    svg, png = io.BytesIO(), io.BytesIO()
    quiet = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(svg, format="svg", metadata=quiet)
    figure.set_layout_engine("none")  # it is laid out; once is enough
    figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
  return Drawing(name, title, caption, svg.getvalue(), png.getvalue())


Draw = Callable[[Figure], None]


def line(
  axes: Axes,
  xs: Sequence[float],
  found: Sequence[Estimate | None],
  label: str,
  kind: str,
  solver: str | None,
) -> None:
  """Our points with intervals; gaps where nothing was measured."""
  known = [(x, e) for x, e in zip(xs, found, strict=True) if e is not None]
  if not known:
    return
  axes.errorbar(
    [x for x, _ in known],
    [e.mean for _, e in known],
    yerr=[e.half or 0.0 for _, e in known],
    label=label,
    marker=MARKS[kind],
    linestyle=LINES.get(solver, ":"),
    color=INKS.get(kind, INK),
    markerfacecolor="white" if solver == "sgd" else None,
    capsize=2,
    linewidth=1.3,
  )


def printed(
  axes: Axes, xs: Sequence[float], ys: Sequence[float], label: str, kind: str
) -> None:
  """The paper's points."""
  style: dict[str, Any] = {"color": PALE, "linewidth": 0.8, "linestyle": (0, (1, 2))}
  axes.plot(xs, ys, label=label, marker=MARKS[kind], markerfacecolor="none", **style)


def below_axes(figure: Figure, axes: Sequence[Axes], columns: int) -> None:
  """One legend under all panels, without doubles."""
  entries: dict[str, Any] = {}
  for one in axes:
    handles, labels = one.get_legend_handles_labels()
    entries |= dict(zip(labels, handles, strict=True))
  figure.legend(
    list(entries.values()), list(entries), loc="outside lower center", ncols=columns
  )


def accuracy_and_time(results: Results) -> Drawing | None:
  """Figure 3; the accuracy's panels are one for each source."""
  lines = [
    (s, [find(results, "accuracy", **s.settings(x)) for x in paper.SEGMENTATIONS])
    for s in series(results)
  ]
  measured = [(s, groups) for s, groups in lines if any(groups)]
  timed = timings(results)
  if not measured and not timed:
    return None
  sources = sorted({s.source for s, _ in measured})

  def draw(figure: Figure) -> None:
    panels = figure.subplots(1, len(sources) + bool(timed), squeeze=False)[0]
    xs = paper.SEGMENTATIONS
    for axes, source in zip(panels, sources, strict=False):
      for kind, label in _LABELS.items():
        ys = paper.TABLE_2[results.dataset][kind]
        printed(axes, xs, ys, f"{label}, paper", kind)
      for s, groups in measured:
        if s.source == source:
          found = [estimate(pick(group, "test")) for group in groups]
          line(axes, xs, found, _label(s.label, s.solver), s.printed, s.solver)
      axes.set_title(f"Test accuracy, {source}")
      axes.set_ylabel("accuracy on D_test (%)")
      _logarithmic(axes)
    if timed:
      _draw_times(panels[-1], results)
    below_axes(figure, panels, 4)

  used = [c for c in results.cells if c.kind in ("accuracy", "time")]
  caption = (
    "Figure 3 of the paper: accuracy and seconds per unlearning against segmentation "
    "(s, or n/k). Grey: the paper's numbers, on its own machine and encoder. Bars: "
    "95 % intervals. "
  )
  width = 4.3 * (len(sources) + bool(timed))
  return render(
    "figure_3",
    "Accuracy and time against segmentation",
    caption + provenance(results, used),
    (max(width, 6.5), 4.6),
    draw,
  )


_LABELS = {
  "sisa": "SISA",
  "fixsisa": "FixSISA",
  "lego1": "LegoNet k = 1",
  "lego10": "LegoNet k = 10",
}


def _label(name: str, solver: str | None) -> str:
  """Method and solver."""
  return f"{name}, {SOLVERS.get(solver, solver)}" if solver else name


def _logarithmic(axes: Axes) -> None:
  """Segmentations on a logarithmic axis with their own ticks."""
  axes.set_xscale("log")
  axes.set_xticks(paper.SEGMENTATIONS, [str(s) for s in paper.SEGMENTATIONS])
  axes.set_xticks([], minor=True)
  axes.set_xlabel("s or n/k")


def _draw_times(axes: Axes, results: Results) -> None:
  """Seconds of every contender, both axes logarithmic."""
  timed = timings(results)
  if results.dataset == "cifar10":
    for kind, ys in paper.SECONDS.items():
      name = "lego10" if kind == "lego" else kind
      printed(axes, paper.SEGMENTATIONS, ys, f"{_LABELS[name]}, paper", name)
  for who in sorted({who for at in timed.values() for who in at}, key=str):
    kind = f"lego{who[2]}" if who[0] == "lego" else who[0]
    xs = [s for s, at in timed.items() if who in at]
    found = [estimate(timed[s][who].requests) for s in xs]
    name = _LABELS.get(kind, f"LegoNet k = {who[2]}")
    line(
      axes, xs, found, _label(name, who[1]), kind if kind in MARKS else "lego", who[1]
    )
  axes.set_yscale("log")
  axes.yaxis.set_major_formatter(plain)
  axes.set_title("Time per unlearning, images")
  axes.set_ylabel("seconds")
  _logarithmic(axes)


def hyperparameters(results: Results) -> Drawing | None:
  """Figure 4: three panels with k, n and n/k fixed."""
  want = {"method": "lego", "source": "encodings"}
  found = {
    (solver, n, k): find(results, "accuracy", solver=solver, n=n, k=k, **want)
    for solver in SOLVERS
    for points in paper.PANELS.values()
    for n, k in points
  }
  used = [cell for group in found.values() for cell in group.values()]
  if not used:
    return None

  def draw(figure: Figure) -> None:
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (panel, points) in zip(panels, paper.PANELS.items(), strict=True):
      xs = range(len(points))
      ys = [paper.FIGURE_4[results.dataset][point] for point in points]
      printed(axes, xs, ys, "LegoNet, paper", "lego")
      for solver in SOLVERS:
        ours = [estimate(pick(found[solver, n, k], "test")) for n, k in points]
        line(axes, xs, ours, _label("LegoNet", solver), "lego", solver)
      axes.set_title(f"{panel} fixed")
      axes.set_xticks(xs, [f"n={n}\nk={k}" for n, k in points])
    panels[0].set_ylabel("accuracy on D_test (%)")
    below_axes(figure, panels, 3)

  return render(
    "figure_4",
    "LegoNet with different n and k",
    "Figure 4 of the paper, on encodings. Grey: the paper's numbers. Bars: 95 % "
    "intervals over seeds. " + provenance(results, used),
    (9.5, 3.6),
    draw,
  )
