"""`legonet unlearn`, `learn`, `heal` and `compact`: requests on a run."""

import argparse
import pathlib
from typing import Any

import numpy as np

from legonet_jax import errors
from legonet_jax.cli import common, console
from legonet_jax.ids import Ids
from legonet_jax.runs import (
  admission,
  requests as requests_lib,
  rows as rows_lib,
  run as run_lib,
  service,
)
from legonet_jax.runs.erasure import is_store
from legonet_jax.runs.requests import Request

_UNLEARN = """\
Forgets samples for good. The request is on disk before anything changes; it is complete
when the new state is saved, the samples' rows are erased from the encoding store and
every checkpoint that saw them is gone. After a crash the next command finishes it.

Keep the salt that is printed: the journal names samples only by salted hashes, and
`legonet history RUN --salt SALT --ids ID` shows that the request was carried out.

examples:
  legonet unlearn run --ids 17 42
  legonet unlearn run --class 5
  legonet unlearn run --random 100 --seed 0
  legonet unlearn run --ids 17 --defer      # masked at once, trained by `legonet heal`
  legonet unlearn run --ids 17 --queue      # leave it to a process that is at work
"""
_LEARN = """\
Learns new samples. Rows of an .npz (encodings, labels, ids) are copied into the run; a
store stays where it is and becomes one of the run's stores. Without --encodings, rows
of the run's stores that the model does not hold.

examples:
  legonet learn run --encodings new.npz
  legonet learn run --encodings new_store --ids 70001 70002
"""
_HEAL = """\
Trains the adapters that `unlearn --defer` has masked. Afterwards the state is bit for
bit that of a fresh fit on what remains.
"""
_COMPACT = """\
Merges the stores with learned rows that the run owns into one, without erased rows. The
model does not change.
"""


def register(commands: Any) -> None:
  """Adds the commands."""
  parser = common.parser_of(
    commands, "unlearn", "forget samples, durably", _UNLEARN, unlearn
  )
  common.add_run(parser)
  which = parser.add_mutually_exclusive_group(required=True)
  _add_ids(which)
  which.add_argument("--class", type=int, dest="of_class", metavar="C",
                     help="all samples with this label")  # fmt: skip
  which.add_argument("--random", type=int, metavar="M", help="M samples by --seed")
  which.add_argument("--erased", action="store_true",
                     help="all whose rows another run has erased")  # fmt: skip
  parser.add_argument("--seed", type=int, default=0, help="for --random (0)")
  parser.add_argument("--defer", action="store_true",
                      help="mask now, train at the next `legonet heal`")  # fmt: skip
  _add_queue(parser)

  parser = common.parser_of(commands, "learn", "learn new samples", _LEARN, learn)
  common.add_run(parser)
  parser.add_argument("--encodings", type=pathlib.Path, metavar="STORE|FILE.npz")
  _add_ids(parser.add_mutually_exclusive_group())
  _add_queue(parser)

  parser = common.parser_of(commands, "heal", "train masked adapters", _HEAL, heal)
  common.add_run(parser)
  _add_queue(parser)
  parser = common.parser_of(
    commands, "compact", "merge the run's own stores", _COMPACT, compact
  )
  common.add_run(parser)
  _add_queue(parser)


def unlearn(args: argparse.Namespace) -> int:
  """Runs the command."""
  run = run_lib.load(args.path)
  try:
    ids = _select(args, run)
  except errors.LegoError:
    if service.unfinished(args.path):
      service.carry_out(args.path)
    raise
  return _carry_out(args, requests_lib.make("unlearn", ids, defer=args.defer))


def learn(args: argparse.Namespace) -> int:
  """Runs the command."""
  run = run_lib.load(args.path)
  ids = common.wanted_ids(args)
  if args.encodings is None:
    if ids is None:
      raise errors.EmptyRequestError("name samples with --ids, or new --encodings")
    return _carry_out(args, requests_lib.make("learn", ids))
  rows = common.read_rows(args.encodings)
  if ids is None:
    ids = np.setdiff1d(rows.ids[rows.split == rows_lib.TRAIN], run.state.ids)
  unknown = np.setdiff1d(ids, rows.ids)
  if len(unknown):
    raise errors.UnknownIdError(f"{args.encodings} has no sample with id {unknown[0]}")
  if is_store(args.encodings):
    store = str(args.encodings.resolve())
    return _carry_out(args, requests_lib.make("learn", ids, store=store))
  chosen = common.take(rows, np.isin(rows.ids, ids))
  request = requests_lib.make(
    "learn", chosen.ids, encodings=chosen.encodings, labels=chosen.labels
  )
  return _carry_out(args, request)


