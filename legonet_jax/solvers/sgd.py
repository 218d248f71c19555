"""The paper's Algorithm 1 as a solver: mini-batches, any optimiser of optax."""

import dataclasses
from typing import Any, ClassVar

import jax

from legonet_jax import errors
from legonet_jax.core.config import Aggregate, FeatureMap, LegoConfig
from legonet_jax.core.plain import make_plain, need
from legonet_jax.core.solver import Adapter, Members
from legonet_jax.core.task import LargeArray, Solver, Task
from legonet_jax.runtime.callbacks import Progress
from legonet_jax.solvers import lanes, mini_batches, optimizers

# The device indexes a tile, and counts epochs, in int32.
_MAX_INT32 = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Sgd(Solver):
  """Algorithm 1 of the paper: softmax cross-entropy on mini-batches of D_aj.

  Attributes:
    epochs: passes over the members of an adapter.
    batch_size: samples per step. An adapter's batches follow the hash order of its
      own members, so they do not depend on any other sample.
    optimizer: the name of an optax optimiser (`"sgd"`, `"adam"`, ...) or a function
      that returns a `GradientTransformation`, defined at the top of a module, because
      the settings remember it by its name.
    options: keyword arguments of the optimiser, as pairs or a dict.
    init_scale: standard deviation of the initial weights.
    lanes: adapters trained side by side under `vmap`. Fixed for the life of a model:
      another width may give other bits.
    tile_batches: batches per lane in one call of the executable. It sets the memory of
      a call and how often the host gathers rows, but never changes the weights. You may
      change it between requests.
  """

  feature_map: ClassVar[FeatureMap] = "l2"
  aggregate: ClassVar[Aggregate] = "probs"

  epochs: int = 20
  batch_size: int = 64
  optimizer: str | optimizers.OptimizerFactory = "adam"
  options: optimizers.Options = (("learning_rate", 0.1),)
  init_scale: float = 0.01
  lanes: int = 2
  tile_batches: int = dataclasses.field(default=16, metadata={"free": 1})

  def __post_init__(self) -> None:
    try:
      pairs = sorted(dict(self.options).items())
      options = tuple((k, v.item() if hasattr(v, "item") else v) for k, v in pairs)
      hash((self.optimizer, options))
    except (TypeError, ValueError) as e:
      raise errors.ConfigError(
        f"solver.options are {errors.brief(self.options)}; give pairs of a name and"
        " a plain value"
      ) from e
    object.__setattr__(self, "options", options)
    make_plain(self)
    for name in ("epochs", "batch_size", "lanes", "tile_batches"):
      value = getattr(self, name)
      need(
        1 <= value <= _MAX_INT32,
        f"solver.{name} is {value}; it must be at least 1 and at most {_MAX_INT32}",
      )
    need(
      self.tile_batches * self.lanes * self.batch_size <= _MAX_INT32,
      f"solver.tile_batches is {self.tile_batches}, lanes {self.lanes} and batch_size"
      f" {self.batch_size}; their product, the samples of one call, must be at most"
      f" {_MAX_INT32}",
    )
    need(
      0 <= self.init_scale <= 1e6,
      f"solver.init_scale is {self.init_scale}; it must be between 0 and 1e6",
    )
    optimizers.check_options(options)
    optimizers.check_optimizer(self.optimizer, options)

  def train_members(
    self, cfg: LegoConfig, members: Members, adapter: Adapter
  ) -> jax.Array:
    """Algorithm 1 for one adapter: `epochs` passes over its mini-batches."""
    return mini_batches.train(cfg, members, adapter)

  def train_on_host(
    self,
    cfg: LegoConfig,
    task: Task,
    weights: jax.Array,
    progress: Progress | None = None,
  ) -> tuple[jax.Array, list[Any]]:
    """Trains the adapters of `task` from scratch, on all their members."""
    members, rows = task.members(task.adapters)
    trained = lanes.train_adapters(
      cfg, task.samples, rows, members, task.ids, weights, progress
    )
    return trained, [None] * len(task.adapters)

  def compile(self, cfg: LegoConfig, dim: int) -> None:
    """Compiles everything now, so that the workers do not all compile it at once."""
    lanes.compile_all(cfg, dim)

  def largest_arrays(self, cfg: LegoConfig, dim: int) -> list[LargeArray]:
    """The lanes in training and the tile that they train on."""
    tile = (self.tile_batches, self.lanes, self.batch_size)
    return [
      LargeArray(
        "weights [lanes, num_classes, width]", (self.lanes, cfg.num_classes, dim), 4
      ),
      LargeArray("samples [tile_batches, lanes, batch_size, width]", (*tile, dim), 1),
      LargeArray(
        "targets [tile_batches, lanes, batch_size, num_classes]",
        (*tile, cfg.num_classes),
        4,
      ),
    ]
