"""The numbers that the paper prints, from `paper.toml`.

What the paper does not have is None, or not in a dict.
"""

import pathlib
import tomllib
from typing import Any

_PRINTED: dict[str, Any] = tomllib.loads(
  (pathlib.Path(__file__).parent / "paper.toml").read_text()
)
SEGMENTATIONS = tuple(_PRINTED["segmentations"])
SECONDS: dict[str, list[float]] = _PRINTED["seconds"]["cifar10"]
OVERALL_AVERAGE: dict[str, float] = _PRINTED["overall_average"]
SHARE = {int(n): share for n, share in _PRINTED["share"].items()}
PANELS = {title: [(n, k) for n, k in at] for title, at in _PRINTED["panels"].items()}
# By plot ("parameters" in G, "flops" in M), method and size, as the paper has them.
FIGURE_5 = {
  plot: {(m, int(size)): y for m, points in lines.items() for size, y in points.items()}
  for plot, lines in _PRINTED["figure_5"].items()
}


def table_1(
  dataset: str, task: str, method: str, size: int, strategy: str
) -> dict[str, float]:
  """Accuracy on D_retain, D_unlearn and D_test; `size` is n or s, 0 for RNC."""
  row = _PRINTED["table_1"].get(dataset, {}).get(f"{method} {size} {strategy}", ())
  part = row[:3] if task == "random100" else row[3:]
  return dict(zip(("retain", "unlearn", "test"), part, strict=False))


def table_2(dataset: str, method: str, segmentation: int) -> float | None:
  """A number of Table 2; `method` is sisa, fixsisa, lego1 or lego10."""
  return _look_up("table_2", dataset, method, segmentation)


def lego(dataset: str, n: int, k: int) -> float | None:
  """LegoNet's test accuracy at (n, k), of Figure 4 or Table 2."""
  known: float | None = _PRINTED["figure_4"].get(dataset, {}).get(f"{n} {k}")
  return known if known is not None or k != 1 else table_2(dataset, "lego1", n)


def seconds(dataset: str, method: str, segmentation: int) -> float | None:
  """What Figure 3 says about one unlearning."""
  return _look_up("seconds", dataset, method, segmentation)


def _look_up(table: str, dataset: str, method: str, segmentation: int) -> float | None:
  row = _PRINTED[table].get(dataset, {}).get(method, ())
  return dict(zip(SEGMENTATIONS, row, strict=False)).get(segmentation)
