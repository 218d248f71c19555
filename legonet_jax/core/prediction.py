"""p = 1/k Σ M_z'(e, θ_z') (paper, eq. 2): the mean of the k activated adapters.

Pure functions of arrays, for use inside a caller's `jit`, `vmap` or sharding. For host
arrays there is `predict_array`, which does not compile anew for every length. A model
knows the settings of its fit, and every function here refuses other settings: the
result would look like a prediction, but be worse.

From host arrays, codes and the sums of integer weights are exact, so the class of a
sample is the same on every machine. On a device only the map of a raw encoding to codes
is computed in float32 (see `features`).
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import adapters, features, logits, routing
from legonet_jax.core.config import LegoConfig, for_prediction
from legonet_jax.core.weights import Weights
from legonet_jax.runtime import blocks

_BLOCK = 128
_BLOCKS = 8  # in one call of `predict_array`


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


def activate(cfg: LegoConfig, model: Model, codes: jax.Array) -> jax.Array:
  """The k nearest live adapters [B, k] of codes [B, d]."""
  check_settings(cfg, model)
  return _activate(cfg.top_k, model.keys, model.live, codes)


def _activate(
  k: int, keys: jax.Array, live: jax.Array, codes: jax.Array
) -> jax.Array:
  s = routing.scores(codes, keys)
  s = jnp.where(jnp.broadcast_to(live, s.shape), s, -jnp.inf)
  return jax.lax.top_k(s, k)[1]


_activate_jitted = jax.jit(_activate, static_argnums=0)


def _check_shape(model: Model, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
  """Raises SampleError if encodings of `shape` do not fit `model`."""
  dim = model.keys.shape[1]
  if len(shape) not in axes or shape[-1] != dim:
    one = f" or [{dim}]" if 1 in axes else ""
    raise errors.SampleError(
      f"encodings have shape {shape}; this model takes [samples, {dim}]{one}"
    )


def adapter_logits(
  cfg: LegoConfig, model: Model, encodings: ArrayLike
) -> tuple[jax.Array, jax.Array]:
  """z [B, k, C] of the adapters that encodings e [B, d] activate, and their weights.

  Returns:
    Logits [B, k, C], and weights [B, k], which are 1/k' for the k' live adapters and 0
    for the others. `predict` computes Σ weights · softmax(z) or softmax(Σ weights · z).
    All logits are in memory at once, so give a few thousand rows at a time.

  Raises:
    ConfigError: if the model was fitted with other settings.
  """
  check_settings(cfg, model)
  _check_shape(model, np.shape(encodings), (2,))
  codes = features.encode_features(cfg, jnp.asarray(encodings))
  return _adapter_logits(cfg, model, codes)


def _adapter_logits(
  cfg: LegoConfig, model: Model, codes: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """`adapter_logits` of codes [B, d]."""
  active = activate(cfg, model, codes)
  share = model.live[active].astype(jnp.float32)
  share = share / jnp.maximum(jnp.sum(share, axis=1, keepdims=True), 1)
  if isinstance(model.weights, Weights):
    high, low = logits.of_adapters(model.weights.whole, codes, active)
    return logits.to_float(high, low, cfg.solver.logit_unit(codes.shape[1])), share
  x = adapters.dequantize(cfg, codes)
  if active.size <= model.weights.shape[0]:
    z = jnp.einsum("bd,bkcd->bkc", x, model.weights[active])
  else:  # the products with all adapters cost less than gathering that many weights
    z = jnp.einsum("bd,ncd->bnc", x, model.weights)
    z = jnp.take_along_axis(z, active[:, :, None], axis=1)
  return z, share


def predict(cfg: LegoConfig, model: Model, encodings: ArrayLike) -> jax.Array:
  """Class probabilities p [B, C] of encodings e [B, d], or [C] of one encoding [d].

  Outside `jit` it compiles itself, once for all seeds and solvers. Numpy arrays of any
  length share two executables. If an array is split by rows over devices, each device
  predicts its own rows (put the model on all of them first). Inside `jit`, `vmap` or
  `shard_map` it is traced like any other function.

  Args:
    cfg: the settings of the fit; hashable, so close over it or mark it static.
    model: `state.model`.
    encodings: the encoder's output, not mapped; a numpy or JAX array.

  Returns:
    Probabilities float32; NaN for an encoding with a NaN or an infinity. Their gradient
    with respect to encodings is zero, because encodings are rounded.

  Raises:
    ConfigError: if the model was fitted with other settings; under `jit` at the first
      call, when it is traced.
    SampleError: if the encodings have another width than the model.
  """
  check_settings(cfg, model)
  _check_shape(model, np.shape(encodings), (1, 2))
  if np.ndim(encodings) == 1:
    one: jax.Array = predict(cfg, model, jnp.asarray(encodings)[None])[0]
    return one
  return _apply(_predict, predict_array, cfg, model, encodings)


def classify(cfg: LegoConfig, model: Model, encodings: ArrayLike) -> jax.Array:
  """The class [B] int32 of encodings e [B, d], or a scalar for one encoding [d].

  With `Ridge` and the aggregate `logits`, sums are integers and a tie goes to the lower
  class, so classes of host arrays are the same on every machine. Otherwise it is the
  class of the largest probability. -1 for an encoding with a NaN or an infinity.

  Args and errors: as in `predict`.
  """
  check_settings(cfg, model)
  _check_shape(model, np.shape(encodings), (1, 2))
  if np.ndim(encodings) == 1:
    one: jax.Array = classify(cfg, model, jnp.asarray(encodings)[None])[0]
    return one
  return _apply(_classify, classify_array, cfg, model, encodings)


def _apply(
  on_device: Callable[[LegoConfig, Model, jax.Array], jax.Array],
  on_host: Callable[[LegoConfig, Model, NDArray[Any]], NDArray[Any]],
  cfg: LegoConfig,
  model: Model,
  encodings: ArrayLike,
) -> jax.Array:
  """Applies a function where the encodings are: in a trace, on devices, on the host."""
  if any(isinstance(x, jax.core.Tracer) for x in (encodings, *_leaves(model))):
    return on_device(cfg, model, jnp.asarray(encodings))
  if isinstance(encodings, jax.Array) and not _is_on_host(encodings):
    return _on_devices(on_device, *_shared(cfg, model), encodings)
  return jnp.asarray(on_host(cfg, model, np.asarray(encodings)))


def _leaves(model: Model) -> list[Any]:
  """The arrays of a model, without putting its weights together."""
  weights = model.weights
  whole = weights.whole_or_none if isinstance(weights, Weights) else weights
  return [model.keys, model.live, whole]


def _is_on_host(array: jax.Array) -> bool:
  devices = array.sharding.device_set
  return len(devices) == 1 and next(iter(devices)).platform == "cpu"


def predict_images(
  cfg: LegoConfig,
  encode: Callable[[Any, jax.Array], jax.Array],
  model: Model,
  params: Any,
  images: jax.Array,
) -> jax.Array:
  """Predict ∘ encode: class probabilities p [B, C] of images, or of any other input.

  Args:
    cfg: the settings of the fit; static under `jit`.
    encode: any pure function (params, batch) -> [B, d]; static under `jit`.
    model: `state.model`.
    params: the parameters of `encode`.
    images: a batch of inputs for `encode`.

  Returns:
    Probabilities float32.

  Raises:
    ConfigError: if the model was fitted with other settings.
  """
  check_settings(cfg, model)
  return predict(cfg, model, encode(params, images))


def _predict(cfg: LegoConfig, model: Model, encodings: jax.Array) -> jax.Array:
  """`predict` of [B, d], under `jit`."""
  return _by_blocks(functools.partial(_block_of_probs, cfg, model), encodings)


def _block_of_probs(cfg: LegoConfig, model: Model, e: jax.Array) -> jax.Array:
  p = _probs_of_codes(cfg, model, features.encode_features(cfg, e))
  sound = jnp.all(jnp.isfinite(e), axis=-1, keepdims=True)
  return jnp.where(jnp.broadcast_to(sound, p.shape), p, jnp.nan)


def _probs_of_codes(cfg: LegoConfig, model: Model, codes: jax.Array) -> jax.Array:
  z, share = _adapter_logits(cfg, model, codes)
  if cfg.aggregate == "probs":
    return jnp.einsum("bk,bkc->bc", share, jax.nn.softmax(z))
  return jax.nn.softmax(jnp.einsum("bk,bkc->bc", share, z))


def _classify(cfg: LegoConfig, model: Model, encodings: jax.Array) -> jax.Array:
  """`classify` of [B, d], under `jit`."""
  return _by_blocks(functools.partial(_block_of_classes, cfg, model), encodings)


def _block_of_classes(cfg: LegoConfig, model: Model, e: jax.Array) -> jax.Array:
  codes = features.encode_features(cfg, e)
  if _sums_integers(cfg, model):
    active = activate(cfg, model, codes)
    high, low = logits.of_adapters(model.weights.whole, codes, active)
    found = logits.find_largest(*logits.sum_terms(high, low, model.live[active]))
  else:
    found = jnp.argmax(_probs_of_codes(cfg, model, codes), axis=-1).astype(jnp.int32)
  return jnp.where(jnp.all(jnp.isfinite(e), axis=-1), found, -1)


def _sums_integers(cfg: LegoConfig, model: Model) -> bool:
  return isinstance(model.weights, Weights) and cfg.aggregate == "logits"


def _by_blocks(
  call: Callable[[jax.Array], jax.Array], encodings: jax.Array
) -> jax.Array:
  """`call` of [B, d], block by block, so that what it needs in memory stays small."""
  count, dim = encodings.shape
  if count <= _BLOCK:
    return call(encodings)
  number = -(-count // _BLOCK)
  padded = jnp.pad(encodings, ((0, number * _BLOCK - count), (0, 0)))
  # Block b has the rows b, b + number, b + 2 number ..., so that if a batch is split
  # over devices, each device has an equal part of every block.
  blocks = padded.reshape(_BLOCK, number, dim).swapaxes(0, 1)
  out: jax.Array = jax.lax.map(call, blocks).swapaxes(0, 1)
  return out.reshape(number * _BLOCK, *out.shape[2:])[:count]


def _on_devices(
  call: Callable[..., jax.Array], cfg: LegoConfig, model: Model, encodings: jax.Array
) -> jax.Array:
  """`call` where the encodings are: on one device, or split by rows over many."""
  where: Any = encodings.sharding
  spec = tuple(where.spec) if isinstance(where, NamedSharding) else ()
  out: jax.Array
  if spec and spec[0] is not None and not any(spec[1:]):
    everywhere = NamedSharding(where.mesh, PartitionSpec())  # type: ignore[no-untyped-call]
    model = jax.device_put(model, everywhere)
    out = _split(call, cfg, where.mesh, spec[0], model, encodings)
  else:
    out = _whole(call, cfg, model, encodings)
  return out


@functools.partial(jax.jit, static_argnums=(0, 1))
def _whole(
  call: Callable[..., jax.Array], cfg: LegoConfig, model: Model, encodings: jax.Array
) -> jax.Array:
  return call(cfg, model, encodings)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _split(
  call: Callable[..., jax.Array],
  cfg: LegoConfig,
  mesh: Mesh,
  axis: Any,
  model: Model,
  encodings: jax.Array,
) -> jax.Array:
  """`call` by each device of a mesh on its own rows; nothing moves between them.

  Without this, XLA would gather the scores of all rows on every device for `top_k`.
  """
  by_row, whole = PartitionSpec(axis), PartitionSpec()  # type: ignore[no-untyped-call]
  split: jax.Array = jax.shard_map(
    functools.partial(call, cfg),
    mesh=mesh,
    in_specs=(whole, by_row),
    out_specs=by_row,
  )(model, encodings)
  return split


def _shared(cfg: LegoConfig, model: Model) -> tuple[LegoConfig, Model]:
  """Settings and model without the fields that do not affect the arithmetic.

  JAX caches executables by static arguments; so all seeds, solvers and encoders share
  one.
  """
  shared = for_prediction(dataclasses.replace(cfg, encoder=""))
  return shared, model._replace(settings=None)


def predict_array(
  cfg: LegoConfig, model: Model, encodings: NDArray[Any]
) -> NDArray[np.float32]:
  """`predict` of a host array [B, d]; compiles at most two shapes, ever."""
  check_settings(cfg, model)
  _check_shape(model, encodings.shape, (2,))
  codes, sane = features.encode_sane(cfg, encodings)
  if _sums_integers(cfg, model):
    sums, counted = _sum_array(cfg, model, codes)
    unit = cfg.solver.logit_unit(codes.shape[1])
    z = sums * (unit / np.maximum(counted.sum(axis=1, keepdims=True), 1))
    z = np.exp(z - z.max(axis=1, keepdims=True))
    p = (z / z.sum(axis=1, keepdims=True)).astype(np.float32)
  else:
    shared, bare = _shared(cfg, model)
    p = np.empty((len(codes), cfg.num_classes), np.float32)
    _fill(p, lambda block: _probs_jitted(shared, bare, block), codes)
  p[~sane] = np.nan
  return p


def classify_array(
  cfg: LegoConfig, model: Model, encodings: NDArray[Any]
) -> NDArray[np.int32]:
  """`classify` of a host array [B, d]."""
  check_settings(cfg, model)
  _check_shape(model, encodings.shape, (2,))
  codes, sane = features.encode_sane(cfg, encodings)
  if _sums_integers(cfg, model):
    best = np.argmax(_sum_array(cfg, model, codes)[0], axis=1)
  else:
    best = np.argmax(np.nan_to_num(predict_array(cfg, model, encodings)), axis=1)
  return np.where(sane, best, -1).astype(np.int32)


_probs_jitted = jax.jit(_probs_of_codes, static_argnums=0)


def _sum_array(
  cfg: LegoConfig, model: Model, codes: NDArray[np.int8]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
  """Σ_k W x [B, C] of codes [B, d], and which of the k adapters [B, k] are live."""
  active = np.empty((len(codes), cfg.top_k), np.int32)
  keys, live = model.keys, model.live
  _fill(active, lambda block: _activate_jitted(cfg.top_k, keys, live, block), codes)
  counted = np.asarray(live)[active]
  return logits.sum_on_host(model.weights, codes, active, counted), counted


def _fill(
  out: NDArray[Any],
  call: Callable[[NDArray[Any]], jax.Array],
  codes: NDArray[np.int8],
) -> None:
  rows = _BLOCK if len(codes) <= _BLOCK else _BLOCK * _BLOCKS
  blocks.fill(out, call, lambda start, end: codes[start:end], rows)
