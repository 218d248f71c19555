"""RNC, the paper's "normal" network: ResNet and a linear layer, fine-tuned end to end.

    θ = argmin Σ_{D} L(W En(x; φ), y), over W and φ, from pretrained φ and W = 0

The paper has three ways to forget with it. Re-train is `train` on D_retain from the
pretrained weights (exact). `tune` trains the model further on D_retain (approximate).
`ngrad` trains it further on D_unlearn with opposite gradients (approximate).
"""

from collections.abc import Callable, Iterable
import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
import optax

from legonet_jax import errors
from legonet_jax.baselines.images import (
  Augment,
  ImageBatch,
  ImageTable,
  augment,
  batches,
  in_blocks,
)
from legonet_jax.baselines.learner import Learner
from legonet_jax.core.ids import Ids
from legonet_jax.encoder import resnet
from legonet_jax.encoder.encode import ImageEncoder, encode_images, prepare, preprocess
from legonet_jax.runtime import flags

Schedule = Callable[[int], Any]


@dataclasses.dataclass(frozen=True)
class RncConfig:
  """Settings of fine-tuning.

  Attributes:
    num_classes: C.
    encoder: the network and the size of its images.
    epochs: passes over the samples.
    batch_size: samples per step.
    learning_rate: the peak of the schedule, for SGD with momentum.
    schedule: after the warm-up the rate decays to 0 (`cosine`) or stays (`constant`).
    warmup: the share of all steps in which the rate rises from 0.
    momentum: of SGD (Nesterov's).
    weight_decay: of all weights.
    augment: `none`, `flip`, or `flip_shift` (4 pixels of the stored image).
    norm: BatchNorm uses the statistics of the `batch`, or the pretrained `running`
      ones, which then never change: better with few samples or small batches.
    seed: of order and augmentation.
  """

  num_classes: int
  encoder: ImageEncoder = dataclasses.field(default_factory=ImageEncoder)
  epochs: int = 10
  batch_size: int = 64
  learning_rate: float = 0.01
  schedule: Literal["cosine", "constant"] = "cosine"
  warmup: float = 0.1
  momentum: float = 0.9
  weight_decay: float = 1e-4
  augment: Augment = "flip_shift"
  norm: Literal["batch", "running"] = "batch"
  seed: int = 0

  def __post_init__(self) -> None:
    for name in ("epochs", "batch_size"):
      errors.whole_number(name, getattr(self, name), 1)
    if not 0 < self.learning_rate < float("inf"):
      raise errors.ConfigError(
        f"learning_rate is {self.learning_rate}; it must be finite and above 0"
      )
    for field, choices in (
      ("augment", ("none", "flip", "flip_shift")),
      ("schedule", ("cosine", "constant")),
      ("norm", ("batch", "running")),
    ):
      if getattr(self, field) not in choices:
        raise errors.ConfigError(
          f"{field} is {getattr(self, field)!r}; choose one of {', '.join(choices)}"
        )


class RncModel(NamedTuple):
  """Params of En, the linear layer W [C, d], and running BatchNorm statistics."""

  params: resnet.Variables
  head: jax.Array
  batch_stats: resnet.Variables


@flags.pinned()
def init(cfg: RncConfig, pretrained: resnet.Variables) -> RncModel:
  """The pretrained network with a linear layer of zeros."""
  dim = resnet.build_resnet(cfg.encoder.name).dim
  head = jnp.zeros((cfg.num_classes, dim))
  return RncModel(pretrained["params"], head, pretrained["batch_stats"])


