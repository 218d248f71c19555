"""p = 1/k Σ M_z'(e, θ_z') (paper, eq. 2): the mean of the k activated adapters.

Pure functions of arrays, for use inside a caller's `jit`, `vmap` or sharding. For host
arrays there is `predict_array`, which does not compile anew for every length. A model
knows the settings of its fit, and every function here refuses other settings: the
result would look like a prediction, but be worse.
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
from legonet_jax.core import adapters, features, routing
from legonet_jax.core.config import LegoConfig, for_prediction
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
    weights: W [n, C, d] float32.
    live: [n] bool; False for an adapter that predictions leave out: it has no members,
      or waits for its training.
    settings: the settings of the fit. `predict` and the other functions compare them
      with the settings that the caller gives; None skips the comparison.
  """

  keys: jax.Array
  weights: jax.Array
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
  s = routing.scores(codes, model.keys)
  s = jnp.where(jnp.broadcast_to(model.live, s.shape), s, -jnp.inf)
  return jax.lax.top_k(s, cfg.top_k)[1]


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
  active = activate(cfg, model, codes)
  x = adapters.dequantize(cfg, codes)
  if active.size <= model.weights.shape[0]:
    z = jnp.einsum("bd,bkcd->bkc", x, model.weights[active])
  else:  # the products with all adapters cost less than gathering that many weights
    z = jnp.einsum("bd,ncd->bnc", x, model.weights)
    z = jnp.take_along_axis(z, active[:, :, None], axis=1)
  share = model.live[active].astype(jnp.float32)
  return z, share / jnp.maximum(jnp.sum(share, axis=1, keepdims=True), 1)


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
  if any(isinstance(x, jax.core.Tracer) for x in (encodings, *jax.tree.leaves(model))):
    return _predict(cfg, model, jnp.asarray(encodings))
  if isinstance(encodings, jax.Array):
    return _predict_on_devices(*_shared(cfg, model), encodings)
  return jnp.asarray(predict_array(cfg, model, np.asarray(encodings)))


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
  """`predict` of [B, d], block by block: the logits [block, n, C] stay small."""

  def block(e: jax.Array) -> jax.Array:
    z, share = adapter_logits(cfg, model, e)
    if cfg.aggregate == "probs":
      p = jnp.einsum("bk,bkc->bc", share, jax.nn.softmax(z))
    else:
      p = jax.nn.softmax(jnp.einsum("bk,bkc->bc", share, z))
    sound = jnp.all(jnp.isfinite(e), axis=-1, keepdims=True)
    return jnp.where(jnp.broadcast_to(sound, p.shape), p, jnp.nan)

  count, dim = encodings.shape
  if count <= _BLOCK:
    return block(encodings)
  number = -(-count // _BLOCK)
  padded = jnp.pad(encodings, ((0, number * _BLOCK - count), (0, 0)))
  # Block b has the rows b, b + number, b + 2 number ..., so that if a batch is split
  # over devices, each device has an equal part of every block.
  blocks = padded.reshape(_BLOCK, number, dim).swapaxes(0, 1)
  p: jax.Array = jax.lax.map(block, blocks).swapaxes(0, 1)
  return p.reshape(number * _BLOCK, cfg.num_classes)[:count]


_predict_jitted = jax.jit(_predict, static_argnums=0)


def _predict_on_devices(
  cfg: LegoConfig, model: Model, encodings: jax.Array
) -> jax.Array:
  """`predict` where the encodings are: on one device, or split by rows over many."""
  where: Any = encodings.sharding
  spec = tuple(where.spec) if isinstance(where, NamedSharding) else ()
  p: jax.Array
  if spec and spec[0] is not None and not any(spec[1:]):
    everywhere = NamedSharding(where.mesh, PartitionSpec())  # type: ignore[no-untyped-call]
    model = jax.device_put(model, everywhere)
    p = _predict_split(cfg, where.mesh, spec[0], model, encodings)
  else:
    p = _predict_jitted(cfg, model, encodings)
  return p


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _predict_split(
  cfg: LegoConfig, mesh: Mesh, axis: Any, model: Model, encodings: jax.Array
) -> jax.Array:
  """`predict` by each device of a mesh on its own rows; nothing moves between them.

  Without this, XLA would gather the scores of all rows on every device for `top_k`.
  """
  by_row, whole = PartitionSpec(axis), PartitionSpec()  # type: ignore[no-untyped-call]
  split: jax.Array = jax.shard_map(
    functools.partial(_predict, cfg),
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
  shared, bare = _shared(cfg, model)
  rows = _BLOCK if len(encodings) <= _BLOCK else _BLOCK * _BLOCKS
  out = np.empty((len(encodings), cfg.num_classes), np.float32)

  def take(start: int, end: int) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # overflow becomes infinity, and the answer NaN
      return encodings[start:end].astype(np.float32)

  return blocks.fill(
    out, lambda block: _predict_jitted(shared, bare, block), take, rows
  )
