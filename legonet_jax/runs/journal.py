"""The journal: one JSON line per event, durable, each line bound to the one before.

    created    the run: settings, encoder, environment, digest
    accepted   a request is on disk and will be carried out: kind, salted id hashes
    rejected   a request that cannot be carried out, and why
    complete   the requests of one batch are done: digests before and after, adapters,
               seconds, the stores that changed, marks of what was forgotten
    repaired   a damaged checkpoint was made again from the stores

A line holds the sha256 of the previous one (`prev`) and of itself (`hash`), so a line
cannot be changed, dropped or moved without breaking all that follow. Whoever can write
the folder can also write a whole new chain; a copy of `hash` kept elsewhere (every
command prints it, every certificate holds it) reveals that.

The journal holds no data of a sample. Ids appear as sha256(salt, id). The salt, random
for each request, is given to whoever made the request and kept nowhere: without it,
trying out all ids tells nothing; with it, anybody can look up the request. A forgotten
id also leaves a mark that the run itself can look up (see `tombstones`).
"""

from collections.abc import Mapping, Sequence
import datetime
import hashlib
import json
import os
import pathlib
from typing import Any

import numpy as np

from legonet_jax import errors
from legonet_jax.core.ids import Ids
from legonet_jax.io import durable, files, hashing, untrusted

Entry = dict[str, Any]
FORMAT = 2
_START = "0" * 64
_ALWAYS = {"seq": int, "time": str, "event": str, "prev": str, "hash": str}
# The types of fields, as `untrusted.is_a` takes them. The record of each store:
RECORDS = {...: {"rows": int, "erased": int, "sha256": {...: str}}}
# Fields that an entry must have, by event; later versions may add more.
_FIELDS: Mapping[str, Mapping[str, Any]] = {
  "created": {"config": dict, "after": str, "samples": int},
  "accepted": {"request": str, "kind": str, "count": int, "ids": list},
  "rejected": {"request": str, "kind": str, "count": int, "reason": str},
  "complete": {
    "requests": list, "before": str, "after": str, "adapters": int, "masked": int,
    "samples": int, "seconds": float,
  },
  "repaired": {"proved": bool},
}  # fmt: skip
# Fields that any entry may have.
_OPTIONAL: Mapping[str, Any] = {
  "forgotten": list, "relearned": list, "stores": RECORDS, "checkpoint": int,
  "changed": RECORDS, "gone": {...: int}, "retained": str, "key": str, "before": str,
  "after": str, "samples": int, "ids": list, "masked": int, "files": {...: str},
}  # fmt: skip


def salted(salt: bytes, ids: Ids) -> list[str]:
  """The hash of each id under a salt, in ascending order of the hashes."""
  return sorted(
    hashlib.sha256(salt + np.int64(i).tobytes()).hexdigest()[:32] for i in ids
  )


def read(path: pathlib.Path) -> list[Entry]:
  """All entries, after checking the chain; without a last line torn by a crash.

  Raises:
    RunError: if somebody has changed, dropped or added a line, or if the first one does
      not say how the run was made.
  """
  try:
    lines = untrusted.read_bytes(path, follow=False, limit=1 << 32).split(b"\n")
  except FileNotFoundError:
    raise errors.RunError(f"{path} is missing; the run is incomplete") from None
  entries: list[Entry] = []
  previous = _START
  for number, line in enumerate(lines[:-1], 1):
    try:
      entry = untrusted.parse_json(line, "line")
      sound = entry["hash"] == hash_of(entry) and entry["prev"] == previous
      sound = sound and _is_complete(entry) and entry["seq"] == number - 1
      previous = entry["hash"]
    except (ValueError, KeyError, TypeError):
      sound = False
    if not sound:
      raise errors.RunError(
        f"{path} line {number} does not fit the chain: the journal was changed or"
        " damaged; restore it from a copy"
      )
    entries.append(entry)
  if not entries or entries[0]["event"] != "created":
    raise errors.RunError(
      f"{path} does not begin with how the run was made: lines are missing; restore it"
      " from a copy"
    )
  return entries