def heal(args: argparse.Namespace) -> int:
  """Runs the command."""
  return _carry_out(args, requests_lib.make("heal"))


def compact(args: argparse.Namespace) -> int:
  """Runs the command."""
  return _carry_out(args, requests_lib.make("compact"))


def _add_ids(group: Any) -> None:
  group.add_argument("--ids", type=int, nargs="+", metavar="ID", help="which samples")
  group.add_argument("--ids-file", type=pathlib.Path, metavar="FILE",
                     help="ids in a text file, one per line")  # fmt: skip


def _add_queue(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
    "--queue",
    action="store_true",
    help="if another process works on the run, let it do this too",
  )


def _select(args: argparse.Namespace, run: run_lib.Run) -> Ids:
  """The ids that the options mean, against the last good state."""
  ids = common.wanted_ids(args)
  if ids is not None:
    return ids
  root, stores, held = run.layout.root, run.manifest.stores, run.state.ids
  if args.erased:
    return rows_lib.lost(root, stores, held)
  if args.of_class is not None:
    found, labels = rows_lib.labels_of(root, stores, held)
    return np.asarray(found[labels == args.of_class], np.int64)
  if not 1 <= args.random <= len(held):
    raise errors.ConfigError(f"--random is {args.random}; give 1 to {len(held)}")
  rng = np.random.default_rng(args.seed)
  picked: Ids = rng.choice(np.sort(held), args.random, replace=False)
  return picked


def _carry_out(args: argparse.Namespace, request: Request) -> int:
  common.tell_environment(run_lib.load(args.path))
  try:
    with console.bar(request.kind, quiet=args.json) as progress:
      session, receipt = service.carry_out(args.path, request, progress)
  except errors.RunBusyError:
    if not args.queue:
      raise
    return _queue(args, request)
  entry = service.outcome(session, receipt.name)
  value = {
    "request": receipt.name,
    "kind": request.kind,
    "status": "waiting" if entry["event"] == "accepted" else entry["event"],
    "count": len(request.ids),
    "salt": receipt.salt,
    "head": session.entries[-1]["hash"],
    **{k: v for k, v in entry.items() if k in _SHOWN},
  }
  common.show(args, value, _tell(value))
  return 0


_SHOWN = ("before", "after", "adapters", "masked", "samples", "seconds", "reason")


def _queue(args: argparse.Namespace, request: Request) -> int:
  """Leaves the request to the process that holds the run, or to us if it is gone."""
  run = run_lib.load(args.path)
  if request.kind == "unlearn":
    admission.check(run, request, admission.Outlook(set(run.state.ids.tolist()), []))
  name = requests_lib.drop(run.layout.requests, request)
  value = {
    "request": name,
    "kind": request.kind,
    "status": "queued",
    "count": len(request.ids),
    "salt": request.salt.hex(),
  }
  try:
    session, _ = service.carry_out(args.path)
    value["status"] = service.outcome(session, name)["event"]
  except errors.RunBusyError:
    pass
  common.show(args, value, _tell(value))
  return 0


def _tell(value: dict[str, Any]) -> str:
  what = (
    f"{value['kind']} {value['count']} samples" if value["count"] else value["kind"]
  )
  lines = [f"{what}: {value['status']}"]
  if "after" in value:
    lines.append(
      f"  {value['adapters']} adapters trained, {value['masked']} masked,"
      f" {value['samples']:,} samples left, {value['seconds']:.2f} s"
    )
    lines.append(f"  digest {value['before'][:16]} -> {value['after'][:16]}")
  if value["count"]:
    lines.append(f"  salt   {value['salt']}")
  return "\n".join(lines)
