"""Settings as plain Python values, so that equal settings have equal hashes.

A setting may come as a numpy scalar, from JSON or from a command line. It is always
stored, hashed and compared as a plain int, float, bool or str.
"""

from collections.abc import Callable
import dataclasses
import operator
from typing import Any, Literal, get_origin

import jax
import numpy as np

from legonet_jax import errors


def make_plain(config: Any) -> None:
  """Turns the fields of `config` into plain Python values, in place.

  Raises:
    ConfigError: if a value is not of its field's kind. A bool or a text is refused as a
      number: Python would convert it, but it is probably a mistake.
  """
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    # A module with `from __future__ import annotations` has types as text.
    type_ = _BY_NAME.get(field.type, field.type)
    if type_ in _PLAIN:
      kind, convert = _PLAIN[type_]
    elif type_ is str or get_origin(field.type) is Literal:
      kind, convert = "a text", _plain_text
    else:
      continue
    try:
      plain = convert(value)
    except (TypeError, ValueError, OverflowError) as e:
      if isinstance(value, jax.core.Tracer):
        raise errors.TracedError(
          f"{field.name} is traced, and settings are static; functional.init takes a"
          " traced seed, and options of the solver such as learning_rate"
        ) from e
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
_BY_NAME: dict[Any, Any] = {
  "int": int,
  "float": float,
  "float | None": float | None,
  "bool": bool,
  "str": str,
}


def need(ok: bool, message: str) -> None:
  """Raises ConfigError with `message` if not `ok`."""
  if not ok:
    raise errors.ConfigError(message)
