"""MIA efficacy: how many samples of D_unlearn does an attack call non-members?"""

import importlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from legonet_jax import errors
from legonet_jax.measures import checks


def mia_efficacy(
  p_retain: ArrayLike,
  y_retain: ArrayLike,
  p_test: ArrayLike,
  y_test: ArrayLike,
  p_unlearn: ArrayLike,
  y_unlearn: ArrayLike,
  seed: int,
  *,
  limit: int = 1000,
) -> float:
  """100/u Σ_{i in D_unlearn} [f(p_iy) = 0], where f tells members by p_iy.

  p_iy is the probability of the true label. f is an SVC (kernel exp(-(a - b)²), C = 3)
  fitted on equally many samples of D_retain (class 1) and D_test (class 0).

  Args:
    p_retain: probabilities [n, C] of one model on D_retain.
    y_retain: its labels [n].
    p_test: probabilities [m, C] on D_test.
    y_test: its labels [m].
    p_unlearn: probabilities [u, C] on D_unlearn.
    y_unlearn: its labels [u].
    seed: chooses the min(n, m, limit) samples of each side that f is fitted on.
    limit: the most samples per side; the cost of an SVC grows with their square.

  Returns:
    Percent. Compare it with the value of a refit model under the same seed.

  Raises:
    SampleError: on a wrong shape, values that are no probabilities, or labels out of
      range.
    ConfigError: if scikit-learn is not installed, or `limit` is below 1.
  """
  if limit < 1:
    raise errors.ConfigError(f"limit = {limit}; at least 1 sample a side is needed")
  retain = _true_label("p_retain", p_retain, y_retain)
  test = _true_label("p_test", p_test, y_test)
  unlearn = _true_label("p_unlearn", p_unlearn, y_unlearn)
  try:
    svm: Any = importlib.import_module("sklearn.svm")
  except ImportError as e:
    raise errors.ConfigError(
      'this measure needs scikit-learn; pip install "legonet-jax[experiments]"'
    ) from e
  size = min(len(retain), len(test), limit)
  rng = np.random.default_rng(seed)
  sides = [rng.choice(side, size, replace=False) for side in (retain, test)]
  attack = svm.SVC(kernel="rbf", C=3, gamma="auto")
  attack.fit(np.concatenate(sides), np.repeat([1, 0], size))
  return 100 * float((attack.predict(unlearn) == 0).mean())


def _true_label(name: str, probs: ArrayLike, labels: ArrayLike) -> checks.Floats:
  """p_iy [B, 1]."""
  p, y = checks.probabilities(name, probs, labels)
  return np.take_along_axis(p, y[:, None], axis=1)
