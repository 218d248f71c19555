"""`legonet learn`: learns new samples, durably."""

from __future__ import annotations

import argparse
import pathlib

import numpy as np

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import common, request, table as table_lib

TEXT = """\
Learns new samples. Rows of an .npz (encodings, labels, ids, classes) are copied into
the run; a store stays where it is and becomes one of the run's stores. Without
--encodings, --ids names rows of the run's stores that the model does not hold.

Labels are matched by class names. A sample that the run has forgotten is refused; give
--allow-relearn to bring it back.

examples:
  legonet learn run --encodings new.npz    # with classes in it, or --label-numbers
  legonet learn run --encodings new_store --ids 70001 70002
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  common.add_run(parser)
  parser.add_argument("--encodings", type=pathlib.Path, metavar="STORE|FILE.npz",
                      help="new samples with labels")  # fmt: skip
  request.add_ids(parser.add_mutually_exclusive_group())
  parser.add_argument("--label-numbers", action="store_true",
                      help="labels of the .npz are the run's own numbers")  # fmt: skip
  parser.add_argument("--allow-relearn", action="store_true",
                      help="bring back samples that were forgotten")  # fmt: skip
  request.add_options(parser)


def run(args: argparse.Namespace) -> int:
  """Runs the command."""
  ids = common.wanted_ids(args)
  if args.encodings is None:
    if ids is None:
      raise errors.EmptyRequestError(
        "the request names no sample; give new --encodings, or --ids of rows in the"
        " run's own stores"
      )
    return request.carry_out_command(
      args,
      "learn",
      lambda run: lego.runs.requests.make("learn", ids, relearn=args.allow_relearn),
    )
  table = table_lib.read_table(args.encodings)
  return request.carry_out_command(
    args, "learn", lambda run: _new_samples(args, run, table, ids)
  )


def _find_new(
  args: argparse.Namespace, there: lego.core.ids.Ids, run: lego.runs.run.Run
) -> lego.core.ids.Ids:
  """The ids in `there` that the run does not hold."""
  new = np.setdiff1d(there, run.state.ids)
  known = len(there) - len(new)
  if not len(new):
    raise errors.EmptyRequestError(
      f"the request names no sample: the run holds all {known} training rows of"
      f" {args.encodings} already; give new samples ids of their own"
    )
  if known:
    common.note(
      f"{known} of {len(there)} rows are left out, because the run holds samples with"
      " their ids (row numbers, if the file has no ids); give new samples ids of their"
      " own"
    )
  return new


def _new_samples(
  args: argparse.Namespace,
  run: lego.runs.run.Run,
  table: table_lib.InputTable,
  ids: lego.core.ids.Ids | None,
) -> lego.runs.requests.Request:
  """A request to learn rows of a store or of an `.npz`."""
  rows = table.rows
  if ids is None:
    ids = _find_new(args, rows.ids[rows.split == lego.data.dataset.TRAIN], run)
  rows = table_lib.take_ids(rows, lego.core.samples.check_ids(ids), args.encodings)
  relearn = args.allow_relearn
  if lego.store.read.is_store(args.encodings):
    if args.label_numbers:
      raise errors.ConfigError(
        "--label-numbers is for .npz files; a store names its classes itself"
      )
    store = str(args.encodings.resolve())
    return lego.runs.requests.make("learn", ids, store=store, relearn=relearn)
  chosen = table_lib.match_labels(
    table._replace(rows=rows),
    run.classes,
    args.encodings,
    args.label_numbers,
  )
  return lego.runs.requests.make(
    "learn",
    chosen.ids,
    encodings=chosen.encodings,
    labels=chosen.labels,
    relearn=relearn,
    source=str(args.encodings.resolve()),
  )
