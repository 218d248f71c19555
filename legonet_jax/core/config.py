"""Settings, separate from state: frozen, hashable, and part of every digest.

Symbols of the paper: n = `num_adapters`, k = `top_k`, ξ = `key_noise`.
"""

import dataclasses
import functools
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core.plain import make_plain
from legonet_jax.io import hashing

KeyPolicy = Literal["replace", "given", "keep"]
FeatureMap = Literal["auto", "sqrt", "l2", "none"]
Aggregate = Literal["auto", "probs", "logits"]

# Adapters and labels are counted in int32 on the device.
_MAX_COUNT = 2**24
# Wide enough for encodings of any unit; products with weights stay within float32.
_MIN_RANGE, _MAX_RANGE = 1e-12, 1e12
# The maps `l2` and `sqrt` give |x| <= 1. If 127 steps cover a larger range than this,
# every code is -1, 0 or 1.
_MAX_UNIT_RANGE = 100.0
# Noise of this many ranges makes every key a corner of the space, whatever its anchor.
_MAX_NOISE = 100.0


def _default_solver() -> Any:
  # Imported here, because solvers import this module.
  from legonet_jax.solvers.ridge import Ridge

  return Ridge()


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
    feature_map: the fixed map that is applied to each encoding first, see
      `legonet_jax.core.features`. `auto` takes the solver's own map, which measured
      best: `sqrt` for `Ridge`, `l2` for `Sgd`.
    feature_range: largest absolute value that the map's 8 bits can hold; required for
      the map `none`. Choose it without looking at the training data.
    encoder: which encoder made the encodings, preferably the sha256 of its frozen
      weights. Part of every digest: a model on other weights is another model.
    aggregate: whether p is the mean of the activated adapters' `probs`, or the softmax
      of the mean of their `logits`. `auto` takes the solver's own choice: `logits` for
      `Ridge`, `probs` for `Sgd`.
    solver: how one adapter is trained: `Ridge()`, `Sgd()`, or your own solver.
  """

  num_classes: int
  num_adapters: int = 100
  top_k: int = 10
  seed: int = 0
  key_policy: KeyPolicy = "replace"
  key_noise: float = 0.01
  feature_map: FeatureMap = "auto"
  feature_range: float | None = None
  encoder: str = ""
  aggregate: Aggregate = "auto"
  solver: Any = dataclasses.field(default_factory=_default_solver)

  def __post_init__(self) -> None:
    make_plain(self)
    if dataclasses.is_dataclass(self.solver) and not isinstance(self.solver, type):
      make_plain(self.solver)
    for name in ("feature_map", "aggregate"):
      if getattr(self, name) == "auto":
        object.__setattr__(self, name, getattr(self.solver, name, "auto"))
    _check(self)


def describe(config: Any) -> Any:
  """`config` as plain JSON values; functions become their qualified names."""
  if dataclasses.is_dataclass(config) and not isinstance(config, type):
    fields = dataclasses.fields(config)
    return {
      "type": _type_name(type(config)),
      **{f.name: describe(getattr(config, f.name)) for f in fields},
    }
  if isinstance(config, (tuple, list)):
    return [describe(v) for v in config]
  if config is None or isinstance(config, (bool, int, float, str)):
    return config
  name = getattr(config, "__qualname__", "<")
  if "<" in name:  # a lambda or an inner function: many have the same name
    raise errors.ConfigError(
      f"{config!r} cannot be identified by its name; use plain values and functions"
      " that are defined at the top of a module as settings"
    )
  return f"{config.__module__}.{name}"


def _type_name(kind: type) -> str:
  """The bare name of a type of this library, or the full address of another type."""
  if kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
    return kind.__name__
  return f"{kind.__module__}:{kind.__qualname__}"


def is_portable(cfg: LegoConfig) -> bool:
  """Whether the solver's weights are integers, the same on every machine."""
  return bool(getattr(cfg.solver, "portable", False))


@functools.lru_cache(maxsize=256)
def for_one_adapter(cfg: LegoConfig) -> LegoConfig:
  """`cfg` with stand-ins for all settings that do not affect training one adapter.

  JAX caches executables by their settings; with stand-ins, all seeds, n and k share
  one. Where the seed matters, it is a separate argument.
  """
  return dataclasses.replace(
    cfg, num_adapters=1, top_k=1, seed=0, key_noise=0.0, encoder=""
  )


@functools.lru_cache(maxsize=256)
def for_routes(cfg: LegoConfig) -> LegoConfig:
  """`cfg` with stand-ins for all settings that do not affect anchors, keys and routes.

  The seed does, but as an array.
  """
  return dataclasses.replace(
    cfg, num_classes=2, seed=0, encoder="", aggregate="logits", solver=_default_solver()
  )


