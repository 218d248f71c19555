"""AUC, and the true positive rate at a small false positive rate, from ranks.

Both are unbiased for any number of scores: if the two kinds of scores are exchangeable,
E[AUC] = 1/2 and E[TPR at f] = f. The usual empirical TPR is biased; it is at chance
only for many scores.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax.measures import checks


class Ranks(NamedTuple):
  """Scores as ranks; equal scores share a rank, the largest score has rank 0.

  Attributes:
    distinct: G, the number of distinct scores.
    positive: [...] int64 in 0 ... G-1.
    negative: [...] int64 in 0 ... G-1.
  """

  distinct: int
  positive: NDArray[np.int64]
  negative: NDArray[np.int64]


class RocPoint(NamedTuple):
  """The area under a ROC curve, and its height at one false positive rate."""

  auc: float
  tpr: float


def rank(positive: checks.Floats, negative: checks.Floats) -> Ranks:
  """The ranks of both kinds of scores among all; a high score means positive."""
  values, ranks = np.unique(
    -np.concatenate([positive.ravel(), negative.ravel()]), return_inverse=True
  )
  first, second = np.split(ranks, [positive.size])
  return Ranks(
    len(values), first.reshape(positive.shape), second.reshape(negative.shape)
  )


def measure(ranks: Ranks, counts: NDArray[np.int64], fpr: float) -> RocPoint:
  """AUC and TPR of U positives and N negatives, ties broken by chance.

  AUC = P(s⁺ > s⁻) + P(s⁺ = s⁻)/2. With t_i the share of positives above the i-th
  largest of N negatives, t_0 = 0 and t_{N+1} = 1, TPR at f is t at i = f (N + 1),
  linear in between. So at f = 0.01 at least 99 negatives are needed to reach 1.

  Args:
    ranks: of the scores.
    counts: how often each score counts; the same shape and values for both kinds.
    fpr: f in (0, 1).
  """
  p = np.bincount(ranks.positive.ravel(), counts.ravel(), ranks.distinct)
  n = np.bincount(ranks.negative.ravel(), counts.ravel(), ranks.distinct)
  positives, negatives = p.sum(), n.sum()
  above_p, above_n = np.cumsum(p) - p, np.cumsum(n) - n
  beaten = p @ (negatives - above_n - n / 2)
  # If n negatives and p positives are tied, p i/(n + 1) positives are above the i-th
  # negative on average. That is linear in i, so both ends are enough.
  held = n > 0
  i = np.stack([above_n + 1, above_n + n], axis=1)[held].ravel()
  t = np.stack([above_p + p / (n + 1), above_p + p * n / (n + 1)], axis=1)[held].ravel()
  i = np.concatenate([[0], i, [negatives + 1]])
  t = np.concatenate([[0], t, [positives]])
  height = np.interp(fpr * (negatives + 1), i, t)
  return RocPoint(float(beaten / (positives * negatives)), float(height / positives))
