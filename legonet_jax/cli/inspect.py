"""`legonet status` and `history`: where a run stands, and what has happened to it."""

import argparse
import json
from typing import Any

from legonet_jax import errors
from legonet_jax.cli import common
from legonet_jax.runs import (
  journal,
  layout as layout_lib,
  requests as requests_lib,
  rows as rows_lib,
  run as run_lib,
  service,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.store import read as store_read

_STATUS = """\
Where a run stands: samples, adapters, masked ones, requests that are not complete, its
stores. Requests that a crash has interrupted are finished first, if that can be done.
"""
_HISTORY = """\
The journal, one line per entry. With the salt of a request and ids, the entries about
them: it shows that a sample was forgotten, to those who know both, and to nobody else.

examples:
  legonet history run
  legonet history run --salt 9f3c... --ids 17
"""


def register(commands: Any) -> None:
  """Adds the commands."""
  parser = common.parser_of(commands, "status", "where a run stands", _STATUS, status)
  common.add_run(parser)
  parser.add_argument("--salts", action="store_true",
                      help="also the salts of waiting requests")  # fmt: skip
  parser = common.parser_of(commands, "history", "the journal", _HISTORY, history)
  common.add_run(parser)
  parser.add_argument("--salt", metavar="HEX", help="of a request")
  parser.add_argument("--ids", type=int, nargs="+", metavar="ID", help="to look up")


def status(args: argparse.Namespace) -> int:
  """Runs the command."""
  run = common.current(args.path)
  cfg, manifest = run.cfg, run.manifest
  waiting = service.unfinished(args.path)
  stores: list[dict[str, Any]] = []
  for store in manifest.stores:
    try:
      held = store_read.open_store(rows_lib.resolve(args.path, store))
      erased = int(held.meta.get("erased", 0))
      stores.append({"store": store, "rows": len(held.ids), "erased": erased})
    except errors.LegoError as e:
      stores.append({"store": store, "error": str(e)})
  lost = 0
  if all("error" not in s for s in stores):
    lost = len(rows_lib.lost(run.source, run.state.ids))
  value = {
    "run": str(args.path),
    "samples": len(run.state.ids),
    "adapters": cfg.num_adapters,
    "top_k": cfg.top_k,
    "masked": manifest.masked,
    "unfinished": len(waiting),
    "lost": lost,
    "digest": manifest.digest,
    "encoder": cfg.encoder,
    "classes": None if run.classes is None else list(run.classes),
    "stores": stores,
    "other_environment": run_lib.foreign(run),
    **({"salts": _salts(run)} if args.salts else {}),
  }
  lines = [
    f"{args.path}: {len(run.state.ids):,} samples, {cfg.num_adapters} adapters, k ="
    f" {cfg.top_k}, digest {manifest.digest[:16]}",
    f"  {manifest.masked} adapters masked"
    + ("; `legonet heal` trains them" if manifest.masked else ""),
    f"  {len(waiting)} requests not complete",
  ]
  lines += [
    f"  store {s['store']}: "
    + (s.get("error") or f"{s['rows']:,} rows, {s['erased']:,} erased")
    for s in stores
  ]
  if lost:
    lines.append(
      f"  {lost} retained samples were erased by another run; `legonet unlearn"
      f" {args.path} --erased` lets this one forget them too"
    )
  if args.salts:
    lines += [f"  request {name}: salt {salt}" for name, salt in _salts(run).items()]
  common.show(args, value, "\n".join(lines))
  return 0


def _salts(run: run_lib.Run) -> dict[str, str]:
  """The salts of waiting requests whose files we may read."""
  found = {}
  for name in requests_lib.waiting(run.layout.requests):
    try:
      found[name] = requests_lib.read(run.layout.requests, name).salt.hex()
    except (errors.DamagedRequestError, OSError) as e:
      common.note(f"the salt of request {name} cannot be shown: {e}")
  return found


def history(args: argparse.Namespace) -> int:
  """Runs the command."""
  if (args.salt is None) != (args.ids is None):
    raise errors.ConfigError("--salt and --ids go together; give both or none")
  layout = Layout(args.path)
  layout_lib.read_settings(layout)
  entries = journal.read(layout.journal)
  if args.salt is not None:
    entries = _about(entries, args.salt, args.ids)
  if args.json:
    print(json.dumps(entries))
    return 0
  for e in entries:
    print(_line(e))
  if args.ids is not None:
    run = run_lib.load(args.path)
    wanted = common.as_ids(args.ids)
    there = set(wanted) - set(rows_lib.lost(run.source, wanted))
    print(f"now in the run's stores: {len(there)} of {len(wanted)}")
  return 0


def _about(entries: list[journal.Entry], salt: str, ids: list[int]) -> Any:
  """The entries of requests that named one of `ids` under `salt`."""
  try:
    raw = bytes.fromhex(salt)
  except ValueError:
    raise errors.ConfigError("--salt is not hexadecimal; copy it as printed") from None
  wanted = set(journal.salted(raw, common.as_ids(ids)))
  names = {e["request"] for e in entries if wanted.intersection(e.get("ids", ()))}
  if not names:
    raise errors.UnknownIdError("no request of the journal names these ids and salt")
  return [
    e
    for e in entries
    if e.get("request") in names or names.intersection(e.get("requests", ()))
  ]


def _line(e: journal.Entry) -> str:
  parts = [f"{e['seq']:4} {e['time'][:19]} {e['event']:9}"]
  if e["event"] in ("accepted", "rejected"):
    parts.append(f"{e['kind']} {e['count']} samples" if e["count"] else e["kind"])
    if e.get("defer"):
      parts.append("deferred")
    if "reason" in e:
      parts.append(e["reason"])
  if e["event"] == "complete":
    parts.append(f"{len(e['requests'])} requests, {e['adapters']} adapters trained")
    parts.append(f"{e['masked']} masked, {e['seconds']:.2f} s")
  if "after" in e:
    parts.append(f"digest {e['after'][:12]}")
  parts.append(f"#{e['hash'][:12]}")
  return "  ".join(parts)
