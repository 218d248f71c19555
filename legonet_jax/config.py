"""Settings, apart from state: frozen, hashable, and part of every digest.

Symbols of the paper: n = `num_adapters`, k = `top_k`, ξ = `key_noise`.
"""

from collections.abc import Callable
import dataclasses
import hashlib
import json
import operator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
import optax

from legonet_jax import errors

KeyPolicy = Literal["replace", "given", "keep"]
FeatureMap = Literal["sqrt", "l2", "none"]
Aggregate = Literal["probs", "logits"]
OptimizerFactory = Callable[..., optax.GradientTransformation]

# Ids and rows are counted in int32 on the device; the lanes of one call are few.
_MAX_ADAPTERS = 2**24


def _make_plain(config: Any) -> None:
  """Turns numbers of any kind into Python's, so that equal settings are the same."""
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    try:
      if field.type is int:
        value = operator.index(value)
      elif field.type in (float, float | None) and value is not None:
        value = float(value)
    except (TypeError, ValueError) as e:
      kind = "a whole number" if field.type is int else "a number"
      raise errors.ConfigError(f"{field.name} is {value!r}; it must be {kind}") from e
    object.__setattr__(config, field.name, value)


@dataclasses.dataclass(frozen=True)
class Sgd:
  """Algorithm 1 of the paper: softmax cross-entropy on mini-batches of D_aj.

  Attributes:
    epochs: passes over the members of an adapter.
    batch_size: samples per step. An adapter's batches follow the hash order of its
      own members, so they do not depend on any other sample.
    optimizer: the name of an optax optimiser (`"sgd"`, `"adam"`, ...) or a function
      that returns a `GradientTransformation`, defined at the top of a module, because
      the settings remember it by its name.
    options: keyword arguments of the optimiser, as pairs or a dict.
    init_scale: standard deviation of the initial weights.
    lanes: adapters trained side by side under `vmap`. Fixed for the life of a model:
      another width may give other bits.
    tile_batches: batches per lane that one call of the executable holds. It sets the
      memory of a call and how often the host is asked for more rows, never the
      weights; it is free to change for a given state.
  """

  epochs: int = 20
  batch_size: int = 64
  optimizer: str | OptimizerFactory = "adam"
  options: tuple[tuple[str, Any], ...] = (("learning_rate", 0.1),)
  init_scale: float = 0.01
  lanes: int = 2
  tile_batches: int = 16

  def __post_init__(self) -> None:
    try:
      pairs = sorted(dict(self.options).items())
    except (TypeError, ValueError) as e:
      raise errors.ConfigError(
        f"solver.options are {self.options!r}; give pairs"
      ) from e
    options = tuple((k, v.item() if hasattr(v, "item") else v) for k, v in pairs)
    object.__setattr__(self, "options", options)
    _make_plain(self)


@dataclasses.dataclass(frozen=True)
class LegoConfig:
  """Everything about a LegoNet that is not learned.

  Attributes:
    num_classes: C, the number of labels 0 ... C-1.
    num_adapters: n, the number of adapters.
    top_k: k, how many adapters a sample activates, in training and inference.
    seed: the seed of anchors, ξ, initial weights and the order of samples.
    key_policy: what happens to K_j when its anchor x*_j is deleted.
      `replace`: the next sample in hash order becomes an anchor. Exact.
      `given`: the caller hands in keys made from data that is never deleted. Exact.
      `keep`: the paper's way, the key stays. NOT exact: the deleted anchor's encoding
      remains in the model.
    key_noise: standard deviation of ξ_j, in units of the mapped encoding.
    feature_map: the fixed map of one encoding that comes before everything else, see
      `legonet_jax.features`.
    feature_range: largest absolute value that the map's 8 bits can hold; needed for
      the map `none`, and to be chosen without looking at the training data.
    encoder: what made the encodings, best the sha256 of its frozen weights. Recorded in
      every digest: a model on other weights is another model.
    aggregate: p is the mean of the activated adapters' `probs` or of their `logits`.
    solver: how one adapter is trained.
  """

  num_classes: int
  num_adapters: int = 100
  top_k: int = 10
  seed: int = 0
  key_policy: KeyPolicy = "replace"
  key_noise: float = 0.01
  feature_map: FeatureMap = "l2"
  feature_range: float | None = None
  encoder: str = ""
  aggregate: Aggregate = "probs"
  solver: Sgd = Sgd()

  def __post_init__(self) -> None:
    _make_plain(self)
    _check(self)


