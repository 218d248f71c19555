"""`legonet predict`: prints class probabilities of encodings."""

from __future__ import annotations

import argparse
import io
import json
import pathlib
import zipfile

import numpy as np

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import answers as answers_lib, common, table as table_lib

TEXT = """\
Prints class probabilities of encodings. Masked adapters (unlearn --defer) are not used:
answers come from the k nearest of the others.

examples:
  legonet predict run --encodings new.npz
  legonet predict run --encodings cifar10_224 --split test --out answers.npz
"""

_ANSWERS = {"ids.npy", "probabilities.npy", "classes.npy"}

_SPLITS = ("train", "test")  # 0 and 1 in a store


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  common.add_run(parser)
  add = parser.add_argument
  add("--encodings", type=pathlib.Path, metavar="STORE|FILE.npz", required=True,
      help="what to classify; needs no labels")  # fmt: skip
  add("--split", choices=(*_SPLITS, "all"), default="all", help="which rows (all)")
  add("--ids", type=int, nargs="+", metavar="ID", help="only these rows")
  add("--out", type=pathlib.Path, metavar="FILE.npz",
      help="write ids, probabilities and classes here instead of printing"
      " them")  # fmt: skip


def run(args: argparse.Namespace) -> int:
  """Runs the command."""
  if args.out is not None:
    common.check_out("--out", args.out, _are_answers, args.path)
  run = common.current(args.path)
  rows = table_lib.read_table(args.encodings, labels=False).rows
  if args.ids is not None:
    rows = table_lib.take_ids(rows, common.as_ids(args.ids), args.encodings)
  if args.split != "all":
    rows = table_lib.take(rows, rows.split == _SPLITS.index(args.split))
  if not len(rows.ids):
    raise errors.DataError(
      f"{args.encodings} has no such rows; check --split and --ids"
    )
  p = answers_lib.answer(run, rows)
  classes = answers_lib.classify(run, rows)
  if args.out is not None:
    buffer = io.BytesIO()
    np.savez(buffer, ids=rows.ids, probabilities=p, classes=classes)
    lego.io.files.write(args.out, buffer.getvalue())
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


def _are_answers(path: pathlib.Path) -> bool:
  """Whether an earlier `predict` has written this file."""
  try:
    with lego.io.untrusted.open_plain(path) as file, zipfile.ZipFile(file) as archive:
      return {*archive.namelist()} == _ANSWERS
  except lego.io.zips.DAMAGED:
    return False


def _name(run: lego.runs.run.Run, number: int) -> str | None:
  return None if run.classes is None else run.classes[number]
