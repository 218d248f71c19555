"""What predictions need: keys, weights, live adapters, and the settings of the fit."""

import dataclasses
from typing import Any, NamedTuple

import jax

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class PredictionSettings:
  """The settings of a fit that its predictions depend on; each as in `LegoConfig`.

  They are static: part of a tree's structure, not one of its leaves. So no digest and
  no saved array holds them, and `jit` compiles once for all models that differ only in
  seed or solver.
  """

  num_classes: int
  top_k: int
  feature_map: str
  feature_range: float | None
  aggregate: str
  encoder: str


class Model(NamedTuple):
  """The part of a state that predictions need.

  Attributes:
    keys: K [n, d] int8, in code units.
    weights: W [n, C, d]: `Weights` of integers if the solver is portable, else a
      float32 array.
    live: [n] bool; False for an adapter that predictions leave out: it has no members,
      or waits for its training.
    settings: the settings of the fit. `predict` and the other functions compare them
      with the settings that the caller gives; None skips the comparison.
  """

  keys: jax.Array
  weights: Any
  live: jax.Array
  settings: PredictionSettings | None = None


def settings_of(cfg: LegoConfig) -> PredictionSettings:
  """The part of `cfg` that predictions depend on."""
  fields = dataclasses.fields(PredictionSettings)
  return PredictionSettings(**{f.name: getattr(cfg, f.name) for f in fields})


def check_settings(cfg: LegoConfig, model: Model) -> None:
  """Raises ConfigError if `model` was fitted with other settings than `cfg`."""
  if not isinstance(model, Model):
    raise errors.ConfigError(
      f"a {type(model).__name__} is not a Model; give `state.model`"
    )
  given = settings_of(cfg)
  if model.settings is None or model.settings == given:
    return
  for name, was in dataclasses.asdict(model.settings).items():
    now = getattr(given, name)
    if now != was:
      raise errors.ConfigError(
        f"the model was fitted with {name} {errors.brief(was)}, and these settings have"
        f" {errors.brief(now)}; give the settings of the fit, or"
        " model._replace(settings=None) to use other settings on purpose"
      )


def check_shape(model: Model, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
  """Raises SampleError if encodings of `shape` do not fit `model`."""
  dim = model.keys.shape[1]
  if len(shape) not in axes or shape[-1] != dim:
    one = f" or [{dim}]" if 1 in axes else ""
    raise errors.SampleError(
      f"encodings have shape {shape}; this model takes [samples, {dim}]{one}"
    )
