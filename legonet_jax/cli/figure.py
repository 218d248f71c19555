"""The quickstart's figure, readable in black and white."""

from __future__ import annotations

import pathlib
from typing import Any

import legonet_jax as lego


def quickstart(path: pathlib.Path, results: list[dict[str, Any]]) -> None:
  """Saves accuracy before and after each task, and its time against a refit."""
  import matplotlib  # here, because the import is slow

  matplotlib.use("Agg")
  from matplotlib import pyplot

  parts = ("retain", "unlearn", "test")
  fig, axes = pyplot.subplots(
    1, len(results) + 1, figsize=(10, 3.2), width_ratios=[*[1] * len(results), 1.1]
  )
  for ax, result in zip(axes, results, strict=False):
    styles = (("before", "#bbbbbb", ""), ("after", "#1f5fa8", "//"))
    for shift, (when, color, hatch) in zip((-0.2, 0.2), styles, strict=True):
      heights = [100 * result[when][part] for part in parts]
      bars = ax.bar(
        [x + shift for x in range(3)],
        heights,
        0.38,
        label=when,
        color=color,
        hatch=hatch,
        edgecolor="black",
        linewidth=0.6,
      )
      ax.bar_label(bars, fmt="%.1f", fontsize=7, padding=1)
    ax.set_xticks(range(3), parts)
    ax.set_ylim(0, 118)
    ax.set_title(f"forget {result['task']}", fontsize=9)
  axes[0].set_ylabel("accuracy (%)")
  axes[0].legend(fontsize=7, loc="upper right", ncols=2, frameon=False)

  names, seconds = [], []
  for result in results:
    what = result["task"].split(",")[0]
    names += [what if result["requests"] == 1 else "one sample", "refit"]
    seconds += [result["median_seconds"], result["refit_seconds"]]
  ax = axes[-1]
  colors = ["#1f5fa8", "#bbbbbb"] * len(results)
  bars = ax.barh(
    range(len(names)), seconds, color=colors, edgecolor="black", height=0.7
  )
  ax.bar_label(bars, fmt="%.2f s", fontsize=7, padding=2)
  ax.set_yticks(range(len(names)), names, fontsize=7)
  ax.invert_yaxis()
  ax.set_xlim(0, 1.25 * max(seconds))
  ax.set_xlabel("seconds per request")
  equal = all(r["digest"] == r["refit_digest"] for r in results)
  ax.set_title(f"digest {'==' if equal else '!='} refit", fontsize=9)
  for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)
  fig.tight_layout()
  with lego.io.files.atomic(path) as temporary:
    fig.savefig(temporary, dpi=150, format=path.suffix.lstrip("."))
  pyplot.close(fig)
