"""Whether a file or value of our own is just what we write, with room for nothing else.

Whoever can write a folder can hide data where readers do not look: in an extra key,
behind the end of an array, in the spaces of a header, in an extended attribute. What we
wrote ourselves has one form only, so it is compared with that form.
"""

from collections.abc import Mapping
import io
import json
import os
import pathlib
import re
from typing import Any

import numpy as np

from legonet_jax import errors
from legonet_jax.io import hashing, untrusted

_LONGEST_HEADER = 1 << 16


def has_form(value: Any, form: Any) -> bool:
  """Whether a value from JSON has a form, with exactly the keys of the form.

  Args:
    value: the value.
    form: a type, as for `untrusted.is_a`; a pattern for the whole of a text; [form] for
      a list; {...: form} for any keys; {pattern: form} for keys that fit the pattern;
      {name: form} for these keys and no others, of which those that end in "?" may be
      missing; a tuple for any one of several forms;
      None, or a text, a number or a bool for that very value.
  """
  if isinstance(form, tuple):
    return any(has_form(value, one) for one in form)
  if isinstance(form, re.Pattern):
    return isinstance(value, str) and form.fullmatch(value) is not None
  if isinstance(form, list):
    return isinstance(value, list) and all(has_form(part, form[0]) for part in value)
  if isinstance(form, Mapping):
    return isinstance(value, dict) and _has_keys(value, form)
  if isinstance(form, type):
    return untrusted.is_a(value, form)
  return type(value) is type(form) and bool(value == form)


def _has_keys(value: dict[str, Any], form: Mapping[Any, Any]) -> bool:
  if ... in form:
    return all(has_form(part, form[...]) for part in value.values())
  for name in form:
    if isinstance(name, re.Pattern):
      fits = all(name.fullmatch(key) for key in value)
      return fits and all(has_form(part, form[name]) for part in value.values())
  known = {name.removesuffix("?"): of for name, of in form.items()}
  needed = {name for name in form if not name.endswith("?")}
  return needed <= value.keys() <= known.keys() and all(
    has_form(part, known[name]) for name, part in value.items()
  )


def is_json(path: pathlib.Path, form: Any) -> bool:
  """Whether a file is a JSON object of a form, in the bytes in which we write it."""
  try:
    data = untrusted.read_bytes(path, follow=False)
    value = untrusted.parse_json(data, str(path))
  except (errors.DataError, OSError):
    return False
  return data == hashing.to_text(value) and has_form(value, form)


def read_plain_json(path: pathlib.Path) -> dict[str, Any] | None:
  """A JSON object that another library wrote; None if it may have added spaces."""
  try:
    data = untrusted.read_bytes(path, follow=False)
    value = untrusted.parse_json(data, str(path))
  except errors.DataError:
    return None
  texts = (json.dumps(value), json.dumps(value, separators=(",", ":")))
  return value if data in [text.encode() for text in texts] else None


def is_npy(path: pathlib.Path) -> bool:
  """Whether an `.npy` file is byte for byte what `np.save` writes for its array."""
  try:
    array = untrusted.map_npy(path, follow=False)  # no bytes behind the data
    with untrusted.open_plain(path, follow=False) as file:
      start = file.read(_LONGEST_HEADER)
  except (errors.DataError, OSError):
    return False
  header = io.BytesIO()
  about = np.lib.format.header_data_from_array_1_0(array)
  np.lib.format.write_array_header_1_0(header, about)
  return start.startswith(header.getvalue())


def find_tagged(root: pathlib.Path) -> pathlib.Path | None:
  """A file or folder at or below `root` with extended attributes of a user, or None."""
  if not hasattr(os, "listxattr"):
    return None
  below = (pathlib.Path(at, n) for at, ds, fs in os.walk(root) for n in (*ds, *fs))
  return next((path for path in (root, *below) if _is_tagged(path)), None)


def _is_tagged(path: pathlib.Path) -> bool:
  try:
    names = os.listxattr(path, follow_symlinks=False)
  except OSError:  # the file system has none, or another process removed the file
    return False
  return any(name.startswith("user.") for name in names)
