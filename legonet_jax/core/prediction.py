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
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np
from numpy.typing import NDArray

from legonet_jax.core import adapters, features, logits, placement, routing
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.model import Model, check_settings, check_shape
from legonet_jax.runtime import blocks, flags

_BLOCKS = 8  # in one call of `predict_array`


def activate(cfg: LegoConfig, model: Model, codes: jax.Array) -> jax.Array:
  """The k nearest live adapters [B, k] of codes [B, d]."""
  check_settings(cfg, model)
  return _activate(cfg.top_k, model.keys, model.live, codes)


def _activate(k: int, keys: jax.Array, live: jax.Array, codes: jax.Array) -> jax.Array:
  s = routing.scores(codes, keys)
  s = jnp.where(jnp.broadcast_to(live, s.shape), s, -jnp.inf)
  return routing.take_nearest(s, k)


_activate_jitted = jax.jit(_activate, static_argnums=0)


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
  check_shape(model, np.shape(encodings), (2,))
  return logits_of(cfg, model, features.encode_features(cfg, jnp.asarray(encodings)))


def logits_of(
  cfg: LegoConfig, model: Model, codes: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """`adapter_logits` of codes [B, d], under `jit`."""
  active = activate(cfg, model, codes)
  share = model.live[active].astype(jnp.float32)
  share = share / jnp.maximum(jnp.sum(share, axis=1, keepdims=True), 1)
  if _is_integer(model):
    high, low = logits.of_adapters(_whole(model), codes, active)
    return logits.to_float(high, low, cfg.solver.logit_unit(codes.shape[1])), share
  x = adapters.dequantize(cfg, codes)
  if active.size <= model.weights.shape[0]:
    z = jnp.einsum("bd,bkcd->bkc", x, model.weights[active], precision=flags.PRECISION)
  else:  # the products with all adapters cost less than gathering that many weights
    z = jnp.einsum("bd,ncd->bnc", x, model.weights, precision=flags.PRECISION)
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
  check_shape(model, np.shape(encodings), (1, 2))
  if np.ndim(encodings) == 1:
    one: jax.Array = predict(cfg, model, jnp.asarray(encodings)[None])[0]
    return one
  return placement.apply(probs_of, predict_array, cfg, model, encodings)


def classify(cfg: LegoConfig, model: Model, encodings: ArrayLike) -> jax.Array:
  """The class [B] int32 of encodings e [B, d], or a scalar for one encoding [d].

  With `Ridge` and the aggregate `logits`, sums are integers and a tie goes to the lower
  class, so classes of host arrays are the same on every machine. Otherwise it is the
  class of the largest probability. -1 for an encoding with a NaN or an infinity.

  Args and errors: as in `predict`.
  """
  check_settings(cfg, model)
  check_shape(model, np.shape(encodings), (1, 2))
  if np.ndim(encodings) == 1:
    one: jax.Array = classify(cfg, model, jnp.asarray(encodings)[None])[0]
    return one
  return placement.apply(classes_of, classify_array, cfg, model, encodings)


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


def probs_of(cfg: LegoConfig, model: Model, encodings: jax.Array) -> jax.Array:
  """`predict` of encodings [B, d], or of codes [B, d] int8, under `jit`."""
  return placement.by_blocks(functools.partial(_block_of_probs, cfg), model, encodings)


def to_codes(cfg: LegoConfig, encodings: jax.Array) -> jax.Array:
  """Codes [..., d] of encodings, or the codes themselves, which are int8."""
  if encodings.dtype == jnp.int8:
    return encodings
  return features.encode_features(cfg, encodings)


def _block_of_probs(cfg: LegoConfig, model: Model, e: jax.Array) -> jax.Array:
  p = _probs_of_codes(cfg, model, to_codes(cfg, e))
  sound = jnp.all(jnp.isfinite(e), axis=-1, keepdims=True)
  return jnp.where(jnp.broadcast_to(sound, p.shape), p, jnp.nan)


def _probs_of_codes(cfg: LegoConfig, model: Model, codes: jax.Array) -> jax.Array:
  z, share = logits_of(cfg, model, codes)
  if cfg.aggregate == "probs":
    return jnp.einsum("bk,bkc->bc", share, jax.nn.softmax(z))
  return jax.nn.softmax(jnp.einsum("bk,bkc->bc", share, z))


def classes_of(cfg: LegoConfig, model: Model, encodings: jax.Array) -> jax.Array:
  """`classify` of encodings [B, d], or of codes [B, d] int8, under `jit`."""
  call = functools.partial(_block_of_classes, cfg)
  return placement.by_blocks(call, model, encodings)


def _block_of_classes(cfg: LegoConfig, model: Model, e: jax.Array) -> jax.Array:
  codes = to_codes(cfg, e)
  if _sums_integers(cfg, model):
    active = activate(cfg, model, codes)
    high, low = logits.of_adapters(_whole(model), codes, active)
    found = logits.find_largest(*logits.sum_terms(high, low, model.live[active]))
  else:
    found = jnp.argmax(_probs_of_codes(cfg, model, codes), axis=-1).astype(jnp.int32)
  return jnp.where(jnp.all(jnp.isfinite(e), axis=-1), found, -1)


def _sums_integers(cfg: LegoConfig, model: Model) -> bool:
  return _is_integer(model) and cfg.aggregate == "logits"


def _is_integer(model: Model) -> bool:
  return bool(jnp.issubdtype(model.weights.dtype, jnp.integer))


def _whole(model: Model) -> jax.Array:
  """W [n, C, d], an array of JAX."""
  whole: jax.Array = getattr(model.weights, "whole", model.weights)
  return whole


def predict_array(
  cfg: LegoConfig, model: Model, encodings: NDArray[Any]
) -> NDArray[np.float32]:
  """`predict` of a host array [B, d]; compiles at most two shapes, ever."""
  check_settings(cfg, model)
  check_shape(model, encodings.shape, (2,))
  codes, sane = features.encode_sane(cfg, encodings)
  if _sums_integers(cfg, model):
    sums, counted = _sum_array(cfg, model, codes)
    unit = cfg.solver.logit_unit(codes.shape[1])
    z = sums * (unit / np.maximum(counted.sum(axis=1, keepdims=True), 1))
    z = np.exp(z - z.max(axis=1, keepdims=True))
    p = np.asarray(z / z.sum(axis=1, keepdims=True), np.float32)
  else:
    shared, bare = placement.share(cfg, model)
    p = np.empty((len(codes), cfg.num_classes), np.float32)
    _fill(p, lambda block: _probs_jitted(shared, bare, block), codes)
  p[~sane] = np.nan
  return p


def classify_array(
  cfg: LegoConfig, model: Model, encodings: NDArray[Any]
) -> NDArray[np.int32]:
  """`classify` of a host array [B, d]."""
  check_settings(cfg, model)
  check_shape(model, encodings.shape, (2,))
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
  block = placement.BLOCK
  rows = block if len(codes) <= block else block * _BLOCKS
  blocks.fill(out, call, lambda start, end: codes[start:end], rows)
