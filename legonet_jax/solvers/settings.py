"""Settings as JSON, and back: what is written down is what is read again.

Functions and types of others are named by their address, such as `my_module:Lasso`.
Nothing is imported because a file says so: a solver of yours is found only if its
module is imported already.
"""

import dataclasses
import json
import sys
from typing import Any

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig, describe
from legonet_jax.solvers.ridge import Ridge
from legonet_jax.solvers.sgd import Sgd

_TYPES = {"LegoConfig": LegoConfig, "Sgd": Sgd, "Ridge": Ridge}


def config_to_json(cfg: LegoConfig) -> str:
  """The settings as JSON text, for `config_from_json`.

  Raises:
    ConfigError: if they could not be read again, because they hold a function.
  """
  check_round_trip(cfg)
  return json.dumps(describe(cfg), sort_keys=True)


def config_from_json(text: str) -> LegoConfig:
  """The settings that `config_to_json` has written.

  Raises:
    ConfigError: if the text is no such thing.
  """
  try:
    value = json.loads(text)
  except (ValueError, RecursionError) as e:
    raise errors.ConfigError(f"settings are not JSON ({e})") from None
  return parse_config(value)


def check_round_trip(cfg: LegoConfig) -> None:
  """Raises ConfigError if settings cannot be written down and read again."""
  try:
    same = parse_config(json.loads(json.dumps(describe(cfg)))) == cfg
  except errors.LegoError:
    same = False
  if not same:
    raise errors.ConfigError(
      "these settings cannot be written down and read again; use the solver Sgd or"
      " Ridge, name the optimiser of optax and give plain numbers as its options"
    )


def parse_config(value: Any) -> LegoConfig:
  """The settings that `describe` has written down."""
  config = _parse(value)
  if not isinstance(config, LegoConfig):
    raise errors.ConfigError("these are not the settings of a LegoNet")
  return config


def _parse(value: Any) -> Any:
  if isinstance(value, list):
    return tuple(_parse(v) for v in value)
  if not isinstance(value, dict):
    return value
  kind = _find_type(str(value.get("type")))
  try:
    fields = {k: _parse(v) for k, v in value.items() if k != "type"}
    return kind(**fields)
  except RecursionError:
    raise errors.ConfigError("settings are nested too deeply") from None
  except TypeError as e:
    raise errors.ConfigError(f"settings of another version: {e}") from None


def _find_type(name: str) -> Any:
  """The type of settings that a file names: ours, or a solver that is imported already.

  Nothing is imported because a file says so.
  """
  if name in _TYPES:
    return _TYPES[name]
  module, _, qualname = name.partition(":")
  kind: Any = sys.modules.get(module)
  for part in qualname.split("."):
    kind = getattr(kind, part, None)
  if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
    raise errors.UnknownSolverError(
      f"unknown settings {name!r}; if it is a solver of yours, import {module!r} first"
      f" (`legonet --import {module} ...`)"
    )
  if not callable(getattr(kind, "train", None)):
    raise errors.ConfigError(f"{name!r} is not a solver; see docs/extending.md")
  return kind
