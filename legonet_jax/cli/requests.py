"""`legonet unlearn`, `learn`, `heal` and `compact`: requests on a run."""

import argparse
import pathlib
from typing import Any

import numpy as np

from legonet_jax import errors
from legonet_jax.cli import common, console, signed, table as table_lib
from legonet_jax.core import samples as samples_lib
from legonet_jax.core.ids import Ids
from legonet_jax.data import dataset as dataset_lib
from legonet_jax.runs import (
  admission,
  layout as layout_lib,
  requests as requests_lib,
  rows as rows_lib,
  run as run_lib,
  service,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.runs.requests import Request
from legonet_jax.store.read import is_store

_UNLEARN = """\
Forgets samples for good. The request is on disk before anything changes; it is complete
when the new state is saved, the samples' rows are erased from the encoding store and
every checkpoint that saw them is gone. After a crash the next command finishes it.

Keep the salt, which is printed before the work begins: the journal names samples only
by salted hashes, and `legonet history RUN --salt SALT --ids ID` shows that the request
was carried out. While a request waits, `legonet status RUN --salts` shows it again.

examples:
  legonet unlearn run --ids 17 42
  legonet unlearn run --class dog
  legonet unlearn run --random 100 --seed 0
  legonet unlearn run --ids 17 --defer      # masked at once, trained by `legonet heal`
  legonet unlearn run --ids 17 --queue      # leave it to a process that is at work
"""
_LEARN = """\
Learns new samples. Rows of an .npz (encodings, labels, ids, classes) are copied into
the run; a store stays where it is and becomes one of the run's stores. Without
--encodings, rows of the run's stores that the model does not hold.

Labels are matched by the names of their classes. A sample that the run has forgotten is
refused unless --allow-relearn says that it shall come back.

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
  which.add_argument("--class", dest="of_class", metavar="C",
                     help="all samples of this class, by name or number")  # fmt: skip
  which.add_argument("--random", type=int, metavar="M", help="M samples by --seed")
  which.add_argument("--erased", action="store_true",
                     help="all whose rows another run has erased")  # fmt: skip
  parser.add_argument("--seed", type=int, default=0, help="for --random (0)")
  parser.add_argument("--defer", action="store_true",
                      help="mask now, train at the next `legonet heal`")  # fmt: skip
  parser.add_argument("--defer-over", type=int, default=-1, metavar="M",
                      help="--defer if more than M adapters must train")  # fmt: skip
  _add_shared(parser)

  parser = common.parser_of(commands, "learn", "learn new samples", _LEARN, learn)
  common.add_run(parser)
  parser.add_argument("--encodings", type=pathlib.Path, metavar="STORE|FILE.npz")
  _add_ids(parser.add_mutually_exclusive_group())
  parser.add_argument("--label-numbers", action="store_true",
                      help="labels of the .npz are the run's own numbers")  # fmt: skip
  parser.add_argument("--allow-relearn", action="store_true",
                      help="bring back samples that were forgotten")  # fmt: skip
  _add_shared(parser)

  parser = common.parser_of(commands, "heal", "train masked adapters", _HEAL, heal)
  common.add_run(parser)
  _add_shared(parser)
  parser = common.parser_of(
    commands, "compact", "merge the run's own stores", _COMPACT, compact
  )
  common.add_run(parser)
  _add_shared(parser)


def unlearn(args: argparse.Namespace) -> int:
  """Runs the command."""
  if args.defer_over < -1:
    raise errors.ConfigError(f"--defer-over is {args.defer_over}; give 0 or more")
  if args.seed < 0:
    raise errors.ConfigError(f"--seed is {args.seed}; give 0 or more")
  try:
    return _carry_out(
      args,
      "unlearn",
      lambda run: requests_lib.make(
        "unlearn", _select(args, run), defer=args.defer, defer_over=args.defer_over
      ),
    )
  except _NothingLostError as e:
    value = {"kind": "unlearn", "status": "nothing to do", "count": 0}
    common.show(args, value, str(e))
    return 0


def learn(args: argparse.Namespace) -> int:
  """Runs the command."""
  ids = common.wanted_ids(args)
  if args.encodings is None:
    if ids is None:
      raise errors.EmptyRequestError("name samples with --ids, or new --encodings")
    return _carry_out(
      args,
      "learn",
      lambda run: requests_lib.make("learn", ids, relearn=args.allow_relearn),
    )
  table = table_lib.read_table(args.encodings)
  return _carry_out(args, "learn", lambda run: _new_samples(args, run, table, ids))


def heal(args: argparse.Namespace) -> int:
  """Runs the command."""
  return _carry_out(args, "heal", lambda run: requests_lib.make("heal"))


def compact(args: argparse.Namespace) -> int:
  """Runs the command."""
  return _carry_out(args, "compact", lambda run: requests_lib.make("compact"))


class _NothingLostError(errors.LegoError):
  """`--erased`, and no other run has erased anything."""


def _add_ids(group: Any) -> None:
  group.add_argument("--ids", type=int, nargs="+", metavar="ID", help="which samples")
  group.add_argument("--ids-file", type=pathlib.Path, metavar="FILE",
                     help="ids in a text file, one per line")  # fmt: skip


def _add_shared(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
    "--queue",
    action="store_true",
    help="if another process works on the run, let it do this too",
  )
  parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS",
                      help="wait that long for another process (0)")  # fmt: skip
  signed.add_key(parser)


def _select(args: argparse.Namespace, run: run_lib.Run) -> Ids:
  """The ids that the options mean, against the last good state."""
  ids = common.wanted_ids(args)
  if ids is not None:
    return ids
  held = run.state.ids
  if args.erased:
    lost = rows_lib.lost(run.source, held)
    if not len(lost):
      raise _NothingLostError("no retained sample was erased by another run")
    return lost
  if args.of_class is not None:
    found, labels = rows_lib.labels_of(run.source, held)
    return np.asarray(found[labels == _class_number(args.of_class, run)], np.int64)
  if not 1 <= args.random <= len(held):
    raise errors.ConfigError(f"--random is {args.random}; give 1 to {len(held)}")
  rng = np.random.default_rng(args.seed)
  picked: Ids = rng.choice(np.sort(held), args.random, replace=False)
  return picked


def _class_number(text: str, run: run_lib.Run) -> int:
  if run.classes is not None and text in run.classes:
    return run.classes.index(text)
  names = "" if run.classes is None else f" or one of {', '.join(run.classes[:20])}"
  # No number of classes has more digits, and Python converts only so many.
  if not text.isdecimal() or len(text) > 20 or int(text) >= run.cfg.num_classes:
    raise errors.ConfigError(
      f"--class is {errors.brief(text)}; give 0 to {run.cfg.num_classes - 1}{names}"
    )
  return int(text)


def _new_samples(
  args: argparse.Namespace,
  run: run_lib.Run,
  table: table_lib.InputTable,
  ids: Ids | None,
) -> Request:
  """The request to learn rows of a store or of an `.npz`."""
  rows = table.rows
  if ids is None:
    ids = np.setdiff1d(rows.ids[rows.split == dataset_lib.TRAIN], run.state.ids)
  rows = table_lib.take_ids(rows, samples_lib.check_ids(ids), args.encodings)
  relearn = args.allow_relearn
  if is_store(args.encodings):
    if args.label_numbers:
      raise errors.ConfigError(
        "--label-numbers is for .npz files; a store names its classes itself"
      )
    store = str(args.encodings.resolve())
    return requests_lib.make("learn", ids, store=store, relearn=relearn)
  chosen = table_lib.match_labels(
    table._replace(rows=rows),
    run.classes,
    args.encodings,
    args.label_numbers,
  )
  return requests_lib.make(
    "learn",
    chosen.ids,
    encodings=chosen.encodings,
    labels=chosen.labels,
    relearn=relearn,
  )


def _carry_out(args: argparse.Namespace, kind: str, make: service.MakeRequest) -> int:
  if not 0 <= args.wait <= _MOST_SECONDS:
    raise errors.ConfigError(f"--wait is {args.wait}; give 0 to {_MOST_SECONDS}")
  key = signed.load_key(args)
  made: list[Request] = []

  def make_once(run: run_lib.Run) -> Request:
    common.tell_environment(run)
    made.append(make(run))
    return made[-1]

  def on_receipt(receipt: service.Receipt) -> None:
    if len(made[-1].ids):
      common.note(f"request {receipt.name} is on disk; its salt is {receipt.salt}")

  layout_lib.read_settings(Layout(args.path))  # no other folder may be touched
  try:
    with console.bar(kind, quiet=args.json) as progress:
      session, receipt = service.carry_out(
        args.path, make_once, progress, on_receipt=on_receipt, wait=args.wait
      )
  except errors.RunBusyError:
    if not args.queue:
      raise
    return _queue(args, make)
  common.tell_notes(session)
  entry = service.outcome(session, receipt.name)
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
    "salt": receipt.salt,
    "head": session.entries[-1]["hash"],
    **{k: v for k, v in entry.items() if k in _SHOWN},
  }
  common.show(args, value, _tell(value))
  return 0


_SHOWN = ("before", "after", "adapters", "masked", "samples", "seconds", "lost")
_MOST_SECONDS = 1e6


def _queue(args: argparse.Namespace, make: service.MakeRequest) -> int:
  """Leaves the request to the process that holds the run, or to us if it is gone."""
  run = run_lib.load(args.path)
  request = make(run)
  if request.kind == "unlearn":
    named = set(samples_lib.check_ids(request.ids).tolist())
    held = set(run.state.ids.tolist())
    admission.check_unlearn(run, named, held, queued=False)
  name = requests_lib.drop(run.layout, request)
  value = {
    "request": name,
    "kind": request.kind,
    "status": "queued",
    "count": len(request.ids),
    "salt": request.salt.hex(),
  }
  try:
    session, _ = service.carry_out(args.path)
    common.tell_notes(session)
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
  if value.get("lost"):
    lines.append(
      f"  {value['lost']} more were forgotten: another run has erased their rows"
    )
  if value["count"]:
    lines.append(f"  salt   {value['salt']}")
  return "\n".join(lines)
