"""KLoM, KL of margins: are unlearned models distributed like retrained models?"""

import numpy as np
from numpy.typing import ArrayLike

from legonet_jax import errors
from legonet_jax.measures import checks

EPSILON = 1e-5  # keeps KL finite if a bin is empty on one side


def klom(unlearned: ArrayLike, oracle: ArrayLike, bins: int = 20) -> checks.Floats:
  """KL_s = Σ_b P_sb log P_sb/Q_sb over the margins of each sample s, [S], in nats.

  P_sb = (c_sb/M + ε) / (1 + bins ε) with ε = 1e-5, where c_sb counts the unlearned
  models whose margin of s falls in bin b; Q_sb likewise counts oracles. The bins are
  equally wide and span all margins of s under both kinds of models; the last one
  includes its upper end. If all margins of s are equal, KL_s = 0.

  Args:
    unlearned: margins [M, S] of M models that trained on the samples, then
      unlearned them.
    oracle: margins [M, S] of M models that never saw them.
    bins: number of bins.

  Raises:
    SampleError: on unequal shapes, fewer than 4 models, NaN or infinity.
    ConfigError: on fewer than 2 bins.
  """
  x, y = checks.model_pair("unlearned", unlearned, "oracle", oracle)
  if bins < 2:
    raise errors.ConfigError(f"bins = {bins}; at least 2 are needed to compare")
  both = np.concatenate([x, y])
  low, high = both.min(axis=0), both.max(axis=0)
  p, q = (_histogram(values, low, high, bins) for values in (x, y))
  kl: checks.Floats = (p * np.log(p / q)).sum(axis=1)
  return kl


def klom_null(oracle: ArrayLike, bins: int = 20) -> checks.Floats:
  """KLoM [S] of the first M oracles against the last M, from margins [2M, S].

  M models fill 20 bins with noise, so KLoM is above 0 even between equal distributions.
  This is its value there; compare it with a KLoM of the same M.
  """
  x = checks.model_scores("oracle", oracle, least=2 * checks.MIN_MODELS)
  if len(x) % 2:
    raise errors.SampleError(
      f"oracle has {len(x)} models (rows); give an even number, for two halves"
    )
  return klom(x[: len(x) // 2], x[len(x) // 2 :], bins)


def _histogram(
  x: checks.Floats, low: checks.Floats, high: checks.Floats, bins: int
) -> checks.Floats:
  """Smoothed shares [S, bins] of x [M, S]."""
  samples = x.shape[1]
  width = np.where(high > low, high - low, 1)[None]
  # Multiplied before dividing, so that integer margins on a bin's edge stay there.
  inside = np.minimum(bins * (x - low[None]) / width, bins - 1).astype(np.int64)
  flat = (inside + bins * np.arange(samples)[None]).ravel()
  counts = np.bincount(flat, minlength=bins * samples).reshape(samples, bins)
  return (counts / len(x) + EPSILON) / (1 + bins * EPSILON)
