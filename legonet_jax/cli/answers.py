"""Classes and probabilities from a run, shared by `legonet predict` and `evaluate`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import legonet_jax as lego
from legonet_jax import errors


def answer(
  run: lego.runs.run.Run, rows: lego.store.rows.StoreRows
) -> NDArray[np.float32]:
  """Class probabilities [m, C] of the rows' encodings [m, d]."""
  _check_live(run)
  return lego.core.prediction.predict_array(run.state, rows.encodings)


def classify(
  run: lego.runs.run.Run, rows: lego.store.rows.StoreRows
) -> NDArray[np.int32]:
  """Classes [m] of the rows' encodings [m, d]: of a run of `Ridge`, exact."""
  _check_live(run)
  return lego.core.prediction.classify_array(run.state, rows.encodings)


def _check_live(run: lego.runs.run.Run) -> None:
  if not run.state.live.any():
    raise errors.RunError(
      "all adapters are masked, so there is nothing to answer from; run `legonet heal`"
    )
