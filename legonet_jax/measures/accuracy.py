"""RA, FA, TA: accuracy on retain, forget and test, and their distance from a refit."""

import math
from typing import NamedTuple

from numpy.typing import ArrayLike

from legonet_jax import errors
from legonet_jax.measures import checks


class Accuracies(NamedTuple):
  """One model's accuracies, in percent.

  Attributes:
    retain: RA, on D_retain.
    unlearn: FA, on D_unlearn. UA = 100 - FA.
    test: TA, on D_test.
  """

  retain: float
  unlearn: float
  test: float


def accuracy(probs: ArrayLike, labels: ArrayLike) -> float:
  """100/B Σ_i [argmax_c p_ic = y_i]: percent of samples whose best class is right.

  Args:
    probs: p [B, C], or logits. Among equal values the first class counts.
    labels: y [B] in 0 ... C-1.

  Raises:
    SampleError: on a wrong shape, NaN, or a label out of range.
  """
  p, y = checks.class_scores("probs", probs, labels)
  return 100 * float((p.argmax(axis=1) == y).mean())


def tow(unlearned: Accuracies, refit: Accuracies) -> float:
  """ToW = Π_{D in unlearn, retain, test} (1 - |a_D - a'_D| / 100), "tug of war".

  Args:
    unlearned: a, the accuracies of the unlearned model.
    refit: a', the accuracies of a model trained on D_retain only.

  Returns:
    A number in [0, 1]; 1 if all three accuracies are equal.

  Raises:
    SampleError: if an accuracy is not in 0 ... 100.
  """
  for value in (*unlearned, *refit):
    if not 0 <= value <= 100:
      raise errors.SampleError(f"accuracy {value} is not in 0 ... 100; give percent")
  return math.prod(1 - abs(a - b) / 100 for a, b in zip(unlearned, refit, strict=True))
