"""How one adapter is trained: the settings of each solver.

`Sgd` is the paper's Algorithm 1. `Ridge` is the closed form of the squared loss, whose
sums are integers, so that forgetting is a subtraction. A solver of your own is a frozen
dataclass whose `train` is registered, see `legonet_jax.task`.
"""

from collections.abc import Callable
import dataclasses
import functools
import operator
from typing import Any, Literal, get_origin

import jax
import jax.numpy as jnp
import numpy as np
import optax

from legonet_jax import errors, numerics

OptimizerFactory = Callable[..., optax.GradientTransformation]

# A tile is indexed in int32 on the device, and so are the epochs on it.
_MAX_INT32 = 2**31 - 1
# Beyond, a step on ordinary features leaves float32, whose largest number is 3e38.
_MAX_OPTION = 1e30


def make_plain(config: Any) -> None:
  """Turns numbers of any kind into Python's, so that equal settings are the same.

  Raises:
    ConfigError: if a value is not of its field's kind. A truth value or a text is no
      number, though Python would convert it: it is a slip of the caller's.
  """
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if field.type in _PLAIN:
      kind, convert = _PLAIN[field.type]
    elif field.type is str or get_origin(field.type) is Literal:
      kind, convert = "a text", _plain_text
    else:
      continue
    try:
      plain = convert(value)
    except (TypeError, ValueError, OverflowError) as e:
      raise errors.ConfigError(
        f"{field.name} is {errors.brief(value)}; it must be {kind}"
      ) from e
    object.__setattr__(config, field.name, plain)


def _plain_int(value: Any) -> int:
  if isinstance(value, bool):
    raise TypeError
  number = operator.index(value)
  if abs(number) >= 2**63:
    raise OverflowError
  return number


def _plain_float(value: Any) -> float:
  if isinstance(value, (bool, np.bool_, str, bytes, bytearray)) or np.ndim(value):
    raise TypeError
  return float(value)


def _plain_float_or_none(value: Any) -> float | None:
  return None if value is None else _plain_float(value)


def _plain_bool(value: Any) -> bool:
  if not isinstance(value, (bool, np.bool_)):
    raise TypeError
  return bool(value)


def _plain_text(value: Any) -> str:
  if not isinstance(value, str):
    raise TypeError
  return str(value)


_PLAIN: dict[Any, tuple[str, Callable[[Any], Any]]] = {
  int: ("a whole number of at most 64 bits", _plain_int),
  float: ("a number", _plain_float),
  float | None: ("a number or None", _plain_float_or_none),
  bool: ("True or False", _plain_bool),
}


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
      _need(
        1 <= value <= _MAX_INT32,
        f"solver.{name} is {value}; it must be at least 1 and at most {_MAX_INT32}",
      )
    _need(
      self.tile_batches * self.lanes * self.batch_size <= _MAX_INT32,
      f"solver.tile_batches is {self.tile_batches}, lanes {self.lanes} and batch_size"
      f" {self.batch_size}; their product, the samples of one call, must be at most"
      f" {_MAX_INT32}",
    )
    _need(
      0 <= self.init_scale <= 1e6,
      f"solver.init_scale is {self.init_scale}; it must be between 0 and 1e6",
    )
    _check_options(options)
    _check_optimizer(self.optimizer, options)


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
  scale: float = 10.0
  keep: bool = dataclasses.field(default=True, metadata={"free": True})

  def __post_init__(self) -> None:
    make_plain(self)
    # Larger ones change only the size of W_j, which is that of `scale`.
    _need(
      1e-6 <= self.penalty <= 1e6,
      f"solver.penalty is {self.penalty}; it must be between 1e-6 and 1e6",
    )
    _need(
      1e-6 <= self.scale <= 1e6,
      f"solver.scale is {self.scale}; it must be between 1e-6 and 1e6",
    )


def make_optimizer(solver: Sgd) -> optax.GradientTransformation:
  """The optax transformation that `solver` names."""
  return _make_optimizer(solver.optimizer, solver.options)


def _make_optimizer(
  optimizer: str | OptimizerFactory, options: tuple[tuple[str, Any], ...]
) -> optax.GradientTransformation:
  factory = optimizer
  if isinstance(factory, str) and not factory.startswith("_"):
    factory = getattr(optax, factory, factory)
  _need(
    callable(factory),
    f"optimizer is {errors.brief(optimizer)}; name a function of optax such as 'adam',"
    " or give a function that makes an optimiser",
  )
  try:
    made = factory(**dict(options))  # type: ignore[operator]
  except Exception as e:  # whatever a function of somebody else's raises
    raise errors.ConfigError(
      f"optimizer {errors.brief(optimizer)} with options"
      f" {errors.brief(dict(options))}: {_first_line(e)};"
      " name a function of optax and its keyword arguments"
    ) from e
  _need(
    isinstance(made, optax.GradientTransformation),
    f"{errors.brief(optimizer)} is not an optimiser of optax; name one such as 'adam'",
  )
  return made


def _check_options(options: tuple[tuple[str, Any], ...]) -> None:
  """Raises if an option of the optimiser is a number that no training can use."""
  for name, value in options:
    if isinstance(value, (int, float)):
      _need(
        -_MAX_OPTION <= value <= _MAX_OPTION,
        f"solver.options have {name} {errors.brief(value)};"
        f" it must be a finite number of at most {_MAX_OPTION:g}",
      )
  rate = dict(options).get("learning_rate", 1.0)
  if not callable(rate):
    # With None, optax would climb: it scales by nothing, not even by -1.
    _need(
      isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate > 0,
      f"solver.options have learning_rate {errors.brief(rate)};"
      " it must be a number above 0, or be left out for the optimiser's own",
    )


@functools.lru_cache(maxsize=256)
@numerics.pinned()
def _check_optimizer(
  optimizer: str | OptimizerFactory, options: tuple[tuple[str, Any], ...]
) -> None:
  """Raises if a step of the optimiser, traced only, is not one that training can do."""
  made = _make_optimizer(optimizer, options)

  def step(weights: jax.Array, grads: jax.Array) -> tuple[Any, Any]:
    state = made.init(weights)
    updates, after = made.update(grads, state, weights)
    return (weights, state), (optax.apply_updates(weights, updates), after)

  shape = jax.ShapeDtypeStruct((2, 3), jnp.float32)  # type: ignore[no-untyped-call]
  try:
    before, after = jax.eval_shape(step, shape, shape)
  except Exception as e:  # whatever a function of somebody else's raises
    raise errors.ConfigError(
      f"optimizer {errors.brief(optimizer)} with options"
      f" {errors.brief(dict(options))} cannot do a step from gradients, its state and"
      f" weights alone: {_first_line(e)}; take another one such as 'adam'"
    ) from e
  kinds = [
    (jax.tree.structure(tree), [(a.shape, a.dtype) for a in jax.tree.leaves(tree)])
    for tree in (before, after)
  ]
  _need(
    kinds[0] == kinds[1],
    f"optimizer {errors.brief(optimizer)} changes the shape or type of its state from"
    " step to step, so it cannot run in a loop; take another one such as 'adam'",
  )


def _first_line(error: Exception) -> str:
  """What an error says, for use in a message of one line."""
  lines = str(error).strip().splitlines()
  return lines[0][:200] if lines else type(error).__name__


def _need(ok: bool, message: str) -> None:
  if not ok:
    raise errors.ConfigError(message)
