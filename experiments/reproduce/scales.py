"""How large a reproduction is: the paper's setting, two cores, or a smoke test.

`paper` has the paper's data, image size and segmentations; where it gives no number
(epochs, rates, seeds) the choice is ours. `cpu` keeps all encodings and cuts the images
that networks are fine-tuned on. `smoke` only shows that everything runs.
"""

import dataclasses
from typing import NamedTuple

from legonet_jax.baselines import RncConfig
from legonet_jax.encoder import ImageEncoder


class Training(NamedTuple):
  """How whole networks train; each cell fills in its seed and number of classes.

  Attributes:
    rnc: RNC.
    shard: a sub-model of SISA, which has fewer samples.
    tune, ngrad: the two approximate ways to forget.
  """

  rnc: RncConfig
  shard: RncConfig
  tune: RncConfig
  ngrad: RncConfig


class FineTune(NamedTuple):
  """Fine-tuning of whole networks on images, for RNC and SISA.

  Attributes:
    samples: N, drawn anew for each seed; None for all.
    test: test images, drawn alike; None for all.
    retain: how many of D_retain its accuracy is measured on; None for all.
    training: that of `cpu` is chosen by `experiments.reproduce.choose`.
    shards: s of SISA, of FixSISA and of the time of a request.
    sweep: those beside the first that SISA is trained with whole, for its accuracy,
      each with its number of seeds.
    adapters: n of LegoNet on the same images.
    requests: single requests that are timed for each contender.
  """

  samples: int | None
  test: int | None
  retain: int | None
  training: Training
  shards: tuple[int, ...]
  sweep: tuple[tuple[int, int], ...]
  adapters: tuple[int, ...]
  requests: int

  @property
  def encoder(self) -> ImageEncoder:
    """Network and image size, the same for all."""
    return self.training.rnc.encoder


class Privacy(NamedTuple):
  """How many models, samples each and targets the privacy measures have."""

  models: int
  samples: int
  targets: int
  adapters: int
  methods: tuple[tuple[str, str], ...] = (
    ("lego", "ridge"),
    ("lego", "sgd"),
    ("fixsisa", "ridge"),
  )


@dataclasses.dataclass(frozen=True)
class Scale:
  """One size of everything.

  Attributes:
    name: of the scale.
    seeds: seeds of LegoNet, FixSISA and one linear layer.
    network_seeds: seeds of RNC, which fine-tunes a whole network.
    sisa_seeds: seeds of SISA, which fine-tunes s of them.
    explain_seeds: seeds of the study of what n does.
    samples: N of the encodings; None for all.
    features: how many features of an encoding are used; None for all.
    evaluate: how many training encodings an accuracy is measured on; None for all.
    grid: pairs (n, k) of Figures 3 and 4 and Table 2, and all between them.
    shards: s of FixSISA.
    adapters: n of Table 1.
    forget: how many samples Random100 forgets.
    penalties: of the ridge, for the study of what n does.
    images: fine-tuning.
    privacy: its measures.
  """

  name: str
  seeds: tuple[int, ...]
  network_seeds: tuple[int, ...]
  sisa_seeds: tuple[int, ...]
  explain_seeds: tuple[int, ...]
  samples: int | None
  features: int | None
  evaluate: int | None
  grid: tuple[tuple[int, int], ...]
  shards: tuple[int, ...]
  adapters: tuple[int, ...]
  forget: int
  penalties: tuple[float, ...]
  images: FineTune
  privacy: Privacy


_SEGMENTATIONS = (10, 20, 50, 100)
_SHOWN = (
  *((n, 10) for n in (100, 200, 500, 1000)),  # Figure 4, left; Table 2, k = 10
  *((100, k) for k in (1, 2, 5)),  # Figure 4, middle
  *((20, 2), (50, 5)),  # Figure 4, right
  *((10, 1), (20, 1), (50, 1)),  # Table 2, k = 1
)
_BETWEEN = (*((n, k) for n in (200, 500, 1000) for k in (1, 2, 5)), (1000, 20))


