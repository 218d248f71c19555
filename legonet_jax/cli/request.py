"""One request to a run: shared by `legonet unlearn`, `learn`, `heal` and `compact`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
import pathlib
from typing import Any

import numpy as np

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import common, console, signed

_SHOWN = ("before", "after", "adapters", "masked", "samples", "seconds", "lost")

_MOST_SECONDS = 1e6
_MOST_IDS = 10


def add_ids(group: Any) -> None:
  """Adds `--ids` and `--ids-file` to a group of options."""
  group.add_argument("--ids", type=int, nargs="+", metavar="ID", help="which samples")
  group.add_argument("--ids-file", type=pathlib.Path, metavar="FILE",
                     help="ids in a text file, one per line")  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
  """Adds the options of all requests: `--queue`, `--wait`, `--sign-key`."""
  parser.add_argument(
    "--queue",
    action="store_true",
    help="if another process works on the run, let it do this too",
  )
  parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS",
                      help="wait up to SECONDS for another process (0)")  # fmt: skip
  signed.add_key(parser)


def carry_out_command(
  args: argparse.Namespace,
  kind: str,
  make: lego.runs.service.MakeRequest,
  more: Mapping[str, Any] | None = None,
) -> int:
  """Carries out the request that `make` returns for the run, and shows the outcome.

  Args:
    args: the options of the command.
    kind: the kind of request.
    make: makes the request.
    more: shown with `--json`; `make` may add to it.
  """
  if not 0 <= args.wait <= _MOST_SECONDS:
    raise errors.ConfigError(f"--wait is {args.wait}; give 0 to {_MOST_SECONDS}")
  key = signed.load_key(args)
  made: list[lego.runs.requests.Request] = []
  sources: dict[str, list[str]] = {}

  def make_once(run: lego.runs.run.Run) -> lego.runs.requests.Request:
    common.tell_environment(run)
    made.append(make(run))
    # Now, because a compaction that waits may replace the stores afterwards.
    sources.update(_sources(run, made[-1]))
    return made[-1]

  def on_receipt(receipt: lego.runs.service.Receipt) -> None:
    if len(made[-1].ids):
      _tell_salt(receipt.name, receipt.salt)

  lego.runs.layout.read_settings(
    lego.runs.layout.Layout(args.path)
  )  # fails for a folder that is no run, which stays untouched
  try:
    with console.bar(kind, quiet=args.json) as progress:
      session, receipt = lego.runs.service.carry_out(
        args.path, make_once, progress, on_receipt=on_receipt, wait=args.wait
      )
  except errors.RunBusyError:
    if not args.queue:
      raise
    return _queue(args, make, more)
  common.tell_notes(session)
  entry = lego.runs.service.outcome(session, receipt.name)
  if entry["event"] == "rejected":
    raise errors.RunError(
      f"the request could not be carried out ({entry['reason']}) and was rejected"
    )
  signed.write_head(key, session)
  value = {
    "request": receipt.name,
    "kind": kind,
    "status": "waiting" if entry["event"] == "accepted" else entry["event"],
    "count": len(made[-1].ids),
    "ids": np.sort(made[-1].ids).tolist(),
    "salt": receipt.salt,
    "head": session.entries[-1]["hash"],
    **{k: v for k, v in entry.items() if k in _SHOWN},
    **sources,
    **(more or {}),
  }
  common.show(args, value, _tell(value))
  if session.run.manifest.masked == session.run.cfg.num_adapters:
    common.note("no adapter is left to answer; run `legonet heal` before predictions")
  return 0


def _queue(
  args: argparse.Namespace,
  make: lego.runs.service.MakeRequest,
  more: Mapping[str, Any] | None,
) -> int:
  """Queues the request for the process at work; does it here if that has ended."""
  run = lego.runs.run.load(args.path)
  request = make(run)
  if request.kind == "unlearn":
    named = set(lego.core.samples.check_ids(request.ids).tolist())
    held = set(run.state.ids.tolist())
    lego.runs.checking.check_unlearn(run, named, held, queued=False)
  name = lego.runs.requests.drop(run.layout, request)
  if len(request.ids):
    _tell_salt(name, request.salt.hex())
  value = {
    "request": name,
    "kind": request.kind,
    "status": "queued",
    "count": len(request.ids),
    "ids": np.sort(request.ids).tolist(),
    "salt": request.salt.hex(),
    **_sources(run, request),
    **(more or {}),
  }
  try:
    session, _ = lego.runs.service.carry_out(args.path)
    common.tell_notes(session)
    value["status"] = lego.runs.service.outcome(session, name)["event"]
  except errors.RunBusyError:
    pass
  common.show(args, value, _tell(value))
  return 0


def _sources(
  run: lego.runs.run.Run, request: lego.runs.requests.Request
) -> dict[str, list[str]]:
  """Of a request to forget, the files that may hold its samples when it is done."""
  if request.kind != "unlearn":
    return {}
  ids = lego.core.samples.check_ids(request.ids)
  return {"sources": lego.runs.sources.find(run, ids)}


def _tell_salt(name: str, salt: str) -> None:
  """Prints the salt once, before any work: it is kept nowhere when that is done."""
  common.note(f"request {name} is on disk; its salt is {salt}")


def _tell(value: dict[str, Any]) -> str:
  what: str = value["kind"]
  if value["count"]:
    what += f" {common.counted(value['count'], 'sample')}"
  lines = [f"{what}: {value['status']}"]
  if "after" in value:
    lines.append(
      f"  {common.counted(value['adapters'], 'adapter')} trained, {value['masked']}"
      f" masked, {value['samples']:,} samples left, {value['seconds']:.2f} s"
    )
    lines.append(f"  digest {value['before'][:16]} -> {value['after'][:16]}")
  if value.get("lost"):
    lines.append(
      f"  {value['lost']} more were forgotten: another run has erased their rows"
    )
  if value["count"]:
    shown = " ".join(str(i) for i in value["ids"][:_MOST_IDS])
    more = value["count"] - _MOST_IDS
    lines.append(
      f"  ids    {shown}" + (f" and {more} more (--json)" if more > 0 else "")
    )
  if value.get("sources"):
    noun = "sample" if value["count"] == 1 else "samples"
    lines.append(
      f"  files outside of the run may still hold the {noun}:"
      f" {common.named(value['sources'])}"
    )
  return "\n".join(lines)
