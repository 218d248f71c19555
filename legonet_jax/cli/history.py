"""`legonet history`: prints a run's journal."""

from __future__ import annotations

import argparse
import json
from typing import Any

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import common

TEXT = """\
Prints the journal, one line per entry. With --salt and --ids, only the entries about
these ids: only somebody who knows both can see that a sample was forgotten.

examples:
  legonet history run
  legonet history run --salt 9f3c... --ids 17
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  common.add_run(parser)
  parser.add_argument("--salt", metavar="HEX", help="the salt of a request")
  parser.add_argument("--ids", type=int, nargs="+", metavar="ID", help="ids to look up")


def run(args: argparse.Namespace) -> int:
  """Runs the command."""
  if (args.salt is None) != (args.ids is None):
    raise errors.ConfigError("--salt and --ids go together; give both or none")
  layout = lego.runs.layout.Layout(args.path)
  lego.runs.layout.read_settings(layout)
  entries = lego.runs.journal.read(layout.journal)
  if args.salt is not None:
    entries = _about(entries, args.salt, args.ids)
  if args.json:
    print(json.dumps(entries))
    return 0
  for e in entries:
    print(_line(e))
  if args.ids is not None:
    run = lego.runs.run.load(args.path)
    wanted = common.as_ids(args.ids)
    there = set(wanted) - set(lego.runs.rows.lost(run.source, wanted))
    print(f"now in the run's stores: {len(there)} of {len(wanted)}")
  return 0


def _about(entries: list[lego.runs.journal.Entry], salt: str, ids: list[int]) -> Any:
  """The entries of requests with one of `ids`, hashed with `salt`."""
  try:
    raw = bytes.fromhex(salt)
  except ValueError:
    raise errors.ConfigError("--salt is not hexadecimal; copy it as printed") from None
  wanted = set(lego.runs.journal.salted(raw, common.as_ids(ids)))
  names = {e["request"] for e in entries if wanted.intersection(e.get("ids", ()))}
  if not names:
    raise errors.UnknownIdError("no request of the journal names these ids and salt")
  return [
    e
    for e in entries
    if e.get("request") in names or names.intersection(e.get("requests", ()))
  ]


def _line(e: lego.runs.journal.Entry) -> str:
  parts = [f"{e['seq']:4} {e['time'][:19]} {e['event']:9}"]
  if e["event"] in ("accepted", "rejected"):
    what = f" {common.counted(e['count'], 'sample')}" if e["count"] else ""
    parts.append(e["kind"] + what)
    if e.get("defer"):
      parts.append("deferred")
    if "reason" in e:
      parts.append(e["reason"])
  if e["event"] == "complete":
    requests = common.counted(len(e["requests"]), "request")
    parts.append(f"{requests}, {common.counted(e['adapters'], 'adapter')} trained")
    parts.append(f"{e['masked']} masked, {e['seconds']:.2f} s")
  if "migrated" in e:
    parts.append(f"migrated from {e['migrated']}")
  if "after" in e:
    parts.append(f"digest {e['after'][:12]}")
  parts.append(f"#{e['hash'][:12]}")
  return "  ".join(parts)
