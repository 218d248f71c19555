"""Checks that names of classes and encoders are safe to show on a terminal."""

from collections.abc import Sequence
from typing import Any
import unicodedata

from legonet_jax import errors

_LONGEST = 200
# Unicode categories: control characters (also terminal escape codes), surrogates (as in
# file names that are not UTF-8), separators of lines and of paragraphs.
_UNSAFE = {"Cc", "Cs", "Zl", "Zp"}


def check_classes(where: str, names: Sequence[Any], count: int) -> tuple[str, ...]:
  """Checks the names of the classes 0 ... C - 1 and returns them.

  Args:
    where: the file or dataset that they belong to, for messages.
    names: the given names.
    count: the least number of classes: the largest label + 1.

  Raises:
    DataError: if there are too few, one occurs twice, or one is not a short line.
  """
  seen: set[str] = set()
  for label, name in enumerate(names):
    if not isinstance(name, str) or not _is_short_line(name):
      raise errors.DataError(
        f"{where}: the name of class {label} is {ascii(name)[:60]}; give 1 to"
        f" {_LONGEST} characters, none of them a control character"
      )
    if name in seen:
      raise errors.DataError(
        f"{where}: two classes are named {name!r}; give each a name of its own"
      )
    seen.add(name)
  if len(names) < count:
    raise errors.DataError(
      f"{where}: {len(names)} class names for labels up to {count - 1}; name every"
      " class from 0 on"
    )
  return tuple(names)


def is_one_line(text: str, longest: int) -> bool:
  """Whether `text` is one line that can be printed, of at most `longest` characters."""
  return 0 < len(text) <= longest and text.isprintable() and not text.isspace()


def _is_short_line(name: str) -> bool:
  # A fast path: printable names, nearly all, have no unsafe characters.
  safe = name.isprintable() or not any(unicodedata.category(c) in _UNSAFE for c in name)
  return 0 < len(name) <= _LONGEST and safe
