"""How JSON is hashed and written: always with sorted keys."""

from collections.abc import Mapping
import hashlib
import json
from typing import Any


def sha256_of_json(value: Any) -> str:
  """The sha256 of a JSON value, in hexadecimal, whatever the order of its keys."""
  return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def to_text(value: Mapping[str, Any]) -> bytes:
  """A JSON object as the bytes of a file: keys sorted, indented for people to read."""
  return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
