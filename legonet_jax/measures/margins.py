"""The margin of the true class: the number that KLoM and U-LiRA are based on."""

import numpy as np
from numpy.typing import ArrayLike

from legonet_jax.measures import checks

EPSILON = 1e-12  # margins of probabilities stay within about ±28


def margins(logits: ArrayLike, labels: ArrayLike) -> checks.Floats:
  """m_i = z_iy - log Σ_{c≠y} exp z_ic = log p_iy/(1 - p_iy), [B].

  Args:
    logits: z [B, C], or log-probabilities; adding a constant to a row changes nothing.
    labels: y [B] in 0 ... C-1.

  Raises:
    SampleError: on a wrong shape, NaN or infinity, or a label out of range.
  """
  z, y = checks.class_scores("logits", logits, labels)
  true = np.arange(z.shape[1])[None] == y[:, None]
  others = np.where(true, -np.inf, z)
  top = others.max(axis=1)
  rest = top + np.log(np.exp(others - top[:, None]).sum(axis=1))
  m: checks.Floats = z[true] - rest
  return m


def margins_of_probs(probs: ArrayLike, labels: ArrayLike) -> checks.Floats:
  """As `margins`, with z = log max(p, 1e-12), from probabilities p [B, C]."""
  p, y = checks.probabilities("probs", probs, labels)
  return margins(np.log(np.maximum(p, EPSILON)), y)
