"""How one adapter is trained: the settings of each solver.

`Sgd` is the paper's Algorithm 1. `Ridge` is the closed form of the squared loss, whose
sums are integers, so that forgetting is a subtraction. A solver of your own is a frozen
dataclass whose `train` is registered, see `legonet_jax.task`.
"""

from collections.abc import Callable
import dataclasses
import math
import operator
from typing import Any

import optax

from legonet_jax import errors

OptimizerFactory = Callable[..., optax.GradientTransformation]


def make_plain(config: Any) -> None:
  """Turns numbers of any kind into Python's, so that equal settings are the same."""
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    try:
      if field.type is int:
        value = operator.index(value)
      elif field.type in (float, float | None) and value is not None:
        value = float(value)
    except (TypeError, ValueError) as e:
      kind = "a whole number" if field.type is int else "a number"
      raise errors.ConfigError(f"{field.name} is {value!r}; it must be {kind}") from e
    object.__setattr__(config, field.name, value)


@dataclasses.dataclass(frozen=True)
class Sgd:
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
    tile_batches: batches per lane that one call of the executable holds. It sets the
      memory of a call and how often the host is asked for more rows, never the
      weights; it is free to change for a given state.
  """

  epochs: int = 20
  batch_size: int = 64
  optimizer: str | OptimizerFactory = "adam"
  options: tuple[tuple[str, Any], ...] = (("learning_rate", 0.1),)
  init_scale: float = 0.01
  lanes: int = 2
  tile_batches: int = dataclasses.field(default=16, metadata={"free": 1})

  def __post_init__(self) -> None:
    try:
      pairs = sorted(dict(self.options).items())
    except (TypeError, ValueError) as e:
      raise errors.ConfigError(
        f"solver.options are {self.options!r}; give pairs"
      ) from e
    options = tuple((k, v.item() if hasattr(v, "item") else v) for k, v in pairs)
    object.__setattr__(self, "options", options)
    make_plain(self)
    for name in ("epochs", "batch_size", "lanes", "tile_batches"):
      value = getattr(self, name)
      _need(value >= 1, f"solver.{name} is {value}; it must be at least 1")
    _need(
      0 <= self.init_scale < math.inf,
      f"solver.init_scale is {self.init_scale}; it must be finite and at least 0",
    )
    make_optimizer(self)


@dataclasses.dataclass(frozen=True)
class Ridge:
  """The closed form: W_j = B_j (A_j + λ tr(A_j)/d I)^-1, A_j = Σ x xᵀ, B_j = Σ y xᵀ.

  A_j and B_j are sums of integers, exact in any order. To forget a sample is to
  subtract it and to solve again: no pass over the other members.

  Attributes:
    penalty: λ, relative to the mean eigenvalue of A_j, so that it means the same for
      small and large adapters.
    scale: logits are `scale` times the regressed values, which lie around 0 and 1. It
      changes how sure the probabilities are, and hardly which class wins.
    keep: whether the state keeps A_j and B_j between requests: 0.6 MB per adapter at
      d = 512. If not, they are summed up again from the members, to the same bits; it
      is free to change for a given state.
  """

  penalty: float = 0.01
  scale: float = 12.0
  keep: bool = dataclasses.field(default=True, metadata={"free": True})

  def __post_init__(self) -> None:
    make_plain(self)
    _need(
      1e-6 <= self.penalty < math.inf,
      f"solver.penalty is {self.penalty}; it must be finite and at least 1e-6",
    )
    _need(
      0 < self.scale < math.inf,
      f"solver.scale is {self.scale}; it must be a finite number above 0",
    )


def make_optimizer(solver: Sgd) -> optax.GradientTransformation:
  """The optax transformation that `solver` names."""
  factory, options = solver.optimizer, dict(solver.options)
  if isinstance(factory, str):
    factory = getattr(optax, factory, factory)
  try:
    made = factory(**options)  # type: ignore[operator]
  except TypeError as e:
    raise errors.ConfigError(
      f"optimizer {solver.optimizer!r} with options {options}: {e};"
      " name a function of optax and its keyword arguments"
    ) from e
  if not isinstance(made, optax.GradientTransformation):
    raise errors.ConfigError(f"{solver.optimizer!r} is not an optimiser of optax")
  return made


def _need(ok: bool, message: str) -> None:
  if not ok:
    raise errors.ConfigError(message)