@flags.pinned()
def train(
  cfg: RncConfig,
  model: RncModel,
  table: ImageTable,
  ids: Ids,
  stream: int = 0,
  sign: float = 1.0,
) -> RncModel:
  """Trains `model` further on the samples `ids` of `table`.

  Args:
    cfg: the settings.
    model: the model to start from.
    table: the images.
    ids: [m], at least one; their order does not matter.
    stream: gives sub-models with the same seed different orders of their samples.
    sign: 1 for descent, -1 for ascent.
  """
  ids = np.sort(ids)
  size = batch_size(cfg, len(ids))
  data = batches(table, ids, size, cfg.epochs, cfg.seed + (stream << 32))
  total = cfg.epochs * -(-len(ids) // size)
  return _loop(cfg, model, data, schedule(cfg, total), sign)


def batch_size(cfg: RncConfig, count: int) -> int:
  """B for `count` samples, smaller for a small shard.

  Small sizes are powers of two, because each size has to be compiled.
  """
  return min(cfg.batch_size, max(8, 1 << (count - 1).bit_length()))


def tune(cfg: RncConfig, model: RncModel, table: ImageTable, retain: Ids) -> RncModel:
  """Tune: fine-tunes the trained model further on D_retain. Approximate."""
  return train(cfg, model, table, retain, stream=1)


def ngrad(cfg: RncConfig, model: RncModel, table: ImageTable, gone: Ids) -> RncModel:
  """NGrad: trains further on D_unlearn with opposite gradients. Approximate."""
  return train(cfg, model, table, gone, stream=2, sign=-1.0)


@flags.pinned()
def predict(
  cfg: RncConfig, model: RncModel, images: NDArray[np.uint8]
) -> NDArray[np.float32]:
  """Class probabilities [B, C] of images uint8 [B, H, W, 3]."""
  folded = prepare(
    cfg.encoder, {"params": model.params, "batch_stats": model.batch_stats}
  )
  return in_blocks(functools.partial(_probs, cfg.encoder, folded, model.head), images)


def rnc_learner(
  cfg: RncConfig, pretrained: resnet.Variables, table: ImageTable
) -> Learner:
  """The whole network as a sub-model of `sisa`; inputs are images uint8."""

  def part(model: RncModel, ids: Ids, stream: int, share: float) -> RncModel:
    epochs = max(1, round(cfg.epochs * share))
    return train(dataclasses.replace(cfg, epochs=epochs), model, table, ids, stream)

  return Learner(
    lambda stream: init(cfg, pretrained), part, functools.partial(predict, cfg)
  )


def schedule(cfg: RncConfig, total: int) -> Schedule:
  """The learning rate at step 1, 2, ..., `total`."""
  rise = int(cfg.warmup * total)
  if cfg.schedule == "constant":
    # With a warm-up of 0 steps, optax would keep the rate at its start.
    start = 0.0 if rise else cfg.learning_rate
    made: Schedule = optax.warmup_constant_schedule(start, cfg.learning_rate, rise)
  else:
    made = optax.warmup_cosine_decay_schedule(0.0, cfg.learning_rate, rise, total + 1)
  return made


def _loop(
  cfg: RncConfig,
  model: RncModel,
  data: Iterable[ImageBatch],
  rate: Schedule,
  sign: float,
) -> RncModel:
  # Settings that vary between requests are removed, so that `_step` compiles once.
  fixed = dataclasses.replace(
    cfg,
    epochs=1,
    learning_rate=1.0,
    seed=0,
    schedule="constant",
    warmup=0.0,
  )
  opt_state = _momentum(fixed).init((model.params, model.head))
  model = jax.tree.map(jnp.copy, model)  # `_step` donates its arguments
  for step, batch in enumerate(data):
    lr = np.float32(rate(step + 1))
    model, opt_state = _step(fixed, model, opt_state, batch, lr, np.float32(sign))
  return model


def _momentum(cfg: RncConfig) -> optax.GradientTransformation:
  return optax.chain(
    optax.add_decayed_weights(cfg.weight_decay),
    optax.trace(cfg.momentum, nesterov=True),
  )


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def _step(
  cfg: RncConfig,
  model: RncModel,
  opt_state: optax.OptState,
  batch: ImageBatch,
  lr: jax.Array,
  sign: jax.Array,
) -> tuple[RncModel, optax.OptState]:
  images = augment(cfg.augment, jnp.asarray(batch.images), jnp.asarray(batch.words))
  x = preprocess(images, cfg.encoder.size)
  net = resnet.build_resnet(cfg.encoder.name)

  def loss(
    weights: tuple[resnet.Variables, jax.Array],
  ) -> tuple[jax.Array, resnet.Variables]:
    variables = {"params": weights[0], "batch_stats": model.batch_stats}
    if cfg.norm == "batch":
      e, stats = resnet.apply_train(net, variables, x)
    else:
      e, stats = resnet.apply_tune(net, variables, x), model.batch_stats
    z = e @ weights[1].T
    ce = optax.softmax_cross_entropy_with_integer_labels(z, jnp.asarray(batch.labels))
    return sign * jnp.mean(ce), stats

  weights = (model.params, model.head)
  grads, stats = jax.grad(loss, has_aux=True)(weights)
  moves, opt_state = _momentum(cfg).update(grads, opt_state, weights)
  params = jax.tree.map(lambda w, m: w - lr * m, weights[0], moves[0])
  return RncModel(params, weights[1] - lr * moves[1], stats), opt_state


@functools.partial(jax.jit, static_argnums=0)
def _probs(
  spec: ImageEncoder, folded: resnet.Variables, head: jax.Array, images: jax.Array
) -> jax.Array:
  return jax.nn.softmax(encode_images(spec, folded, images) @ head.T)
