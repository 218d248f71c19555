"""Checks of the arrays that measures are given."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from legonet_jax import errors

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

MIN_MODELS = 4  # U-LiRA splits models into halves, and a variance needs two values


def class_scores(
  name: str, values: ArrayLike, labels: ArrayLike
) -> tuple[Floats, Labels]:
  """Scores [B, C] of C classes, and labels [B] in 0 ... C-1.

  Raises:
    SampleError: on a wrong shape, NaN or infinity, or a label out of range.
  """
  x, y = _table(name, values, "samples, classes"), np.asarray(labels)
  if x.shape[1] < 2:
    raise errors.SampleError(f"{name} have {x.shape[1]} class; at least 2 are needed")
  if y.shape != (len(x),) or y.dtype.kind not in "iu":
    raise errors.SampleError(
      f"labels of {name} have shape {y.shape} and type {y.dtype}; give one integer for"
      f" each of the {len(x)} rows"
    )
  bad = np.flatnonzero((y < 0) | (y >= x.shape[1]))
  if len(bad):
    raise errors.SampleError(
      f"label {y[bad[0]]} in row {bad[0]} of {name} is not in 0 ... {x.shape[1] - 1}"
    )
  return x, y.astype(np.int64)


def probabilities(
  name: str, values: ArrayLike, labels: ArrayLike
) -> tuple[Floats, Labels]:
  """As `class_scores`, but each score must be a probability, up to rounding."""
  p, y = class_scores(name, values, labels)
  if p.min() < -1e-5 or p.max() > 1 + 1e-5:
    raise errors.SampleError(
      f"{name} range from {p.min():g} to {p.max():g}; give probabilities, not logits"
    )
  return np.clip(p, 0, 1), y


def model_scores(name: str, values: ArrayLike, least: int = MIN_MODELS) -> Floats:
  """Scores [M, S]: one for each of M models and each of S samples.

  Raises:
    SampleError: on a wrong shape, NaN or infinity, or fewer than `least` models.
  """
  x = _table(name, values, "models, samples")
  if len(x) < least:
    raise errors.SampleError(
      f"{name} has {len(x)} models (rows); at least {least} are needed"
    )
  return x


def model_pair(
  name: str, values: ArrayLike, other: str, others: ArrayLike
) -> tuple[Floats, Floats]:
  """Scores [M, S] of two equally large sets of models on the same samples."""
  x, y = model_scores(name, values), model_scores(other, others)
  if x.shape != y.shape:
    raise errors.SampleError(
      f"{name} has shape {x.shape} but {other} {y.shape}; compare equally many models"
      " on the same samples"
    )
  return x, y


def _table(name: str, values: ArrayLike, axes: str) -> Floats:
  try:
    x = np.asarray(values, np.float64)
  except (TypeError, ValueError) as e:
    raise errors.SampleError(f"{name} is not an array of numbers: {e}") from e
  if x.ndim != 2 or not x.size:
    raise errors.SampleError(
      f"{name} has shape {x.shape}; give [{axes}], none of them 0"
    )
  bad = np.argwhere(~np.isfinite(x))
  if len(bad):
    row, column = bad[0]
    raise errors.SampleError(
      f"{name} has {x[row, column]} in row {row}, column {column}; give finite numbers"
    )
  return x