def make_optimizer(solver: Sgd) -> optax.GradientTransformation:
  """The optax transformation that `solver` names."""
  factory, options = solver.optimizer, dict(solver.options)
  if isinstance(factory, str):
    factory = getattr(optax, factory, factory)
  try:
    made = factory(**options)  # type: ignore[operator]
  except TypeError as e:
    raise errors.ConfigError(
      f"optimizer {solver.optimizer!r} with options {options}: {e};"
      " name a function of optax and its keyword arguments"
    ) from e
  if not isinstance(made, optax.GradientTransformation):
    raise errors.ConfigError(f"{solver.optimizer!r} is not an optimiser of optax")
  return made


def describe(config: Any) -> Any:
  """`config` as plain JSON values; functions by their qualified name."""
  if dataclasses.is_dataclass(config) and not isinstance(config, type):
    fields = dataclasses.fields(config)
    return {
      "type": type(config).__name__,
      **{f.name: describe(getattr(config, f.name)) for f in fields},
    }
  if isinstance(config, (tuple, list)):
    return [describe(v) for v in config]
  if config is None or isinstance(config, (bool, int, float, str)):
    return config
  name = getattr(config, "__qualname__", "<")
  if "<" in name:  # a lambda or an inner function: many have the same name
    raise errors.ConfigError(
      f"{config!r} cannot be told from others by its name; settings hold plain values"
      " and functions that are defined at the top of a module"
    )
  return f"{config.__module__}.{name}"


def fingerprint(cfg: LegoConfig) -> NDArray[np.uint8]:
  """A fingerprint [32] of all settings, by which a state recognises its own."""
  return _sha256(
    dataclasses.replace(cfg, solver=dataclasses.replace(cfg.solver, tile_batches=1))
  )


def sample_fingerprint(cfg: LegoConfig) -> NDArray[np.uint8]:
  """A fingerprint [32] of the settings that samples are made with."""
  return _sha256((cfg.encoder, cfg.feature_map, cfg.feature_range, cfg.num_classes))


def _sha256(config: Any) -> NDArray[np.uint8]:
  text = json.dumps(describe(config), sort_keys=True).encode()
  return np.frombuffer(hashlib.sha256(text).digest(), np.uint8)


def _check(cfg: LegoConfig) -> None:
  """Raises ConfigError on the first setting that cannot work."""

  def need(ok: bool, message: str) -> None:
    if not ok:
      raise errors.ConfigError(message)

  need(cfg.num_classes >= 2, f"num_classes is {cfg.num_classes}; it must be at least 2")
  need(
    1 <= cfg.num_adapters <= _MAX_ADAPTERS,
    f"num_adapters is {cfg.num_adapters}; it must be between 1 and {_MAX_ADAPTERS}",
  )
  need(
    1 <= cfg.top_k <= cfg.num_adapters,
    f"top_k is {cfg.top_k} and num_adapters {cfg.num_adapters};"
    " a sample activates at least 1 and at most all adapters",
  )
  need(0 <= cfg.seed < 2**32, f"seed is {cfg.seed}; it must be between 0 and 2**32 - 1")
  policies = ("replace", "given", "keep")
  need(
    cfg.key_policy in policies, f"key_policy is {cfg.key_policy!r}, not of {policies}"
  )
  maps = ("sqrt", "l2", "none")
  need(cfg.feature_map in maps, f"feature_map is {cfg.feature_map!r}, not of {maps}")
  ways = ("probs", "logits")
  need(cfg.aggregate in ways, f"aggregate is {cfg.aggregate!r}, not of {ways}")
  need(
    0 <= cfg.key_noise < float("inf"),
    f"key_noise is {cfg.key_noise}; it must be a finite number of at least 0",
  )
  need(
    cfg.feature_range is None or 0 < cfg.feature_range < float("inf"),
    f"feature_range is {cfg.feature_range}; it must be a finite number above 0",
  )
  need(
    cfg.feature_map != "none" or cfg.feature_range is not None,
    "feature_map 'none' needs feature_range, the largest absolute value of an encoding"
    " (from public data: a maximum over the training set remembers deleted samples)",
  )
  for name in ("epochs", "batch_size", "lanes", "tile_batches"):
    value = getattr(cfg.solver, name)
    need(value >= 1, f"solver.{name} is {value}; it must be at least 1")
  need(
    0 <= cfg.solver.init_scale < float("inf"),
    f"solver.init_scale is {cfg.solver.init_scale}; it must be finite and at least 0",
  )
  make_optimizer(cfg.solver)
  describe(cfg)
