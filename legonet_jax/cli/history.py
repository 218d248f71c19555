"""`legonet history`: prints a run's journal."""

from __future__ import annotations

import argparse
import json

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import common

TEXT = """\
Prints the journal, one line per entry. With --ids it says of each id whether the model
holds it, has forgotten it or never held it, and in which request, and prints only the
entries about these requests. The owner of the run's key (forgotten.key) needs nothing
else. Anybody else needs the --salt of a request, which answers for the request's ids.

A salt that was lost is kept nowhere. While its request waits, `legonet status RUN
--salts` prints it again; later the owner of the run's key can ask without it.

examples:
  legonet history run
  legonet history run --ids 17 42
  legonet history run --salt 9f3c... --ids 17
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  common.add_run(parser)
  parser.add_argument("--salt", metavar="HEX", help="the salt of a request")
  parser.add_argument("--ids", type=int, nargs="+", metavar="ID", help="ids to look up")


def run(args: argparse.Namespace) -> int:
  """Runs the command."""
  if args.salt is not None and args.ids is None:
    raise errors.ConfigError("--salt goes with --ids; name the ids to look up")
  layout = lego.runs.layout.Layout(args.path)
  lego.runs.layout.read_settings(layout)
  entries = lego.runs.journal.read(layout.journal)
  if args.ids is None:
    print(json.dumps(entries) if args.json else "\n".join(map(_line, entries)))
    return 0
  wanted = common.as_ids(args.ids)
  salt = None if args.salt is None else _parse_salt(args.salt)
  run = lego.runs.run.load(args.path)
  if salt is None:
    found = lego.runs.lookup.by_key(run, entries, wanted)
  else:
    found = lego.runs.lookup.by_salt(run, entries, wanted, salt)
  numbers = {number for one in found for number in one.entries}
  about = [e for e in entries if e["seq"] in numbers]
  there = set(wanted) - set(lego.runs.rows.lost(run.source, wanted))
  lines = [*map(_line, about), *(_tell(one, salt is not None) for one in found)]
  lines.append(f"now in the run's stores: {len(there)} of {len(wanted)}")
  value = {"ids": [one._asdict() for one in found], "entries": about}
  common.show(args, value, "\n".join(lines))
  return 0


def _parse_salt(text: str) -> bytes:
  try:
    return bytes.fromhex(text)
  except ValueError:
    raise errors.ConfigError("--salt is not hexadecimal; copy it as printed") from None


def _tell(found: lego.runs.lookup.Found, by_salt: bool) -> str:
  """One line about one id."""
  parts = [f"{found.id}: {found.status}"]
  if found.requests:
    noun = "request" if len(found.requests) == 1 else "requests"
    parts.append(f"in {noun} {', '.join(found.requests)}")
  elif by_salt:
    parts.append("in no request of this salt")
  return ", ".join(parts)


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
