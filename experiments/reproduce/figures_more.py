"""Figure 5 corrected, privacy, and Table 1 as bars."""

from collections.abc import Sequence
from typing import Any

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.reproduce.figures import INK, PALE, Drawing, below_axes, render
from experiments.reproduce.results import Cell, Results, estimate, find, pick
from experiments.reproduce.table_main import SETS, TASKS, contenders
from experiments.reproduce.table_privacy import CHANCE, privacy_cells
from experiments.reproduce.tables import (
  SOLVERS,
  STRATEGIES,
  method,
  provenance,
  solver,
)
from legonet_jax import cost

_HATCHES = {"retain": "", "unlearn": "///", "test": "..."}
_FILLS = {"retain": "#0b3c6f", "unlearn": "#d9822b", "test": "#b9cfe4"}
_SIZES = (1, 10, 100, 1000)


def costs(results: Results) -> Drawing:
  """Figure 5: parameters against s or n, MACs against s or k, computed."""
  classes = 100 if results.dataset == "cifar100" else 10
  setting = cost.Setting(num_classes=classes)

  def draw(figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    left.set_xscale("log")
    sisa = [cost.count_model(setting, cost.sisa(s)) for s in _SIZES]
    lego = [cost.count_model(setting, cost.legonet(n, 1)) for n in _SIZES]
    _two(left, _SIZES, [c.parameters for c in sisa], [c.parameters for c in lego])
    left.set(title="Parameters", xlabel="s (SISA) or n (LegoNet)", ylabel="parameters")
    few = (1, 10, 20)
    sisa = [cost.count_model(setting, cost.sisa(s)) for s in few]
    lego = [cost.count_model(setting, cost.legonet(1000, k)) for k in few]
    _two(right, few, [c.macs for c in sisa], [c.macs for c in lego])
    right.set(
      title="MACs of one inference", xlabel="s (SISA) or k (LegoNet)", ylabel="MACs"
    )
    below_axes(figure, [left, right], 2)

  return render(
    "figure_5",
    "Parameters and MACs, corrected",
    "Figure 5 of the paper with its two encoder numbers put back: ResNet-34 at "
    f"224 px, C = {classes}; on the right LegoNet has n = 1000. Computed from the "
    "network, nothing is measured.",
    (8.4, 3.4),
    draw,
  )


def _two(
  axes: Axes, xs: Sequence[int], sisa: Sequence[int], lego: Sequence[int]
) -> None:
  """SISA and LegoNet on a logarithmic axis."""
  axes.plot(xs, sisa, "s--", color="#7a3b00", label="SISA", markerfacecolor="white")
  axes.plot(xs, lego, "o-", color=INK, label="LegoNet")
  axes.set_yscale("log")
  axes.yaxis.set_major_formatter(ticker.EngFormatter())
  axes.yaxis.set_minor_formatter(ticker.NullFormatter())
  axes.set_xticks(xs, [str(x) for x in xs])


def privacy(results: Results) -> Drawing | None:
  """U-LiRA's AUC with intervals, and KLoM beside its null."""
  cells = [cell for cell in privacy_cells(results) if "ulira" in cell.result]
  if not cells:
    return None
  names = []
  for cell in cells:
    strategy = str(cell.settings.get("strategy"))
    words = method(cell.settings)
    if "solver" in cell.settings:
      words += f", {solver(cell.settings)}"
    words += f"\n{STRATEGIES.get(strategy, strategy)}, seed {cell.seed}"
    names.append(words)
  ys = list(range(len(cells)))

  def draw(figure: Figure) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    for y, cell in zip(ys, cells, strict=True):
      auc, low, high = (cell.result["ulira"][n] for n in ("auc", "auc_low", "auc_high"))
      exact = cell.settings.get("strategy") == "retrain"
      left.errorbar(
        auc,
        y,
        xerr=[[max(auc - low, 0.0)], [max(high - auc, 0.0)]],
        fmt="o" if exact else "s",
        markerfacecolor=INK if exact else "white",
        color=INK,
        capsize=3,
      )
    left.axvline(CHANCE, color="black", linestyle="--", linewidth=0.9)
    left.set(title="U-LiRA", xlabel="AUC with 95 % interval (dashed: chance)")
    left.set_yticks(ys, names)
    left.invert_yaxis()
    for side, label, mark, ink, shift in (
      ("klom", "unlearned against refitted", "o", INK, -0.12),
      ("null", "null: refitted against refitted", "x", PALE, 0.12),
    ):
      found = [cell.result.get(side, {}) for cell in cells]
      at = [y + shift for y, f in zip(ys, found, strict=True) if "median" in f]
      middle = [f["median"] for f in found if "median" in f]
      upper = [f.get("q95", f["median"]) for f in found if "median" in f]
      right.hlines(at, middle, upper, color=ink, linewidth=1.2)
      right.plot(middle, at, mark, color=ink, label=label)
    right.set(title="KLoM", xlabel="median (mark) to 95 % quantile (end of the line)")
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)

  return render(
    "privacy",
    "Privacy after unlearning",
    "Left: an exact method is at chance, the control without unlearning is above. "
    "Right: an exact method is at the null. Filled: exact unlearning; hollow: "
    "approximate or none. " + provenance(results, cells),
    (9.0, 1.4 + 0.5 * len(cells)),
    draw,
  )


def bars(results: Results, source: str) -> Drawing | None:
  """RA, FA and TA before and after, for each task."""
  shown: list[tuple[str, dict[int, Any], tuple[str, ...]]] = []
  used: list[Cell] = []
  for settings in contenders(results, source):
    group = find(results, "tasks", source=source, **settings)
    used += group.values()
    label = method(settings).replace(" ", "\n", 1).replace(", ", "\n")
    if "solver" in settings:
      label += f"\n{SOLVERS.get(settings['solver'], settings['solver'])}"
    for strategy in ("origin", "retrain", "tune", "ngrad") if group else ():
      if strategy == "origin":
        shown.append((f"{label}\nOrigin", group, ("before",)))
      elif pick(group, "random100", "after", strategy, "test"):
        words = f"{label}\n{STRATEGIES[strategy]}"
        shown.append((words, group, ("after", strategy)))
  if not shown:
    return None

  def draw(figure: Figure) -> None:
    panels = figure.subplots(len(TASKS), 1, sharex=True)
    for axes, task in zip(panels, TASKS, strict=True):
      for at, (name, short) in enumerate(SETS.items()):
        found = [estimate(pick(group, task, *path, name)) for _, group, path in shown]
        known = [(x, e) for x, e in enumerate(found) if e is not None]
        axes.bar(
          [x + 0.27 * (at - 1) for x, _ in known],
          [e.mean for _, e in known],
          0.25,
          yerr=[e.half or 0.0 for _, e in known],
          label=short,
          color=_FILLS[name],
          hatch=_HATCHES[name],
          edgecolor="black",
          linewidth=0.5,
          error_kw={"elinewidth": 0.8},
        )
      axes.set(title=TASKS[task], ylabel="accuracy (%)", ylim=(0, 105))
      axes.grid(axis="x", visible=False)
    panels[-1].set_xticks(range(len(shown)), [label for label, _, _ in shown])
    panels[-1].tick_params(axis="x", labelsize=7)
    below_axes(figure, panels, 3)

  return render(
    f"main_{source}",
    f"Before and after unlearning, {source}",
    "Table 1 as bars. RA, FA, TA: accuracy on D_retain, D_unlearn and D_test; bars: "
    "95 % intervals over seeds. " + provenance(results, used),
    (max(7.0, 0.85 * len(shown)), 5.6),
    draw,
  )
