"""The numbers that the paper prints, as it prints them.

Source: Yu, Sun, Guo, Zhang, Cheng, "LegoNet: A Fast and Exact Unlearning Architecture",
Tables 1 and 2 and the plotted coordinates of Figures 3, 4 and 5, from its LaTeX source.
Accuracies are in percent, times in seconds. Errors of the paper are kept here as
printed; `cost_tables` corrects them.
"""

from typing import NamedTuple

SEGMENTATIONS = (10, 20, 50, 100)
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


class Accuracy(NamedTuple):
  """Accuracy on D_retain (RA), D_unlearn (FA) and D_test (TA)."""

  retain: float
  unlearn: float
  test: float


# Table 1: dataset -> (method, n or s, strategy) -> RA, FA, TA of Random100, then of
# UnClass. "origin" is before unlearning; all LegoNets have k = 10; RNC has no n or s.
_Row = tuple[str, int, str]
_TABLE_1: dict[str, dict[_Row, tuple[float, ...]]] = {
  "cifar10": {
    ("rnc", 0, "origin"): (100.0, 100.0, 95.97, 100.0, 100.0, 95.97),
    ("rnc", 0, "retrain"): (100.0, 96.0, 95.85, 100.0, 0.0, 86.41),
    ("rnc", 0, "tune"): (99.98, 97.0, 95.88, 99.99, 0.0, 86.03),
    ("rnc", 0, "ngrad"): (96.48, 94.0, 90.99, 89.54, 0.0, 75.88),
    ("sisa", 10, "origin"): (93.32, 92.0, 91.66, 92.98, 96.35, 91.66),
    ("sisa", 10, "retrain"): (93.14, 91.0, 91.56, 90.56, 0.0, 79.61),
    ("lego", 100, "origin"): (93.47, 94.0, 90.11, 93.19, 96.03, 90.11),
    ("lego", 100, "retrain"): (93.46, 94.0, 89.97, 93.49, 0.0, 80.82),
    ("lego", 1000, "origin"): (94.66, 94.0, 89.45, 94.47, 96.35, 89.45),
    ("lego", 1000, "retrain"): (94.77, 95.0, 89.45, 94.59, 0.0, 80.31),
  },
  "cifar100": {
    ("rnc", 0, "origin"): (99.98, 100.0, 80.98, 99.98, 100.0, 80.98),
    ("rnc", 0, "retrain"): (99.98, 81.0, 81.23, 99.99, 0.0, 80.33),
    ("rnc", 0, "tune"): (99.95, 90.0, 80.71, 99.94, 0.0, 79.71),
    ("rnc", 0, "ngrad"): (92.67, 88.0, 73.45, 95.28, 0.5, 70.27),
    ("sisa", 10, "origin"): (81.78, 77.0, 75.84, 81.64, 93.75, 75.84),
    ("sisa", 10, "retrain"): (81.09, 73.0, 74.74, 82.25, 0.0, 75.42),
    ("lego", 100, "origin"): (87.55, 71.0, 72.44, 87.48, 90.0, 72.44),
    ("lego", 100, "retrain"): (87.58, 70.0, 72.4, 87.46, 0.0, 71.58),
    ("lego", 1000, "origin"): (93.59, 73.0, 70.64, 93.49, 98.5, 70.64),
    ("lego", 1000, "retrain"): (93.53, 77.0, 70.46, 93.49, 0.0, 69.75),
  },
}

# Table 1's last column: the mean of its four accuracies on D_test.
OVERALL_AVERAGE: dict[_Row, float] = {
  ("rnc", 0, "origin"): 88.48,
  ("rnc", 0, "retrain"): 85.96,
  ("rnc", 0, "tune"): 85.58,
  ("rnc", 0, "ngrad"): 77.65,
  ("sisa", 10, "origin"): 83.75,
  ("sisa", 10, "retrain"): 80.33,
  ("lego", 100, "origin"): 81.28,
  ("lego", 100, "retrain"): 78.69,
  ("lego", 1000, "origin"): 80.05,
  ("lego", 1000, "retrain"): 77.49,
}

