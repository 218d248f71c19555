"""What a model costs: parameters, one inference, and one unlearning request.

All four methods are an encoder with linear layers W [C, d] on top, without bias. They
differ in how many there are and in who trains on what:

    method    sub-models P   a sample trains c   an inference asks a   own encoder
    RNC       1              1                   1                     yes
    SISA      s              1                   s                     yes
    FixSISA   s              1                   s                     no
    LegoNet   n              k                   k, and n keys         no

The encoder's numbers are those of the real network (`legonet_jax.encoder.counting`).
One MAC is one multiply-accumulate of the mathematical convolution or matrix product,
whatever form a device runs it in, products with padding included. BatchNorm, ReLU,
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
  """A method as the table above sees it; made by `rnc`, `sisa`, `fixsisa`, `legonet`.

  Attributes:
    parts: P, the number of sub-models.
    copies: c, how many sub-models train on one sample.
    asked: a, how many sub-models one inference asks.
    own_encoder: whether every sub-model has, and trains, an encoder of its own.
    keyed: whether a sub-model has a key [d] that each inference is compared with.
    imbalance: Σ |D_j|² over its value for sub-models of one size; 1 if they are.
  """

  parts: int
  copies: int
  asked: int
  own_encoder: bool
  keyed: bool = False
  imbalance: float = 1.0


@dataclasses.dataclass(frozen=True)
class Setting:
  """What the methods are compared on.

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
  """A whole model.

  Attributes:
    parameters: of all encoders and linear layers.
    statistics: of all encoders' BatchNorms.
    keys: numbers in all keys.
    macs: of one inference: encoding, distances to the keys, linear layers.
  """

  parameters: int
  statistics: int
  keys: int
  macs: int


class Retraining(NamedTuple):
  """The expected work of one request; all are means over random requests.

  Attributes:
    models: sub-models that are trained again.
    parameters: in those sub-models, without what stays frozen.
    samples: samples read per epoch, once for each sub-model that trains on them.
    macs: of all epochs, forward and backward.
  """

  models: float
  parameters: float
  samples: float
  macs: float


def rnc() -> CostMethod:
  """The plain classifier: any request trains all of it again."""
  return CostMethod(1, 1, 1, own_encoder=True)


def sisa(shards: int) -> CostMethod:
  """An RNC on each of s shards; a sample is in one, drawn at random."""
  shards = whole_number("shards", shards, 1)
  return CostMethod(shards, 1, shards, own_encoder=True)


def fixsisa(shards: int) -> CostMethod:
  """A linear layer on each of s shards, on one frozen encoder."""
  return sisa(shards)._replace(own_encoder=False)


def legonet(num_adapters: int, top_k: int, imbalance: float = 1.0) -> CostMethod:
  """n adapters of which a sample activates k.

  Args:
    num_adapters: n.
    top_k: k.
    imbalance: Σ |D_aj|² / (k² N² / n), what hubs add to a request of one sample. It is
      1 if all adapters have k N / n members and n / k if k of them have all samples.
      `experiments.balance` measures it.
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

  With E and M the encoder's parameters and MACs, u = P where sub-models own their
  encoders and u = 1 elsewhere:

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
  """The expected work of forgetting m samples, drawn at random, at once.

  A sample is in a given sub-model with chance c / P, so one of them is hit with chance
  1 - (1 - c/P)^m, and has c N / P members left:

      models  = P (1 - (1 - c/P)^m)        s (1 - (1 - 1/s)^m),  or k for one sample
      samples = models · c N / P           N / s,  or k² N / n for one sample

  `imbalance` multiplies the samples, up to c N, which is a fit. That is exact for one
  sample; for more it is a rough figure, because a hub that is hit twice trains once.

  Forward, gradient of the weights and gradient of the input cost the same MACs. The
  input of the first layer needs no gradient: a linear layer on a frozen encoder costs
  2 d C a sample, a whole network 3 (M + d C) less its first convolution. Encodings of
  a frozen encoder are kept, so they cost nothing. An anchor's key that moves, and the
  samples which that routes anew, are not counted.

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
  # P (1 - (1 - c/P)^m), written so that one sample hits exactly c.
  spared = method.parts - method.copies
  models = method.parts - spared * (spared / method.parts) ** (request - 1)
  whole = method.copies * setting.num_samples
  samples = min(method.imbalance * models * whole / method.parts, whole)
  return Retraining(models, models * trained, samples, epochs * samples * once)
