"""The paper's Algorithm 1 as a solver: mini-batches, any optimiser of optax."""

import dataclasses
from typing import ClassVar

import jax
import optax

from legonet_jax import errors
from legonet_jax.core import adapters
from legonet_jax.core.config import Aggregate, FeatureMap, LegoConfig
from legonet_jax.core.plain import make_plain, need
from legonet_jax.core.solver import Adapter, Batch, LargeArray, Solver
from legonet_jax.solvers import optimizers

Carry = tuple[jax.Array, optax.OptState]

# The device counts samples and epochs in int32.
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
    lanes: adapters trained side by side under `vmap` on an accelerator, at most all of
      them. Fixed for the life of a model: another width may give other bits there.
    tile_batches: has no effect; it is a part of the digests of earlier versions.
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
      self.lanes * self.batch_size <= _MAX_INT32,
      f"solver.lanes is {self.lanes} and batch_size {self.batch_size}; their product,"
      f" the samples of one step, must be at most {_MAX_INT32}",
    )
    need(
      0 <= self.init_scale <= 1e6,
      f"solver.init_scale is {self.init_scale}; it must be between 0 and 1e6",
    )
    optimizers.check_options(options)
    optimizers.check_optimizer(self.optimizer, options)

  @property
  def block(self) -> int:
    """Samples per step."""
    return self.batch_size

  @property
  def passes(self) -> int:
    """Epochs."""
    return self.epochs

  def init(self, cfg: LegoConfig, dim: int, adapter: Adapter | None) -> Carry:
    """Random weights from the adapter's own key, and the optimiser's first state."""
    assert adapter is not None
    weights = adapters.init_weights(cfg, dim, adapter.key)
    return weights, self._optimizer(adapter).init(weights)

  def update(
    self, cfg: LegoConfig, carry: Carry, batch: Batch, adapter: Adapter
  ) -> Carry:
    """One step θ_j <- θ_j - η ∂L/∂θ_j on a mini-batch."""
    weights, opt_state = carry
    x = adapters.dequantize(cfg, batch.codes)
    grads = adapters.gradient(weights, x, adapters.targets(cfg, batch.labels))
    updates, opt_state = self._optimizer(adapter).update(grads, opt_state, weights)
    return optax.apply_updates(weights, updates), opt_state

  def solve(self, cfg: LegoConfig, carry: Carry) -> tuple[jax.Array, int]:
    """W_j [C, d] float32."""
    del cfg
    return carry[0], 0

  def _optimizer(self, adapter: Adapter) -> optax.GradientTransformation:
    options = {**dict(self.options), **adapter.options}
    return optimizers.make_optimizer(self.optimizer, tuple(options.items()))

  def largest_arrays(self, cfg: LegoConfig, dim: int) -> list[LargeArray]:
    """A batch and its targets."""
    return [
      LargeArray("features [batch_size, width]", (self.batch_size, dim), 4),
      LargeArray(
        "targets [batch_size, num_classes]", (self.batch_size, cfg.num_classes), 4
      ),
    ]
