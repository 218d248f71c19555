"""The cost of a model: parameters, one inference, and one unlearning request.

All four methods put linear layers W [C, d] without bias on an encoder. They differ in
the number of sub-models and in which samples each one trains on:

    method    sub-models P   a sample trains c   an inference asks a   own encoder
    RNC       1              1                   1                     yes
    SISA      s              1                   s                     yes
    FixSISA   s              1                   s                     no
    LegoNet   n              k                   k, and n keys         no

The encoder's numbers are counted on the real network (`legonet_jax.encoder.counting`).
One MAC is one multiply-accumulate of the mathematical convolution or matrix product,
including products with padding, whatever form a device computes it in. BatchNorm, ReLU,
pooling and the mean over sub-models are not counted.
"""

import dataclasses
from typing import NamedTuple

from legonet_jax import errors
from legonet_jax.core.plain import make_plain
from legonet_jax.encoder import resnet
from legonet_jax.encoder.counting import count_encoder
from legonet_jax.errors import whole_number


class CostMethod(NamedTuple):
  """A row of the table above; made by `rnc`, `sisa`, `fixsisa` or `legonet`.

  Attributes:
    parts: P, the number of sub-models.
    copies: c, how many sub-models train on one sample.
    asked: a, how many sub-models one inference asks.
    own_encoder: whether every sub-model has and trains an encoder of its own.
    keyed: whether every sub-model has a key [d], which each input is compared with.
    imbalance: Σ |D_j|² divided by its value for sub-models of equal size (so 1 if all
      sizes are equal).
  """

  parts: int
  copies: int
  asked: int
  own_encoder: bool
  keyed: bool = False
  imbalance: float = 1.0


@dataclasses.dataclass(frozen=True)
class Setting:
  """The task that the methods are compared on.

  Attributes:
    num_classes: C.
    num_samples: N, the training samples that remain after the request.
    encoder: the name of a network of `resnet.RESNETS`.
    image_size: height and width of the encoder's input.
  """

  num_classes: int = 10
  num_samples: int = 50_000
  encoder: str = "resnet34"
  image_size: int = 224

  def __post_init__(self) -> None:
    make_plain(self)
    whole_number("num_classes", self.num_classes, 2)
    whole_number("num_samples", self.num_samples, 1)
    whole_number("image_size", self.image_size, 1)
    resnet.build_resnet(self.encoder)


class ModelCost(NamedTuple):
  """The size of a whole model, and the cost of one inference.

  Attributes:
    parameters: of all encoders and linear layers.
    statistics: numbers in the BatchNorm statistics of all encoders.
    keys: numbers in all keys.
    macs: of one inference: encoding, distances to the keys, linear layers.
  """

  parameters: int
  statistics: int
  keys: int
  macs: int


class Retraining(NamedTuple):
  """The expected work of one request: means over random requests.

  Attributes:
    models: sub-models that are trained again.
    parameters: trained parameters of those sub-models, without frozen ones.
    samples: samples read per epoch, once for each sub-model that trains on them.
    macs: of all epochs, forward and backward.
  """

  models: float
  parameters: float
  samples: float
  macs: float


def rnc() -> CostMethod:
  """The plain classifier: every request trains it again as a whole."""
  return CostMethod(1, 1, 1, own_encoder=True)


def sisa(shards: int) -> CostMethod:
  """An RNC on each of s shards; each sample is in one random shard."""
  shards = whole_number("shards", shards, 1)
  return CostMethod(shards, 1, shards, own_encoder=True)


def fixsisa(shards: int) -> CostMethod:
  """A linear layer for each of s shards, on one frozen encoder."""
  return sisa(shards)._replace(own_encoder=False)


def legonet(num_adapters: int, top_k: int, imbalance: float = 1.0) -> CostMethod:
  """n adapters; a sample activates k of them.

  Args:
    num_adapters: n.
    top_k: k.
    imbalance: Σ |D_aj|² / (k² N² / n), the factor by which hubs make a request of one
      sample dearer. It is 1 if all adapters have k N / n members, and n / k if k of
      them have all samples. `experiments.balance` measures it.
  """
  num_adapters = whole_number("num_adapters", num_adapters, 1)
  top_k = whole_number("top_k", top_k, 1, num_adapters)
  if not 1 <= imbalance <= num_adapters / top_k:
    raise errors.ConfigError(
      f"imbalance is {imbalance}; it must be between 1 and n / k,"
      f" here {num_adapters / top_k:g}"
    )
  return CostMethod(num_adapters, top_k, top_k, False, keyed=True, imbalance=imbalance)


def count_model(setting: Setting, method: CostMethod) -> ModelCost:
  """Parameters and MACs of one inference.

  Let E and M be the encoder's parameters and MACs, and u the number of encoders: P if
  every sub-model has its own, else 1:

      parameters = u E + P d C,    MACs = u M + [keyed] P d + a d C
  """
  encoder = count_encoder(setting.encoder, setting.image_size)
  linear = encoder.dim * setting.num_classes
  encoders = method.parts if method.own_encoder else 1
  keys = method.parts * encoder.dim if method.keyed else 0
  return ModelCost(
    parameters=encoders * encoder.parameters + method.parts * linear,
    statistics=encoders * encoder.statistics,
    keys=keys,
    macs=encoders * encoder.macs + keys + method.asked * linear,
  )


def count_retraining(
  setting: Setting, method: CostMethod, request: int = 1, epochs: int = 1
) -> Retraining:
  """The expected work of forgetting m random samples in one request.

  A sample is in a given sub-model with probability c / P. So a sub-model is hit with
  probability 1 - (1 - c/P)^m, and has c N / P members left:

      models  = P (1 - (1 - c/P)^m)        s (1 - (1 - 1/s)^m),  or k for one sample
      samples = models · c N / P           N / s,  or k² N / n for one sample

  `imbalance` multiplies the samples, up to c N, the samples of a whole fit. That is
  exact for one sample and approximate for more, because a hub that is hit twice is
  trained once.

  Forward pass, gradient of the weights and gradient of the input cost the same MACs.
  The first layer's input needs no gradient: a linear layer on a frozen encoder costs
  2 d C per sample, a whole network 3 (M + d C) less its first convolution. Encodings of
  a frozen encoder are cached, so they cost nothing. If an anchor is forgotten, its key
  moves and samples are routed again; this is not counted.

  Args:
    setting: C, N and the encoder.
    method: from `rnc`, `sisa`, `fixsisa` or `legonet`.
    request: m.
    epochs: passes over the members of each sub-model.
  """
  request, epochs = (
    whole_number("request", request, 1),
    whole_number("epochs", epochs, 1),
  )
  encoder = count_encoder(setting.encoder, setting.image_size)
  linear = encoder.dim * setting.num_classes
  trained, once = linear, 2 * linear
  if method.own_encoder:
    trained += encoder.parameters
    once = 3 * (encoder.macs + linear) - encoder.convs[0].macs
  # P (1 - (1 - c/P)^m), written so that m = 1 gives exactly c.
  spared = method.parts - method.copies
  models = method.parts - spared * (spared / method.parts) ** (request - 1)
  whole = method.copies * setting.num_samples
  samples = min(method.imbalance * models * whole / method.parts, whole)
  return Retraining(models, models * trained, samples, epochs * samples * once)
