"""U-LiRA: can an attacker with many models tell unlearned from never trained ones?"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from legonet_jax import errors
from legonet_jax.measures import checks, roc

RELATIVE_FLOOR = 1e-2  # of the mean variance over examples
ABSOLUTE_FLOOR = 1e-12


class Ulira(NamedTuple):
  """The success of the attack, with 95 % intervals.

  Attributes:
    auc: area under the curve; 0.5 is chance.
    auc_low: lower end.
    auc_high: upper end.
    tpr: true positive rate at the false positive rate `fpr`; chance is about `fpr`.
    tpr_low: lower end.
    tpr_high: upper end.
    fpr: the false positive rate.
  """

  auc: float
  auc_low: float
  auc_high: float
  tpr: float
  tpr_low: float
  tpr_high: float
  fpr: float


def ulira(
  unlearned: ArrayLike,
  never: ArrayLike,
  fpr: float = 0.01,
  seed: int = 0,
  resamples: int = 1000,
) -> Ulira:
  """Λ_ms = log N(x_ms; μ_s, σ_s²) - log N(x_ms; μ'_s, σ'_s²), ranked over all m and s.

  μ_s, σ_s² are the mean and variance of example s over the unlearned models of one
  half of the models, μ'_s, σ'_s² over the never trained ones of that half. Λ scores
  both kinds of models of the other half. Then the halves swap, and the results are
  averaged. A model is never scored by Gaussians that it was used to fit, and scores are
  compared within a half only. So if both kinds have one distribution, the mean AUC is
  0.5 for any M. The mean TPR is then near `fpr` but not equal, because a model's errors
  are correlated over examples. σ² is at least 1/100 of its mean over examples, and at
  least 1e-12.

  The interval is a percentile bootstrap over examples and models, averaged over the
  halves. A bootstrap over examples alone would be too narrow, because a model's errors
  are correlated over examples.

  Args:
    unlearned: one number x [M, S], such as the margin, of S examples under M models
      that trained on them, then unlearned them.
    never: the same, of M models that never trained on them. Put models with the same
      seed in the same row.
    fpr: the false positive rate at which to report the true positive rate.
    seed: of the bootstrap.
    resamples: of the bootstrap.

  Raises:
    SampleError: on unequal shapes, fewer than 4 models, NaN or infinity.
    ConfigError: on an `fpr` that is not between 0 and 1, or no resamples.
  """
  x, y = checks.model_pair("unlearned", unlearned, "never", never)
  if not 0 < fpr < 1:
    raise errors.ConfigError(f"fpr = {fpr}; give a rate between 0 and 1, such as 0.01")
  if resamples < 1:
    raise errors.ConfigError(f"resamples = {resamples}; at least 1 is needed")
  half, examples = len(x) // 2, x.shape[1]
  first, second = slice(half), slice(half, None)
  folds = [_score(x, y, first, second), _score(x, y, second, first)]
  point = np.mean(
    [roc.measure(f, np.ones(f.positive.shape, np.int64), fpr) for f in folds], axis=0
  )
  rng = np.random.default_rng(seed)
  drawn = []
  for _ in range(resamples):
    column = _draw(rng, examples)
    counts = [np.outer(_draw(rng, len(f.positive)), column) for f in folds]
    drawn.append([roc.measure(f, c, fpr) for f, c in zip(folds, counts, strict=True)])
  # The ends are averaged, not taken of the average: each half is scored by the other,
  # so their errors are correlated, and independent draws would hide that.
  low, high = np.percentile(drawn, [2.5, 97.5], axis=0).mean(axis=1)
  # Equal models give an interval of one point; rounding must not move it off chance.
  both = np.stack([point, low, high], axis=1).round(12)
  return Ulira._make([*both.ravel().tolist(), fpr])


def _draw(rng: np.random.Generator, count: int) -> checks.Labels:
  """How often each of `count` items is drawn in `count` draws with replacement."""
  return np.bincount(rng.integers(count, size=count), minlength=count)


def _score(x: checks.Floats, y: checks.Floats, fit: slice, held: slice) -> roc.Ranks:
  """Ranks of Λ for the `held` models' x and y [h, S], with Gaussians of the others."""
  shadow, shadow_never = _gaussian(x[fit]), _gaussian(y[fit])

  def ratio(values: checks.Floats) -> checks.Floats:
    return _log_density(values, *shadow) - _log_density(values, *shadow_never)

  return roc.rank(ratio(x[held]), ratio(y[held]))


def _gaussian(x: checks.Floats) -> tuple[checks.Floats, checks.Floats]:
  """Mean and variance [1, S] of x [h, S]."""
  variance = x.var(axis=0, ddof=1, keepdims=True)
  floor = max(RELATIVE_FLOOR * float(variance.mean()), ABSOLUTE_FLOOR)
  return x.mean(axis=0, keepdims=True), np.maximum(variance, floor)


def _log_density(
  x: checks.Floats, mean: checks.Floats, variance: checks.Floats
) -> checks.Floats:
  return -((x - mean) ** 2 / variance + np.log(2 * np.pi * variance)) / 2