def _is_complete(entry: Entry) -> bool:
  """Whether an entry has the fields that its event needs, each of the right type."""
  fields = _FIELDS.get(entry["event"])
  if fields is None or (entry["event"] == "created") != (entry["seq"] == 0):
    return False
  return fits(entry, _ALWAYS) and fits(entry, fields)


def fits(values: Mapping[str, Any], needed: Mapping[str, Any]) -> bool:
  """Whether all `needed` fields exist, and all known fields have the right type."""
  known = {name: kind for name, kind in _OPTIONAL.items() if name in values}
  return untrusted.is_a(dict(values), {**known, **needed})


def is_report(event: str, values: Any) -> bool:
  """Whether `values` has the fields of an `event` entry (not time, number, hash)."""
  return isinstance(values, dict) and fits(values, _FIELDS[event])


def records(entries: Sequence[Entry]) -> dict[str, Any] | None:
  """The record of each store after the last entry; None if no entry has any."""
  known: dict[str, Any] | None = None
  for entry in entries:
    if "stores" in entry:  # all of them: of a new run, or up to version 0.3
      known = dict(entry["stores"])
    if "changed" in entry:
      known = {**(known or {}), **entry["changed"]}
      for name in entry.get("gone", ()):
        known.pop(name, None)
  return known


def changes(entries: Sequence[Entry], now: Mapping[str, Any]) -> dict[str, Any]:
  """The fields of an entry that makes `records` of all entries `now`."""
  known = records(entries) or {}
  changed = {name: record for name, record in now.items() if known.get(name) != record}
  gone = {name: known[name]["rows"] for name in known.keys() - now.keys()}
  return {"changed": changed, **({"gone": gone} if gone else {})}


def append(
  path: pathlib.Path, entries: list[Entry], event: str, values: Mapping[str, Any]
) -> Entry:
  """Adds an entry to the file, durable when this returns, and to `entries`.

  Args:
    path: the file; the caller holds the run's lock.
    entries: all entries so far, as `read` gave them.
    event: what happened.
    values: the fields of the event.
  """
  now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
  entry: Entry = {"seq": len(entries), "time": now, "event": event, **values}
  entry["prev"] = entries[-1]["hash"] if entries else _START
  entry["hash"] = hash_of(entry)
  line = line_of(entry)
  if not entries:
    # Written whole or not at all: a folder with an empty journal could neither be
    # opened as a run nor fitted again.
    durable.write(path, line)
  else:
    _append(path, line)
  entries.append(entry)
  return entry


def line_of(entry: Entry) -> bytes:
  """The line of an entry in the file."""
  return json.dumps(entry, sort_keys=True).encode() + b"\n"


def _append(path: pathlib.Path, line: bytes) -> None:
  """Adds a line to a file, durable when this returns."""
  flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
  handle = os.open(path, flags)
  try:
    size = os.fstat(handle).st_size
    try:
      while line:
        line = line[os.write(handle, line) :]
      files.flush(handle)
    except BaseException:  # a full disk, Ctrl-C: remove the part that was written
      os.ftruncate(handle, size)
      raise
  finally:
    os.close(handle)


def mend(path: pathlib.Path) -> None:
  """Cuts off a last line torn by a crash; nobody was told that it was written."""
  data = untrusted.read_bytes(path, follow=False, limit=1 << 32)
  whole = data.rfind(b"\n") + 1
  if whole < len(data):
    handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
      os.ftruncate(handle, whole)
      files.flush(handle)
    finally:
      os.close(handle)


def of_requests(entries: Sequence[Entry]) -> tuple[dict[str, Entry], set[str]]:
  """`accepted` entries by request, in order; the names of all settled requests."""
  accepted = {e["request"]: e for e in entries if e["event"] == "accepted"}
  settled = {
    name for e in entries if e["event"] == "complete" for name in e["requests"]
  }
  settled |= {e["request"] for e in entries if e["event"] == "rejected"}
  return accepted, settled


def latest(entries: Sequence[Entry], field: str) -> Any:
  """The value of `field` in the newest entry that has one, or None."""
  return next((e[field] for e in reversed(entries) if field in e), None)


def hash_of(entry: Mapping[str, Any]) -> str:
  """The hash that an entry must have."""
  text = {k: v for k, v in entry.items() if k != "hash"}
  return hashing.sha256_of_json(text)
