"""The journal: one JSON line per event, durable, each line bound to the one before.

    created    the run: settings, encoder, environment, digest
    accepted   a request is on disk and will be carried out: kind, salted id hashes
    rejected   a queued request that cannot be carried out, and why
    complete   the requests of one batch are done: digests before and after, adapters,
               seconds
    repaired   a damaged checkpoint was made again from the stores

A line holds the sha256 of the previous one (`prev`) and of itself (`hash`), so a line
cannot be changed, dropped or moved without breaking all that follow. Who can write the
folder can also write a whole new chain; a copy of `hash` kept elsewhere (every command
prints it, every certificate holds it) shows that up.

The journal has nothing of a sample. Ids appear as sha256(salt, id), and the salt,
random for each request, is handed to whoever made the request and kept nowhere:
without it, trying out all ids tells nothing; with it, anybody can look the request up.
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
from legonet_jax.ids import Ids
from legonet_jax.runs import durable

Entry = dict[str, Any]
_START = "0" * 64


def salted(salt: bytes, ids: Ids) -> list[str]:
  """The hash of each id under a salt, in ascending order of the hashes."""
  return sorted(
    hashlib.sha256(salt + np.int64(i).tobytes()).hexdigest()[:32] for i in ids
  )


def read(path: pathlib.Path) -> list[Entry]:
  """All entries, the chain checked; a torn last line, never acknowledged, is left out.

  Raises:
    RunError: if a line was changed, dropped or added by other hands.
  """
  try:
    lines = path.read_bytes().split(b"\n")
  except FileNotFoundError:
    raise errors.RunError(f"{path} is missing; the run is incomplete") from None
  entries: list[Entry] = []
  previous = _START
  for number, line in enumerate(lines[:-1], 1):
    try:
      entry = json.loads(line)
      sound = entry["hash"] == hash_of(entry) and entry["prev"] == previous
      previous = entry["hash"]
    except (ValueError, KeyError, TypeError):
      sound = False
    if not sound:
      raise errors.RunError(
        f"{path} line {number} does not fit the chain: the journal was changed or"
        " damaged; restore it from a copy"
      )
    entries.append(entry)
  return entries


def append(
  path: pathlib.Path, entries: list[Entry], event: str, values: Mapping[str, Any]
) -> Entry:
  """Adds an entry to the file, durable when this returns, and to `entries`.

  Args:
    path: the file; the caller holds the run's lock.
    entries: all entries so far, as `read` gave them.
    event: what happened.
    values: what there is to say about it.
  """
  now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
  entry: Entry = {"seq": len(entries), "time": now, "event": event, **values}
  entry["prev"] = entries[-1]["hash"] if entries else _START
  entry["hash"] = hash_of(entry)
  line = json.dumps(entry, sort_keys=True).encode() + b"\n"
  handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
  try:
    size = os.fstat(handle).st_size
    try:
      while line:
        line = line[os.write(handle, line) :]
      os.fsync(handle)
    except OSError:  # a full disk: take back what there is of the line
      os.ftruncate(handle, size)
      raise
  finally:
    os.close(handle)
  if not entries:
    durable.sync_folder(path.parent)
  entries.append(entry)
  return entry


def mend(path: pathlib.Path) -> None:
  """Cuts off a last line that a crash has torn; it was never acknowledged."""
  data = path.read_bytes()
  whole = data.rfind(b"\n") + 1
  if whole < len(data):
    with path.open("r+b") as file:
      file.truncate(whole)
      os.fsync(file.fileno())


def of_requests(entries: Sequence[Entry]) -> tuple[dict[str, Entry], set[str]]:
  """Accepted entries by request, in order, and the requests that are settled."""
  accepted = {e["request"]: e for e in entries if e["event"] == "accepted"}
  settled = {
    name for e in entries if e["event"] == "complete" for name in e["requests"]
  }
  settled |= {e["request"] for e in entries if e["event"] == "rejected"}
  return accepted, settled


def hash_of(entry: Mapping[str, Any]) -> str:
  """The hash that an entry must have."""
  text = {k: v for k, v in entry.items() if k != "hash"}
  return hashlib.sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()