@functools.lru_cache(maxsize=256)
def for_prediction(cfg: LegoConfig) -> LegoConfig:
  """`cfg` with stand-ins for all settings that do not affect a prediction."""
  return dataclasses.replace(
    cfg,
    seed=0,
    key_policy="replace",
    key_noise=0.0,
    encoder="",
    solver=cfg.solver if is_portable(cfg) else _default_solver(),
  )


def fingerprint(cfg: LegoConfig) -> NDArray[np.uint8]:
  """A fingerprint [32] of all settings, by which a state recognises its own."""
  # Free fields cannot change the weights, so a stand-in hides their value.
  fields = dataclasses.fields(cfg.solver)
  free = {f.name: f.metadata["free"] for f in fields if "free" in f.metadata}
  return _sha256(
    dataclasses.replace(cfg, solver=dataclasses.replace(cfg.solver, **free))
  )


def sample_fingerprint(cfg: LegoConfig) -> NDArray[np.uint8]:
  """A fingerprint [32] of the settings that samples are made with."""
  return _sha256((cfg.encoder, cfg.feature_map, cfg.feature_range, cfg.num_classes))


def describe_hash(config: Any) -> str:
  """A short hash of all settings (functions by name), for the records of a study."""
  return bytes(_sha256(config)).hex()[:12]


def _sha256(config: Any) -> NDArray[np.uint8]:
  return np.frombuffer(
    bytes.fromhex(hashing.sha256_of_json(describe(config))), np.uint8
  )


def _check(cfg: LegoConfig) -> None:
  """Raises ConfigError on the first setting that cannot work."""

  def need(ok: bool, message: str) -> None:
    if not ok:
      raise errors.ConfigError(message)

  need(
    dataclasses.is_dataclass(cfg.solver) and not isinstance(cfg.solver, type),
    f"solver is {errors.brief(cfg.solver)}; give settings such as Ridge() or Sgd()",
  )
  need(
    callable(getattr(cfg.solver, "train", None)),
    f"solver {errors.brief(cfg.solver)} has no method train; see docs/extending.md",
  )
  need(
    2 <= cfg.num_classes <= _MAX_COUNT,
    f"num_classes is {cfg.num_classes}; it must be at least 2 and at most {_MAX_COUNT}",
  )
  need(
    1 <= cfg.num_adapters <= _MAX_COUNT,
    f"num_adapters is {cfg.num_adapters}; it must be between 1 and {_MAX_COUNT}",
  )
  need(
    1 <= cfg.top_k <= cfg.num_adapters,
    f"top_k is {cfg.top_k} and num_adapters {cfg.num_adapters};"
    " a sample activates at least 1 and at most all adapters",
  )
  need(0 <= cfg.seed < 2**32, f"seed is {cfg.seed}; it must be between 0 and 2**32 - 1")
  policies = ("replace", "given", "keep")
  need(
    cfg.key_policy in policies,
    f"key_policy is {cfg.key_policy!r}; it must be one of {policies}",
  )
  maps = ("sqrt", "l2", "none")
  need(
    cfg.feature_map in maps,
    f"feature_map is {cfg.feature_map!r}; it must be one of {maps}",
  )
  ways = ("probs", "logits")
  need(
    cfg.aggregate in ways, f"aggregate is {cfg.aggregate!r}; it must be one of {ways}"
  )
  largest = _MAX_RANGE if cfg.feature_map == "none" else _MAX_UNIT_RANGE
  need(
    cfg.feature_range is None or _MIN_RANGE <= cfg.feature_range <= largest,
    f"feature_range is {cfg.feature_range}; with feature_map {cfg.feature_map!r}"
    f" it must be between {_MIN_RANGE:g} and {largest:g}",
  )
  loudest = _MAX_NOISE * (1.0 if cfg.feature_range is None else cfg.feature_range)
  need(
    0 <= cfg.key_noise <= loudest,
    f"key_noise is {cfg.key_noise}; it must be between 0 and {loudest:g},"
    f" {_MAX_NOISE:g} times feature_range",
  )
  need(
    cfg.feature_map != "none" or cfg.feature_range is not None,
    "feature_map 'none' needs feature_range, the largest absolute value of an encoding"
    " (take it from public data: a maximum over the training set would remember"
    " deleted samples)",
  )
  describe(cfg)
  try:
    hash(cfg)
  except TypeError:
    raise errors.ConfigError(
      f"solver {errors.brief(cfg.solver)} has no hash, by which executables are cached;"
      " make it a frozen dataclass of plain values"
    ) from None
