"""A learner: how a baseline trains a model, as three functions in optax's style.

A learner is closed over its data, so SISA is written once, for whole networks on images
(`rnc`) and for linear layers on encodings (`fixsisa`). It must depend on its arguments
alone: the same ids give the same model, bit for bit, whatever was trained before.
Therefore a re-trained shard equals its refit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from legonet_jax.core.ids import Ids

AnyModel = Any


class Learner(NamedTuple):
  """A way to train one model.

  Attributes:
    init: `init(stream)` gives the model before training; streams are independent.
    train: `train(model, ids, stream, share)` trains `model` further on the samples
      `ids` (at least one, in any order), for `share` of the learner's own epochs.
    predict: `predict(model, inputs)` gives class probabilities [B, C].
  """

  init: Callable[[int], AnyModel]
  train: Callable[[AnyModel, Ids, int, float], AnyModel]
  predict: Callable[[AnyModel, Any], NDArray[Any]]
