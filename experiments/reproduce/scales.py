"""How large a reproduction is: the scales of `scales.toml`, and what they mean."""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
import tomllib
from typing import Any, NamedTuple

from legonet_jax.baselines import RncConfig
from legonet_jax.encoder import ImageEncoder


class FineTune(NamedTuple):
  """Fine-tuning of whole networks on images, for RNC and SISA.

  Attributes:
    training: how RNC (`rnc`), a sub-model of SISA (`shard`, it has fewer samples) and
      the approximate ways to forget (`tune`, `ngrad`) train; each cell fills in seed
      and classes. That of `cpu` is chosen by `experiments.reproduce.choose`.
    shards: s of SISA, of FixSISA and of the time of a request.
    sweep: those beside the first that SISA is trained with whole, for its accuracy,
      each with its number of seeds; the longest first.
    adapters: n of LegoNet on the same images.
    requests: single requests that are timed for each contender.
    samples: N, drawn anew for each seed; None for all.
    test: test images, drawn alike; None for all.
    retain: how many of D_retain its accuracy is measured on; None for all.
    drawn: without folders, draw images and weights instead of downloading them.
  """

  training: Mapping[str, RncConfig]
  shards: Sequence[int]
  sweep: Sequence[tuple[int, int]]
  adapters: Sequence[int]
  requests: int
  samples: int | None = None
  test: int | None = None
  retain: int | None = None
  drawn: bool = False

  @property
  def encoder(self) -> ImageEncoder:
    """Network and image size, the same for all."""
    return self.training["rnc"].encoder


class Privacy(NamedTuple):
  """How many models, samples each and targets the privacy measures have.

  They are taken of LegoNet with n = `adapters` and each of the `solvers`, and of
  FixSISA (ridge) with each number of `shards`.
  """

  models: int
  samples: int
  targets: int
  adapters: int
  solvers: Sequence[str]
  shards: Sequence[int]


@dataclasses.dataclass(frozen=True)
class Scale:
  """One size of everything.

  Attributes:
    name: of the scale.
    seeds: of LegoNet, FixSISA and one linear layer.
    few_seeds: of what takes long: whole networks, and the study of what n does.
    grid: pairs (n, k) of Figures 3 and 4 and Table 2, and all between them.
    shards: s of FixSISA.
    adapters: n of Table 1.
    forget: how many samples Random100 forgets.
    penalties: of the ridge, for the study of what n does.
    images: fine-tuning.
    privacy: its measures.
    samples: N of the encodings; None for all.
    features: how many features of an encoding are used; None for all.
    evaluate: how many training encodings an accuracy is measured on; None for all.
  """

  name: str
  seeds: Sequence[int]
  few_seeds: Sequence[int]
  grid: Sequence[tuple[int, int]]
  shards: Sequence[int]
  adapters: Sequence[int]
  forget: int
  penalties: Sequence[float]
  images: FineTune
  privacy: Privacy
  samples: int | None = None
  features: int | None = None
  evaluate: int | None = None


def _merge(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
  """`own` over `base`, and so for tables within."""
  return base | {
    key: _merge(base[key], value) if isinstance(value, dict) else value
    for key, value in own.items()
  }


def _load_scale(name: str) -> Scale:
  table = _merge(_TABLES["paper"], _TABLES[name])
  images, training = table["images"], {}
  for way, own in images["training"].items():
    cfg = _merge(images["training"]["rnc"], own)
    training[way] = RncConfig(10, **cfg | {"encoder": ImageEncoder(**cfg["encoder"])})
  parts = {"images": FineTune(**images | {"training": training})}
  return Scale(name, **table | parts | {"privacy": Privacy(**table["privacy"])})


_TABLES = tomllib.loads((pathlib.Path(__file__).parent / "scales.toml").read_text())
SCALES = {name: _load_scale(name) for name in _TABLES}
PAPER, CPU, SMOKE = SCALES["paper"], SCALES["cpu"], SCALES["smoke"]
