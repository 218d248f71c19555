"""`legonet evaluate`: the accuracy of a run."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import answers as answers_lib, common, table as table_lib

TEXT = """\
Prints the accuracy on the test samples of the run's store (or of --encodings), and on
the samples that the model holds.

example:
  legonet evaluate run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  common.add_run(parser)
  add = parser.add_argument
  add("--encodings", type=pathlib.Path, metavar="STORE|FILE.npz",
      help="other samples with labels (the run's test samples)")  # fmt: skip
  add("--label-numbers", action="store_true",
      help="labels of the .npz are the run's own numbers")  # fmt: skip


def run(args: argparse.Namespace) -> int:
  """Runs the command."""
  run = common.current(args.path)
  source = args.encodings or lego.runs.rows.resolve(args.path, run.manifest.stores[0])
  table = table_lib.read_table(source)
  numbers = args.label_numbers or args.encodings is None
  if args.encodings is None:
    mask = table.rows.split == lego.data.dataset.TEST
    table = table._replace(rows=table_lib.take(table.rows, mask))
  test = table_lib.match_labels(table, run.classes, source, numbers)
  if test.labels.max(initial=0) >= run.cfg.num_classes:
    raise errors.SampleError(
      f"{source} has the label {test.labels.max()}, and the run's go from 0 to"
      f" {run.cfg.num_classes - 1}; leave such samples out"
    )
  value: dict[str, Any] = {"digest": run.manifest.digest, "masked": run.manifest.masked}
  parts = {"test": test, "retained": _retained(run)}
  for name, part in parts.items():
    value[f"{name}_samples"] = len(part.ids)
    if len(part.ids):
      right = answers_lib.classify(run, part) == part.labels
      value[name] = float(right.mean())
  lines = [
    f"{name:9} {value[name]:.2%} of {value[f'{name}_samples']:,}"
    for name in parts
    if name in value
  ]
  common.show(args, value, "\n".join(lines))
  return 0


def _retained(run: lego.runs.run.Run) -> lego.store.rows.StoreRows:
  parts = [
    lego.store.rows.read(
      lego.runs.rows.resolve(run.layout.root, s), run.state.ids, run.classes
    )
    for s in run.manifest.stores
  ]
  return lego.store.rows.merge(parts)
