"""Marks of forgotten samples, so that none comes back by accident.

The journal keeps a mark (see `store.marks`) for every forgotten id; the run keeps a
random key in a file of its own (`forgotten.key`, for its owner only). With both, an id
can be looked up: `learn` refuses to bring back a forgotten sample, recovery finds rows
that must still be erased, and `verify` finds rows that a restored backup has brought
back. The journal alone names nobody: without the key, marks are random numbers.

The same key seals the retained set: whoever can name all ids of a state can check them
against `seal(ids)` in the journal.
"""

from collections.abc import Iterable, Sequence
import hashlib
import hmac
import pathlib
import secrets
from typing import Any

import numpy as np

from legonet_jax import errors
from legonet_jax.core.ids import Ids
from legonet_jax.io import durable, untrusted
from legonet_jax.store.marks import find_marked as find_marked, mark as mark

_BYTES = 32
Marks = frozenset[str]


def make_key(path: pathlib.Path) -> bytes:
  """The key in `path`; makes a new one if there is none."""
  if not path.exists():
    durable.write(path, text_of(secrets.token_bytes(_BYTES)), mode=0o600)
  return read_key(path)


def open_key(path: pathlib.Path, entries: Sequence[dict[str, Any]]) -> bytes:
  """The key of the run with these journal entries.

  Raises:
    RunError: if it is missing, or the journal was written with another key.
  """
  if not any("key" in entry for entry in entries):
    return make_key(path)  # an earlier version made this run, without marks
  return current_key(path, entries)


def current_key(path: pathlib.Path, entries: Sequence[dict[str, Any]]) -> bytes:
  """As `open_key`, without making a key for a run that has none."""
  key = read_key(path)
  if not is_current(key, entries):
    raise errors.RunError(
      f"{path} is not the key that this run's journal was written with; restore it from"
      " a copy, or go on without it: `legonet repair`"
    )
  return key


def renew_key(
  path: pathlib.Path, entries: Sequence[dict[str, Any]]
) -> tuple[bytes, bool]:
  """The key of a run, or a new one if it is lost; and whether it is new.

  Without the old key nobody can tell which samples were forgotten before.
  """
  try:
    return open_key(path, entries), False
  except errors.RunError:
    durable.shred(path)
    return make_key(path), True


def read_key(path: pathlib.Path) -> bytes:
  """The key in `path`.

  Raises:
    RunError: if it is missing or damaged.
  """
  try:
    text = untrusted.read_bytes(path, follow=False, limit=1024).decode("ascii")
    key = bytes.fromhex(text)
  except (FileNotFoundError, ValueError):
    key = b""
  if len(key) != _BYTES:
    raise errors.RunError(
      f"{path} is missing or damaged: without it nobody can tell which samples this run"
      " has forgotten; restore it from a copy, or go on without it: `legonet repair`"
    )
  return key


def text_of(key: bytes) -> bytes:
  """The contents of the file of a key."""
  return key.hex().encode() + b"\n"


def key_name(key: bytes) -> str:
  """The name of a key in the journal, which does not reveal the key."""
  return hashlib.sha256(b"legonet-jax forgotten key" + key).hexdigest()[:16]


def is_current(key: bytes, entries: Sequence[dict[str, Any]]) -> bool:
  """Whether the journal's last marks and seals were made with this key."""
  names = [entry["key"] for entry in entries if "key" in entry]
  return bool(names) and names[-1] == key_name(key)


def seal(key: bytes, ids: Ids) -> str:
  """One value for a whole set of ids, whatever their order."""
  data = np.sort(np.ascontiguousarray(ids, "<i8")).tobytes()
  return hmac.digest(key, b"retained" + data, "sha256").hex()


def all_marks(entries: Sequence[dict[str, Any]], more: Iterable[str] = ()) -> Marks:
  """The marks of all ids that are forgotten according to these journal entries.

  Args:
    entries: of the journal.
    more: marks of requests that are applied but not in the journal yet.
  """
  marks: set[str] = set()
  name = ""
  for entry in entries:
    if entry.get("key", name) != name:  # marks of a lost key are useless
      name = entry["key"]
      marks.clear()
    marks.update(entry.get("forgotten", ()))
    marks.difference_update(entry.get("relearned", ()))
  return frozenset(marks | set(more))


def find_entries(
  key: bytes, entries: Sequence[dict[str, Any]], ids: Ids
) -> list[dict[str, Any] | None]:
  """The newest journal entry that forgot each of `ids` [m], or None."""
  newest = {m: entry for entry in entries for m in entry.get("forgotten", ())}
  return [newest.get(m) for m in mark(key, ids)]


def marks_all(key: bytes, entries: Sequence[dict[str, Any]]) -> bool:
  """Whether everything that the run has forgotten is marked under this key."""
  name = key_name(key)
  return all(e.get("key") == name for e in entries if e["event"] == "complete")
