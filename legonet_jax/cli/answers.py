"""Class probabilities from a run, shared by `legonet predict` and `evaluate`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import legonet_jax as lego
from legonet_jax import errors


def answer(
  run: lego.runs.run.Run, rows: lego.store.rows.StoreRows
) -> NDArray[np.float32]:
  """Class probabilities [m, C] of the rows' encodings [m, d]."""
  if not np.asarray(run.state.model.live).any():
    raise errors.RunError(
      "all adapters are masked, so there is nothing to answer from; run `legonet heal`"
    )
  return lego.core.prediction.predict_array(run.cfg, run.state.model, rows.encodings)
