"""Means with 95 % intervals, and differences of two groups, from `scipy.stats`.

Values of several seeds have the t-interval. Two groups are compared by the differences
over the seeds that both have (paired), because a seed fixes the samples that are
forgotten; with fewer than two common seeds by Welch's interval. One value has no
interval.
"""

from collections.abc import Mapping, Sequence
import math
from typing import Any, NamedTuple
import warnings

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.95
Values = Mapping[int, float]  # by seed


class Estimate(NamedTuple):
  """A mean and half the width of its interval (None with one value).

  `number` of values, `digits` after the point when shown.
  """

  mean: float
  half: float | None = None
  number: int = 1
  digits: int = 2

  @property
  def low(self) -> float:
    """Lower end; minus infinity without an interval."""
    return -math.inf if self.half is None else self.mean - self.half

  @property
  def high(self) -> float:
    """Upper end; infinity without an interval."""
    return math.inf if self.half is None else self.mean + self.half


def estimate(
  values: Values | Sequence[float], digits: int | None = 2
) -> Estimate | None:
  """Mean and t-interval; None without values.

  With `digits` None the mean is shown with three significant digits.
  """
  v = np.array(list(values.values() if isinstance(values, Mapping) else values), float)
  if v.size == 0:
    return None
  mean, half = float(v.mean()), None
  if v.size > 1:
    half = float(stats.t.ppf((1 + LEVEL) / 2, v.size - 1) * stats.sem(v))
  if digits is None:
    size = math.floor(math.log10(abs(mean))) if mean else 0
    digits = min(max(2 - size, 0), 9)
  return Estimate(mean, half, v.size, digits)


def difference(a: Values, b: Values) -> Estimate | None:
  """a - b: paired over common seeds if there are two, else Welch's interval."""
  common = sorted(set(a) & set(b))
  if len(common) > 1 or (len(common) == 1 and len(a) == len(b) == 1):
    return estimate([a[seed] - b[seed] for seed in common])
  return compare_independent(list(a.values()), list(b.values()))


def compare_independent(a: Sequence[float], b: Sequence[float]) -> Estimate | None:
  """mean(a) - mean(b) with Welch's interval: the variances may differ."""
  if not a or not b:
    return None
  mean, number = float(np.mean(a) - np.mean(b)), min(len(a), len(b))
  if number < 2:
    return Estimate(mean, None, number)
  if np.ptp(a) == 0 and np.ptp(b) == 0:  # scipy has no interval without any variance
    return Estimate(mean, 0.0, number)
  with warnings.catch_warnings():
    warnings.simplefilter("ignore", RuntimeWarning)  # one group may be constant
    low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval(LEVEL)
  return Estimate(mean, float(high - low) / 2, number)


def bootstrap_excess(a: NDArray[Any], b: NDArray[Any]) -> dict[str, float]:
  """mean(a) / mean(b) - 1 with its bootstrap interval over the pairs (a_i, b_i)."""

  def excess(a: NDArray[Any], b: NDArray[Any], axis: int = -1) -> Any:
    return a.mean(axis=axis) / b.mean(axis=axis) - 1

  how = {"paired": True, "method": "percentile", "confidence_level": LEVEL}
  rng = np.random.default_rng(0)
  drawn = stats.bootstrap((a, b), excess, n_resamples=1000, rng=rng, **how)
  low, high = drawn.confidence_interval
  return {"mean": float(excess(a, b)), "low": float(low), "high": float(high)}
