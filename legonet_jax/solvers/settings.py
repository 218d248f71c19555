"""Settings as JSON, and back, without loss.

Functions and types of other packages are named by their address, such as
`my_module:Lasso`. A file never causes an import: your own solver is found only if its
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
    ConfigError: if the settings could not be read again, because they hold a function.
  """
  check_round_trip(cfg)
  return json.dumps(describe(cfg), sort_keys=True)


def config_from_json(text: str) -> LegoConfig:
  """The settings that `config_to_json` wrote.

  Raises:
    ConfigError: if the text does not hold settings.
  """
  try:
    value = json.loads(text)
  except (ValueError, RecursionError, TypeError) as e:
    raise errors.ConfigError(f"settings are not JSON ({e})") from None
  return parse_config(value)


def check_round_trip(cfg: LegoConfig) -> None:
  """Raises ConfigError if settings cannot be written as JSON and read again."""
  kind = type(cfg.solver)
  if kind.__module__ == "__main__":
    raise errors.ConfigError(
      f"solver {kind.__name__} is defined in a script or a notebook, where no other"
      " process could find it; put it in a module of its own and import that"
    )
  try:
    same = parse_config(json.loads(json.dumps(describe(cfg)))) == cfg
  except errors.LegoError:
    same = False
  if not same:
    raise errors.ConfigError(
      "these settings cannot be written as JSON and read again; use the solver Sgd or"
      " Ridge, name the optimiser of optax and give plain numbers as its options"
    )


def parse_config(value: Any) -> LegoConfig:
  """The settings from the JSON values that `describe` returned."""
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

  A file never causes an import.
  """
  if name in _TYPES:
    return _TYPES[name]
  module, _, qualname = name.partition(":")
  kind: Any = sys.modules.get(module)
  for part in qualname.split("."):
    kind = getattr(kind, part, None)
  if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
    kind_of_error = errors.UnknownSolverError if qualname else errors.ConfigError
    raise kind_of_error(
      f"unknown settings {name!r}; if it is your own solver, `import {module}` first"
      f" (on the command line, `legonet --import {module} ...`)"
    )
  if not callable(getattr(kind, "train", None)):
    raise errors.ConfigError(f"{name!r} is not a solver; see docs/extending.md")
  return kind
