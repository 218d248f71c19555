"""`legonet unlearn`: forgets samples, durably."""

from __future__ import annotations

import argparse

import numpy as np

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import common, request

TEXT = """\
Forgets samples for good. The request is on disk before anything changes. It is complete
when the new state is saved, the samples' rows are erased from the encoding store and
every checkpoint that saw them is gone. After a crash the next command finishes it.

Keep the salt, which is printed before the work begins: the journal names samples only
by salted hashes, and `legonet history RUN --salt SALT --ids ID` shows that the request
was carried out. While a request waits, `legonet status RUN --salts` prints its salt
again; later the owner of the run's key can ask without it.

examples:
  legonet unlearn run --ids 17 42
  legonet unlearn run --class dog
  legonet unlearn run --random 100 --seed 0
  legonet unlearn run --ids 17 --defer      # masked at once, trained by `legonet heal`
  legonet unlearn run --ids 17 --queue      # leave it to a process that is at work
  legonet unlearn run --ids-file nightly.txt --skip-forgotten    # a list sent again
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  common.add_run(parser)
  which = parser.add_mutually_exclusive_group(required=True)
  request.add_ids(which)
  which.add_argument("--class", dest="of_class", metavar="C",
                     help="all samples of this class, by name or number")  # fmt: skip
  which.add_argument("--random", type=int, metavar="M", help="M random samples")
  which.add_argument("--erased", action="store_true",
                     help="all samples whose rows another run has erased")  # fmt: skip
  parser.add_argument("--seed", type=int, default=0, help="for --random (0)")
  parser.add_argument("--skip-forgotten", action="store_true",
                      help="skip ids that the model does not hold, and say of each"
                      " whether it was forgotten before")  # fmt: skip
  parser.add_argument("--defer", action="store_true",
                      help="mask adapters now, train them at the next"
                      " `legonet heal`")  # fmt: skip
  parser.add_argument("--defer-over", type=int, default=-1, metavar="M",
                      help="--defer if more than M adapters must be"
                      " trained")  # fmt: skip
  request.add_options(parser)


def run(args: argparse.Namespace) -> int:
  """Runs the command."""
  if args.defer_over < -1:
    raise errors.ConfigError(f"--defer-over is {args.defer_over}; give 0 or more")
  if args.seed < 0:
    raise errors.ConfigError(f"--seed is {args.seed}; give 0 or more")

  asked: dict[str, list[int]] = {}

  def make(run: lego.runs.run.Run) -> lego.runs.requests.Request:
    ids = _select(args, run)
    if args.skip_forgotten:
      found = lego.runs.checking.sort_out(run, ids)
      asked.update({what: np.sort(part).tolist() for what, part in found.items()})
      ids = found["forgotten now"]
      if not len(ids):
        raise _NothingToDoError(_tell_skipped(asked))
    return lego.runs.requests.make(
      "unlearn", ids, defer=args.defer, defer_over=args.defer_over
    )

  try:
    try:
      code = request.carry_out_command(args, "unlearn", make, asked)
    except errors.UnknownIdError:
      if not args.erased:
        raise
      # A waiting request named some of these rows, and is carried out by now.
      code = request.carry_out_command(args, "unlearn", make, asked)
  except _NothingToDoError as e:
    value = {"kind": "unlearn", "status": "nothing to do", "count": 0, **asked}
    common.show(args, value, str(e))
    return 0
  if not args.json and asked:
    print(f"  {_tell_skipped(asked)}")
  return code


class _NothingToDoError(errors.LegoError):
  """Raised if the model holds none of the samples that it is asked to forget."""


def _tell_skipped(asked: dict[str, list[int]]) -> str:
  return ", ".join(f"{len(ids)} {what}" for what, ids in asked.items())


def _select(args: argparse.Namespace, run: lego.runs.run.Run) -> lego.core.ids.Ids:
  """The ids that the options select from the run's samples."""
  ids = common.wanted_ids(args)
  if ids is not None:
    return ids
  held = run.state.ids
  if args.erased:
    lost = lego.runs.rows.lost(run.source, held)
    if not len(lost):
      raise _NothingToDoError("no retained sample was erased by another run")
    return lost
  if args.of_class is not None:
    found, labels = lego.runs.rows.labels_of(run.source, held)
    chosen = np.asarray(found[labels == _class_number(args.of_class, run)], np.int64)
    if not len(chosen):
      raise errors.EmptyRequestError(
        "the request names no sample: the run holds none of class"
        f" {errors.brief(args.of_class)}; see `legonet status`"
      )
    return chosen
  if not 1 <= args.random <= len(held):
    raise errors.ConfigError(f"--random is {args.random}; give 1 to {len(held)}")
  rng = np.random.default_rng(args.seed)
  picked: lego.core.ids.Ids = rng.choice(np.sort(held), args.random, replace=False)
  return picked


def _class_number(text: str, run: lego.runs.run.Run) -> int:
  if run.classes is not None and text in run.classes:
    return run.classes.index(text)
  names = "" if run.classes is None else f" or one of {', '.join(run.classes[:20])}"
  # Python refuses to convert very long texts, and no class number is that long.
  if not text.isdecimal() or len(text) > 20 or int(text) >= run.cfg.num_classes:
    raise errors.ConfigError(
      f"--class is {errors.brief(text)}; give 0 to {run.cfg.num_classes - 1}{names}"
    )
  return int(text)
