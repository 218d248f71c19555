"""D_aj: the samples that activate each adapter, as flat CSR arrays.

A sample activates exactly k adapters, so all memberships fit in N·k numbers however
uneven the adapters are, and no shape depends on the largest adapter.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Members(NamedTuple):
  """Members of some adapters, one after the other.

  Attributes:
    adapters: [m] int, which adapters.
    positions: [total] int, positions in the retained set, which is in hash order. They
      ascend within an adapter, so its members are in hash order as well.
    offsets: [m + 1] int; adapter i has `positions[offsets[i] : offsets[i + 1]]`.
  """

  adapters: NDArray[np.intp]
  positions: NDArray[np.intp]
  offsets: NDArray[np.intp]

  @property
  def sizes(self) -> NDArray[np.intp]:
    """|D_aj| [m]."""
    return np.diff(self.offsets)


class Balance(NamedTuple):
  """The distribution of |D_aj| over the adapters; a Gini of 0 is perfectly even."""

  smallest: int
  median: float
  largest: int
  gini: float


class Changes(NamedTuple):
  """The samples that joined or left adapters that existed before.

  Attributes:
    adapters: [c] int, which adapter, ascending.
    rows: [c] int, the sample's row in the table, or -1 if the table no longer has it.
    signs: [c] int8, 1 for a sample that joined, -1 for one that left.
  """

  adapters: NDArray[np.intp]
  rows: NDArray[np.intp]
  signs: NDArray[np.int8]

  def of(self, adapter: int) -> tuple[NDArray[np.intp], NDArray[np.int8]]:
    """Rows and signs of one adapter."""
    start, end = np.searchsorted(self.adapters, [adapter, adapter + 1])
    return self.rows[start:end], self.signs[start:end]


def members_of(
  routes: NDArray[np.int32], num_adapters: int, adapters: NDArray[np.intp]
) -> Members:
  """D_aj of `adapters` [m] (ascending) under routes [N, k]."""
  wanted = np.zeros(num_adapters, bool)
  wanted[adapters] = True
  positions, column = np.nonzero(wanted[routes])
  owner = routes[positions, column]
  # Stable, so that positions still ascend within an adapter.
  order = np.argsort(owner, kind="stable")
  offsets = np.searchsorted(owner[order], np.append(adapters, num_adapters))
  return Members(adapters, positions[order], offsets)


def sizes_of(routes: NDArray[np.int32], num_adapters: int) -> NDArray[np.intp]:
  """|D_aj| [n] under routes [N, k]."""
  return np.bincount(routes.ravel(), minlength=num_adapters)


def balance(sizes: NDArray[np.intp]) -> Balance:
  """How evenly samples spread over the adapters, from |D_aj| [n]."""
  ordered = np.sort(sizes)
  n, total = len(ordered), int(ordered.sum())
  # Mean absolute difference of all pairs over twice the mean, from the sorted sizes.
  weights = 2 * np.arange(1, n + 1) - n - 1
  gini = float((weights * ordered).sum() / (n * total)) if total else 0.0
  return Balance(int(ordered[0]), float(np.median(ordered)), int(ordered[-1]), gini)
