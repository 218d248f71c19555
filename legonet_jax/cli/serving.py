"""`legonet predict` and `evaluate`: what a run answers."""

import argparse
import io
import json
import pathlib
from typing import Any
import zipfile

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.cli import common, table as table_lib
from legonet_jax.core.prediction import predict_array
from legonet_jax.data import dataset as dataset_lib
from legonet_jax.io import files, untrusted, zips
from legonet_jax.runs import rows as rows_lib
from legonet_jax.runs.run import Run
from legonet_jax.store import rows as store_rows
from legonet_jax.store.rows import StoreRows

_PREDICT = """\
Class probabilities of encodings. Masked adapters (unlearn --defer) take no part:
answers come from the k nearest of the others.

examples:
  legonet predict run --encodings new.npz
  legonet predict run --encodings cifar10_224 --split test --out answers.npz
"""
_EVALUATE = """\
The share of right answers on the test samples of the run's store (or of --encodings),
and on the samples that the model holds.

example:
  legonet evaluate run
"""
_ANSWERS = {"ids.npy", "probabilities.npy", "classes.npy"}
_SPLITS = {"train": dataset_lib.TRAIN, "test": dataset_lib.TEST}


def register(commands: Any) -> None:
  """Adds the commands."""
  for name, brief, text, run in (
    ("predict", "class probabilities of encodings", _PREDICT, predict),
    ("evaluate", "accuracy on test samples", _EVALUATE, evaluate),
  ):
    parser = common.parser_of(commands, name, brief, text, run)
    common.add_run(parser)
    add = parser.add_argument
    add("--encodings", type=pathlib.Path, metavar="STORE|FILE.npz",
        required=name == "predict")  # fmt: skip
    if name == "predict":
      add("--split", choices=(*_SPLITS, "all"), default="all", help="rows (all)")
      add("--ids", type=int, nargs="+", metavar="ID", help="only these rows")
      add("--out", type=pathlib.Path, metavar="FILE.npz",
          help="ids, probabilities and classes; else they are printed")  # fmt: skip
    else:
      add("--label-numbers", action="store_true",
          help="labels of the .npz are the run's own numbers")  # fmt: skip


def predict(args: argparse.Namespace) -> int:
  """Runs the command."""
  if args.out is not None:
    common.check_out("--out", args.out, _are_answers, args.path)
  run = common.current(args.path)
  rows = table_lib.read_table(args.encodings, labels=False).rows
  if args.ids is not None:
    rows = table_lib.take_ids(rows, common.as_ids(args.ids), args.encodings)
  if args.split != "all":
    rows = table_lib.take(rows, rows.split == _SPLITS[args.split])
  if not len(rows.ids):
    raise errors.DataError(
      f"{args.encodings} has no such rows; check --split and --ids"
    )
  p = _answers(run, rows)
  classes = p.argmax(axis=1)
  if args.out is not None:
    buffer = io.BytesIO()
    np.savez(buffer, ids=rows.ids, probabilities=p, classes=classes)
    files.write(args.out, buffer.getvalue())
    value = {"out": str(args.out), "samples": len(p), "digest": run.manifest.digest}
    common.show(args, value, f"{args.out}: {len(p):,} answers")
  elif args.json:
    answers = [
      {
        "id": int(i),
        "class": int(c),
        "name": _name(run, c),
        "probabilities": row.tolist(),
      }
      for i, c, row in zip(rows.ids, classes, p, strict=True)
    ]
    print(json.dumps({"digest": run.manifest.digest, "answers": answers}))
  else:
    for i, c, row in zip(rows.ids, classes, p, strict=True):
      print(f"{i}\tclass {_name(run, c) or c}\tp = {row[c]:.4f}")
  return 0


def evaluate(args: argparse.Namespace) -> int:
  """Runs the command."""
  run = common.current(args.path)
  source = args.encodings or rows_lib.resolve(args.path, run.manifest.stores[0])
  table = table_lib.read_table(source)
  numbers = args.label_numbers or args.encodings is None
  if args.encodings is None:
    mask = table.rows.split == dataset_lib.TEST
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
      right = _answers(run, part).argmax(axis=1) == part.labels
      value[name] = float(right.mean())
  lines = [
    f"{name:9} {value[name]:.2%} of {value[f'{name}_samples']:,}"
    for name in parts
    if name in value
  ]
  common.show(args, value, "\n".join(lines))
  return 0


def _are_answers(path: pathlib.Path) -> bool:
  """Whether a file is what an earlier `predict` has written."""
  try:
    with untrusted.open_plain(path) as file, zipfile.ZipFile(file) as archive:
      return {*archive.namelist()} == _ANSWERS
  except zips.DAMAGED:
    return False


def _retained(run: Run) -> StoreRows:
  parts = [
    store_rows.read(rows_lib.resolve(run.layout.root, s), run.state.ids, run.classes)
    for s in run.manifest.stores
  ]
  return store_rows.merge(parts)


def _name(run: Run, number: int) -> str | None:
  return None if run.classes is None else run.classes[number]


def _answers(run: Run, rows: StoreRows) -> NDArray[np.float32]:
  if not np.asarray(run.state.model.live).any():
    raise errors.RunError(
      "all adapters are masked, so there is nothing to answer from; run `legonet heal`"
    )
  return predict_array(run.cfg, run.state.model, rows.encodings)
