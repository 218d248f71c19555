"""p = 1/k Σ M_z'(e, θ_z') (paper, eq. 2): the mean of the k activated adapters.

Pure functions of arrays, for use inside a caller's `jit`, `vmap` or sharding. For host
arrays there is `predict_array`, which does not compile anew for every length. A model
knows the settings of its fit.

From host arrays, codes and the sums of integer weights are exact, so the class of a
sample is the same on every machine. On a device only the map of a raw encoding to codes
is computed in float32 (see `features`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np
from numpy.typing import NDArray

from legonet_jax.core import adapters, features, logits, placement, routing
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.model import Model, check_shape, model_of


def activate(model: Model, codes: jax.Array) -> jax.Array:
  """The k nearest live adapters [B, k] of codes [B, d]."""
  s = routing.scores(codes, model.keys)
  s = jnp.where(jnp.broadcast_to(model.live, s.shape), s, -jnp.inf)
  return routing.take_nearest(s, model.cfg.top_k)


def adapter_logits(state: Any, encodings: ArrayLike) -> tuple[jax.Array, jax.Array]:
  """z [B, k, C] of the adapters that encodings e [B, d] activate, and their weights.

  Args: as in `predict`.

  Returns:
    Logits [B, k, C], and weights [B, k], which are 1/k' for the k' live adapters and 0
    for the others. `predict` computes Σ weights · softmax(z) or softmax(Σ weights · z).
    All logits are in memory at once, so give a few thousand rows at a time.
  """
  model = model_of(state)
  check_shape(model, np.shape(encodings), (2,))
  found: tuple[jax.Array, jax.Array]
  found = placement.by_rows(_logits_of, model, jnp.asarray(encodings))
  return found


def _logits_of(model: Model, encodings: jax.Array) -> tuple[jax.Array, jax.Array]:
  return logits_of(model, to_codes(model.cfg, encodings))


def logits_of(model: Model, codes: jax.Array) -> tuple[jax.Array, jax.Array]:
  """`adapter_logits` of codes [B, d], under `jit`."""
  active = activate(model, codes)
  counted = model.live[active]
  number = jnp.maximum(jnp.sum(counted, axis=1, keepdims=True), 1)
  return _multiply(model, codes, active), counted / number


def _multiply(model: Model, codes: jax.Array, active: jax.Array) -> jax.Array:
  """z [B, k, C] of the adapters `active` [B, k]."""
  if not _is_integer(model):
    x = adapters.dequantize(model.cfg, codes)
    return logits.of_floats(model.weights, x, active)
  z = logits.to_float(*logits.of_adapters(model.weights, codes, active))
  return _keep(z * np.float32(model.cfg.solver.logit_unit(codes.shape[1])))


def _keep(product: jax.Array) -> jax.Array:
  """A product that XLA may not fuse with a sum, which would round it elsewhere."""
  barrier: Any = jax.lax.optimization_barrier
  kept: jax.Array = barrier(product)
  return kept


def predict(state: Any, encodings: ArrayLike) -> jax.Array:
  """Class probabilities p [B, C] of encodings e [B, d], or [C] of one encoding [d].

  Outside `jit` it compiles itself, once for all seeds. Numpy arrays of any length share
  two executables. If an array is split by rows over devices, each device predicts its
  own rows (put the model on all of them first). Inside `jit`, `vmap` or `shard_map` it
  is traced like any other function; pass `state.model` as an argument.

  Args:
    state: a state, or its `model`.
    encodings: the encoder's output, not mapped, or codes, which are int8; a numpy or
      JAX array. Raw encodings are mapped exactly on the host; on a device and in a
      trace they are mapped in float32, where a code that lies next to a rounding
      boundary may come out one off. Codes (`features.encode_array`) give the same class
      everywhere.

  Returns:
    Probabilities float32; NaN for an encoding with a NaN or an infinity. Their gradient
    with respect to encodings is zero, because encodings are rounded.

  Raises:
    SampleError: if the encodings have another width than the model.
  """
  model = model_of(state)
  check_shape(model, np.shape(encodings), (1, 2))
  if np.ndim(encodings) == 1:
    one: jax.Array = predict(model, jnp.asarray(encodings)[None])[0]
    return one
  return placement.apply(probs_of, model, encodings)


def classify(state: Any, encodings: ArrayLike) -> jax.Array:
  """The class [B] int32 of encodings e [B, d], or a scalar for one encoding [d].

  With `Ridge` and the aggregate `logits`, sums are integers and a tie goes to the lower
  class, so classes of host arrays are the same on every machine. Otherwise it is the
  class of the largest probability. -1 for an encoding with a NaN or an infinity.

  Args and errors: as in `predict`.
  """
  model = model_of(state)
  check_shape(model, np.shape(encodings), (1, 2))
  if np.ndim(encodings) == 1:
    one: jax.Array = classify(model, jnp.asarray(encodings)[None])[0]
    return one
  return placement.apply(classes_of, model, encodings)


def predict_images(
  encode: Callable[[Any, jax.Array], jax.Array],
  params: Any,
  state: Any,
  images: jax.Array,
) -> jax.Array:
  """Predict ∘ encode: class probabilities p [B, C] of images, or of any other input.

  Args:
    encode: any pure function (params, batch) -> [B, d]; static under `jit`.
    params: the parameters of `encode`.
    state: a state, or its `model`.
    images: a batch of inputs for `encode`.

  Returns:
    Probabilities float32.
  """
  return predict(model_of(state), encode(params, images))


def to_codes(cfg: LegoConfig, encodings: jax.Array) -> jax.Array:
  """Codes [..., d] of encodings, or the codes themselves, which are int8."""
  if encodings.dtype == jnp.int8:
    return encodings
  return features.encode_features(cfg, encodings)


def probs_of(model: Model, e: jax.Array) -> jax.Array:
  """`predict` of one block of encodings, or of codes, under `jit`."""
  p = _probs_of_codes(model, to_codes(model.cfg, e))
  sound = jnp.all(jnp.isfinite(e), axis=-1, keepdims=True)
  return jnp.where(jnp.broadcast_to(sound, p.shape), p, jnp.nan)


def _probs_of_codes(model: Model, codes: jax.Array) -> jax.Array:
  active = activate(model, codes)
  counted = model.live[active]
  number = jnp.maximum(jnp.sum(counted, axis=1, keepdims=True), 1).astype(jnp.float32)
  if _sums_integers(model):
    total = logits.to_float(*_sum(model, codes, active, counted))
    # Not a quotient of quotients, which XLA takes apart in more ways than one.
    share = np.float32(model.cfg.solver.logit_unit(codes.shape[1])) / number
    return logits.softmax(_keep(total * share))
  z = _multiply(model, codes, active)
  by_probs = model.cfg.aggregate == "probs"
  each = logits.softmax(z) if by_probs else z
  each = jnp.where(jnp.broadcast_to(counted[:, :, None], each.shape), each, 0)
  mean = logits.sum_in_order(each, 1) / number
  return mean if by_probs else logits.softmax(mean)


def classes_of(model: Model, e: jax.Array) -> jax.Array:
  """`classify` of one block of encodings, or of codes, under `jit`."""
  codes = to_codes(model.cfg, e)
  if _sums_integers(model):
    active = activate(model, codes)
    found = logits.find_largest(*_sum(model, codes, active, model.live[active]))
  else:
    found = jnp.argmax(_probs_of_codes(model, codes), axis=-1).astype(jnp.int32)
  return jnp.where(jnp.all(jnp.isfinite(e), axis=-1), found, -1)


def _sum(
  model: Model, codes: jax.Array, active: jax.Array, counted: jax.Array
) -> logits.Limbs:
  """Σ_k W x [B, C], exact."""
  return logits.sum_terms(*logits.of_adapters(model.weights, codes, active), counted)


def _sums_integers(model: Model) -> bool:
  return _is_integer(model) and model.cfg.aggregate == "logits"


def _is_integer(model: Model) -> bool:
  return bool(jnp.issubdtype(model.weights.dtype, jnp.integer))


def predict_array(state: Any, encodings: NDArray[Any]) -> NDArray[np.float32]:
  """`predict` of a host array [B, d]."""
  return placement.on_host(probs_of, model_of(state), encodings)


def classify_array(state: Any, encodings: NDArray[Any]) -> NDArray[np.int32]:
  """`classify` of a host array [B, d]."""
  return placement.on_host(classes_of, model_of(state), encodings)
