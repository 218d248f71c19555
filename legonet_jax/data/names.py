"""Names that people give to classes and encoders: text that is safe to show."""

from collections.abc import Sequence
from typing import Any
import unicodedata

from legonet_jax import errors

_LONGEST = 200
# Control characters (also escape codes of terminals), halves of characters as in names
# of files that are not UTF-8, and separators of lines and paragraphs.
_UNSAFE = {"Cc", "Cs", "Zl", "Zp"}


def check_classes(where: str, names: Sequence[Any], count: int) -> tuple[str, ...]:
  """The names of the classes 0 ... C - 1, checked.

  Args:
    where: what they belong to, for messages.
    names: what was given.
    count: how many classes there are at least: the largest label and 1.

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
  # Printable ones have none of these, and are nearly all there are.
  safe = name.isprintable() or not any(unicodedata.category(c) in _UNSAFE for c in name)
  return 0 < len(name) <= _LONGEST and safe