def _training(
  rnc: RncConfig, shard: RncConfig, tune_rate: float, ngrad_rate: float
) -> Training:
  """RNC's settings and those that follow from them.

  Tune goes on for an epoch. NGrad has few steps, so no warm-up and no decay.
  """
  ngrad = dataclasses.replace(
    rnc, epochs=5, learning_rate=ngrad_rate, schedule="constant", warmup=0.0
  )
  tune = dataclasses.replace(rnc, epochs=1, learning_rate=tune_rate)
  return Training(rnc, shard, tune, ngrad)


_RNC = RncConfig(
  10, ImageEncoder("resnet34", 224), epochs=10, batch_size=64, learning_rate=0.01
)
# Few samples at 64 px: the batch's own statistics are noise, so BatchNorm is frozen.
_FEW = dataclasses.replace(
  _RNC,
  encoder=ImageEncoder("resnet34", 64),
  epochs=2,
  batch_size=32,
  learning_rate=0.0005,
  norm="running",
)
_FEW_SHARD = dataclasses.replace(_FEW, epochs=4, batch_size=16, learning_rate=0.001)
_TINY = dataclasses.replace(
  _RNC, encoder=ImageEncoder("resnet6", 32), epochs=1, batch_size=8
)

PAPER = Scale(
  name="paper",
  seeds=(0, 1, 2, 3, 4),
  network_seeds=(0, 1, 2, 3, 4),
  sisa_seeds=(0, 1, 2, 3, 4),
  explain_seeds=(0, 1, 2, 3, 4),
  samples=None,
  features=None,
  evaluate=None,
  grid=(*_SHOWN, *_BETWEEN),
  shards=_SEGMENTATIONS,
  adapters=(100, 1000),
  forget=100,
  penalties=(1e-4, 1e-3, 1e-2, 1e-1),
  images=FineTune(
    samples=None,
    test=None,
    retain=None,
    training=_training(_RNC, _RNC, tune_rate=0.01, ngrad_rate=0.0003),
    shards=_SEGMENTATIONS,
    sweep=((20, 5), (50, 5), (100, 5)),
    adapters=(100, 200, 500, 1000),
    requests=100,
  ),
  privacy=Privacy(models=128, samples=10_000, targets=200, adapters=100),
)

CPU = dataclasses.replace(
  PAPER,
  name="cpu",
  network_seeds=(0, 1, 2),
  sisa_seeds=(0, 1, 2),
  explain_seeds=(0, 1, 2),
  evaluate=10_000,
  images=PAPER.images._replace(
    samples=2000,
    test=500,
    retain=300,
    training=_training(_FEW, _FEW_SHARD, tune_rate=0.001, ngrad_rate=0.000003),
    sweep=((20, 1), (50, 2), (100, 3)),
    requests=5,
  ),
  privacy=Privacy(models=64, samples=2000, targets=100, adapters=100),
)

SMOKE = dataclasses.replace(
  PAPER,
  name="smoke",
  seeds=(0,),
  network_seeds=(0,),
  sisa_seeds=(0,),
  explain_seeds=(0,),
  samples=400,
  features=64,
  evaluate=200,
  grid=((20, 1), (20, 10)),
  shards=(4,),
  adapters=(20,),
  forget=10,
  penalties=(1e-2,),
  images=FineTune(
    samples=32,
    test=20,
    retain=20,
    training=_training(_TINY, _TINY, tune_rate=0.01, ngrad_rate=0.0003),
    shards=(2,),
    sweep=(),
    adapters=(20,),
    requests=1,
  ),
  privacy=Privacy(4, 100, 10, 20, methods=(("lego", "ridge"),)),
)

SCALES = {scale.name: scale for scale in (SMOKE, CPU, PAPER)}


def trained(cfg: RncConfig, classes: int, seed: int) -> RncConfig:
  """The settings for a dataset and a seed."""
  return dataclasses.replace(cfg, num_classes=classes, seed=seed)
