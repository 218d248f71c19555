"""How evenly the samples spread over the adapters."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Balance(NamedTuple):
  """The distribution of |D_aj| over the adapters; a Gini of 0 is perfectly even."""

  smallest: int
  median: float
  largest: int
  gini: float


def balance(sizes: NDArray[Any]) -> Balance:
  """How evenly samples spread over the adapters, from |D_aj| [n]."""
  ordered = np.sort(sizes).astype(np.int64)
  n, total = len(ordered), int(ordered.sum())
  # Mean absolute difference of all pairs over twice the mean, from the sorted sizes.
  weights = 2 * np.arange(1, n + 1) - n - 1
  gini = float((weights * ordered).sum() / (n * total)) if total else 0.0
  return Balance(int(ordered[0]), float(np.median(ordered)), int(ordered[-1]), gini)