# Table 2 and Figure 3 (left): dataset -> method -> test accuracy at SEGMENTATIONS.
TABLE_2: dict[str, dict[str, tuple[float, ...]]] = {
  "cifar10": {
    "sisa": (91.66, 90.10, 81.27, 72.88),
    "fixsisa": (88.32, 87.00, 85.23, 83.76),
    "lego1": (87.90, 87.46, 86.40, 84.85),
    "lego10": (90.11, 90.08, 89.53, 89.45),
  },
  "cifar100": {
    "sisa": (75.84, 72.94, 64.20, 47.15),
    "fixsisa": (69.39, 67.42, 64.36, 62.44),
    "lego1": (67.14, 64.85, 63.44, 61.82),
    "lego10": (72.44, 72.08, 71.10, 70.64),
  },
}

# Figure 3 (right): CIFAR-10, Random100, seconds per unlearning at SEGMENTATIONS.
SECONDS: dict[str, tuple[float, ...]] = {
  "sisa": (951.15, 493.38, 233.52, 146.82),
  "lego": (310.56, 190.73, 133.82, 122.78),
}
# LegoNet's share of the time of SISA (s = 10) in percent, by n.
SHARE = {100: 32.65, 1000: 12.91}

# Figure 4: title -> ((n, k), ...), and (n, k) -> test accuracy.
PANELS: dict[str, tuple[tuple[int, int], ...]] = {
  "k = 10": ((100, 10), (200, 10), (500, 10), (1000, 10)),
  "n = 100": ((100, 1), (100, 2), (100, 5), (100, 10)),
  "n/k = 10": ((10, 1), (20, 2), (50, 5), (100, 10)),
}
_POINTS = tuple(dict.fromkeys(point for panel in PANELS.values() for point in panel))
_FIGURE_4 = {
  "cifar10": (90.11, 90.08, 89.53, 89.45, 84.85, 87.66, 89.72, 87.9, 88.84, 89.94),
  "cifar100": (72.44, 72.08, 71.1, 70.64, 61.82, 66.96, 71.64, 67.14, 69.69, 72.31),
}
# LegoNet k = 1 at n/k = 20 and 50 is in Table 2 only.
FIGURE_4: dict[str, dict[tuple[int, int], float]] = {
  name: dict(zip(_POINTS, values, strict=True)) for name, values in _FIGURE_4.items()
}

# Figure 5 as printed: its left plot, titled "Parameters" (G), draws the encoder's MACs;
# its right plot, titled "FLOPs" (M), draws the encoder's parameters.
FIGURE_5_PARAMETERS_G: dict[str, dict[int, float]] = {
  "sisa": {1: 3.678278656, 10: 36.78278656, 100: 367.8278656, 1000: 3678.278656},
  "lego": {1: 3.678278656, 10: 3.678739456, 100: 3.683347456, 1000: 3.729427456},
}
FIGURE_5_FLOPS_M: dict[str, dict[int, float]] = {
  "sisa": {1: 21.335872, 10: 213.35872, 20: 426.71744},
  "lego": {1: 21.847872, 10: 22.308672, 20: 22.820672},
}


def table_1(
  dataset: str, task: str, method: str, size: int, strategy: str
) -> Accuracy | None:
  """What Table 1 says, `size` being n or s (0 for RNC); None if it has no such row."""
  row = _TABLE_1[dataset].get((method, size, strategy))
  if row is None:
    return None
  return Accuracy(*(row[:3] if task == "random100" else row[3:]))


def table_2(dataset: str, method: str, segmentation: int) -> float | None:
  """What Table 2 says; `method` is sisa, fixsisa, lego1 or lego10."""
  row = TABLE_2[dataset].get(method)
  if row is None or segmentation not in SEGMENTATIONS:
    return None
  return row[SEGMENTATIONS.index(segmentation)]


def lego(dataset: str, n: int, k: int) -> float | None:
  """LegoNet's test accuracy at (n, k), of Figure 4 or Table 2."""
  known = FIGURE_4[dataset].get((n, k))
  return known if known is not None or k != 1 else table_2(dataset, "lego1", n)


def seconds(method: str, segmentation: int) -> float | None:
  """What Figure 3 says about one unlearning."""
  row = SECONDS.get(method)
  if row is None or segmentation not in SEGMENTATIONS:
    return None
  return row[SEGMENTATIONS.index(segmentation)]
