"""The registry of methods: RNC, SISA, FixSISA, LegoNet, one linear layer.

A new baseline is one entry of `METHODS`. All that a method is run with is in its
recipe, by strategy. Recipes are part of a cell's identity: a changed setting or a new
strategy is run anew.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
from typing import Any

from experiments.reproduce import contenders
from experiments.reproduce.cells import CellSettings
from experiments.reproduce.contenders import Recipe
from experiments.reproduce.datasets import Bench, Data, load_data
from experiments.reproduce.scales import Scale
from experiments.reproduce.tasks import Contender
import legonet_jax as lego
from legonet_jax.baselines import RncConfig, SisaConfig
from legonet_jax.core.config import describe

Sizes = dict[str, Any]  # solver, s, n, k, ...
Plan = Mapping[tuple[str, str], Sequence[Sizes]]  # by kind of cell and source
SOLVERS = {"ridge": lego.Ridge(), "sgd": lego.Sgd()}


@dataclasses.dataclass(frozen=True)
class Method:
  """One method.

  Attributes:
    label: as tables write it.
    sizes: `sizes(scale)` lists, by kind of cell and source, what it is run with there;
      `seeds` is the number of seeds, if it is not the scale's.
    recipe: `recipe(bench, settings)` gives, by strategy, all that it is run with, as
      values that `legonet_jax.core.config.describe` knows. `retrain` also says how the
      original model is trained.
    build: `build(bench, data, recipe)` makes it ready to run.
    reads: encodings, or images: then it trains whole networks, after all others and
      with fewer seeds.
    version: raise it when its code computes something else: its cells are run again.
  """

  label: str
  sizes: Callable[[Scale], Plan]
  recipe: Callable[[Bench, CellSettings], Recipe]
  build: Callable[[Bench, Data, Recipe], Contender]
  reads: str = "encodings"
  version: int = 1


def make_contender(bench: Bench, settings: CellSettings) -> Contender:
  """The method of a cell, on its data."""
  method = METHODS[settings["method"]]
  data = load_data(bench, settings["source"], method.reads, settings["seed"])
  return method.build(bench, data, method.recipe(bench, settings))


def describe_method(bench: Bench, settings: CellSettings) -> dict[str, Any]:
  """Its version and, the same for all seeds, its recipe as plain JSON values."""
  method = METHODS[settings["method"]]
  recipe = method.recipe(bench, settings | {"seed": 0})
  described = {strategy: describe(way) for strategy, way in recipe.items()}
  found = {"method_version": method.version, "strategies": described}
  way = recipe["retrain"]
  network = way[-1] if isinstance(way, tuple) else way
  return found | ({"epochs": network.epochs} if hasattr(network, "epochs") else {})


def configure_lego(bench: Bench, settings: CellSettings) -> lego.LegoConfig:
  """LegoNet with the library's defaults for a solver; n = k = 1 if not given."""
  n, k = settings.get("n", 1), settings.get("k", 1)
  solver = SOLVERS[settings["solver"]]
  return lego.LegoConfig(bench.dataset.classes, n, k, settings["seed"], solver=solver)


def configure_network(bench: Bench, settings: CellSettings, name: str) -> RncConfig:
  """How the scale trains a network, with the classes and the seed of a cell."""
  cfg, classes = bench.scale.images.training[name], bench.dataset.classes
  return dataclasses.replace(cfg, num_classes=classes, seed=settings["seed"])


def _rnc_recipe(bench: Bench, settings: CellSettings) -> Recipe:
  names = {"retrain": "rnc", "tune": "tune", "ngrad": "ngrad"}
  return {way: configure_network(bench, settings, names[way]) for way in names}


def _sisa_recipe(bench: Bench, settings: CellSettings) -> Recipe:
  split = SisaConfig(settings["s"], seed=settings["seed"])
  return {"retrain": (split, configure_network(bench, settings, "shard"))}


def _fixsisa_recipe(bench: Bench, settings: CellSettings) -> Recipe:
  split = SisaConfig(settings["s"], seed=settings["seed"])
  return {"retrain": (split, configure_lego(bench, settings))}


def _lego_recipe(bench: Bench, settings: CellSettings) -> Recipe:
  return {"retrain": configure_lego(bench, settings)}


def _cross(sizes: Iterable[Sizes], solvers: Iterable[str] = SOLVERS) -> list[Sizes]:
  """Each of the sizes with each of the solvers."""
  return [{"solver": solver, **size} for solver in solvers for size in sizes]


def _sisa_sizes(scale: Scale) -> Plan:
  """Its tasks have trained the first s already, so `accuracy` has the others."""
  tune = scale.images
  return {
    ("tasks", "images"): [{"s": tune.shards[0]}],
    ("accuracy", "images"): [{"s": s, "seeds": n} for s, n in tune.sweep],
    ("time", "images"): [{"s": s} for s in tune.shards],
  }


def _fixsisa_sizes(scale: Scale) -> Plan:
  shards = [{"s": s} for s in scale.shards]
  private = [{"s": s} for s in scale.privacy.shards]
  on_images = [{"s": s} for s in scale.images.shards]
  return {
    ("accuracy", "encodings"): _cross(shards),
    ("tasks", "encodings"): _cross(shards[:1]),
    ("privacy", "encodings"): _cross(private, ["ridge"]),
    ("accuracy", "images"): _cross(on_images),
    ("tasks", "images"): _cross(on_images[:1]),
    ("time", "images"): _cross(on_images),
  }


def _lego_sizes(scale: Scale) -> Plan:
  adapters, on_images, private = (
    [{"n": n, "k": min(10, n)} for n in found]
    for found in (scale.adapters, scale.images.adapters, [scale.privacy.adapters])
  )
  ends = on_images[:1] + on_images[1:][-1:]
  return {
    ("accuracy", "encodings"): _cross([{"n": n, "k": k} for n, k in scale.grid]),
    ("tasks", "encodings"): _cross(adapters),
    ("explain", "encodings"): _cross([{}]),
    ("privacy", "encodings"): _cross(private, scale.privacy.solvers),
    ("accuracy", "images"): _cross(on_images),
    ("tasks", "images"): _cross(ends),
    ("time", "images"): _cross(on_images),
  }


_STEPS = [{"step": step} for step in ("rnc", "shard", "forget")]
# In the order of the tables.
METHODS = {
  "rnc": Method(
    "RNC",
    lambda scale: {("tasks", "images"): [{}], ("choose", "images"): _STEPS},
    _rnc_recipe,
    contenders.build_rnc,
    reads="images",
  ),
  "sisa": Method("SISA", _sisa_sizes, _sisa_recipe, contenders.build_sisa, "images"),
  "fixsisa": Method(
    "FixSISA", _fixsisa_sizes, _fixsisa_recipe, contenders.build_fixsisa
  ),
  "lego": Method("LegoNet", _lego_sizes, _lego_recipe, contenders.build_lego),
  "linear": Method(
    "One linear layer",
    lambda scale: {("accuracy", "encodings"): _cross([{}])},
    _lego_recipe,
    contenders.build_lego,
  ),
}
