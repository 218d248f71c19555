"""What predictions need: keys, weights and live adapters, with the settings."""

import dataclasses
from typing import Any

import jax

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Model:
  """The part of a state that predictions need.

  Attributes:
    cfg: the settings that predictions depend on (see `config.for_prediction`), static:
      no digest and no saved array holds them.
    keys: K [n, d] int8, in code units.
    weights: W [n, C, d]: int32 if the solver is portable, else float32.
    live: [n] bool; False for an adapter that predictions leave out: it has no members,
      or waits for its training.
  """

  cfg: LegoConfig = dataclasses.field(metadata={"static": True})
  keys: jax.Array
  weights: jax.Array
  live: jax.Array


def model_of(state: Any) -> Model:
  """The model of a state, or the model itself."""
  model = getattr(state, "model", state)
  if not isinstance(model, Model):
    raise errors.ConfigError(
      f"a {type(state).__name__} is neither a state nor a model; give what `fit`"
      " returns first, or its `model`"
    )
  return model


def check_shape(model: Model, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
  """Raises SampleError if encodings of `shape` do not fit `model`."""
  dim = model.keys.shape[-1]
  if len(shape) not in axes or shape[-1] != dim:
    one = f" or [{dim}]" if 1 in axes else ""
    raise errors.SampleError(
      f"encodings have shape {shape}; this model takes [samples, {dim}]{one}"
    )
