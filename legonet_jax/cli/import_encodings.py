"""`legonet import-encodings`: makes a store from encodings computed elsewhere."""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

import legonet_jax as lego
from legonet_jax import errors

_LONGEST_NAME = 300
TEXT = """\
Makes a store from encodings that were computed elsewhere.

FILE.npz holds `encodings` [N, d] and `labels` [N]. Optional are `ids` [N] (default: the
row numbers), `split` [N] (0 train, 1 test; default: all train) and `classes` [C], the
names of the labels 0 ... C - 1.

examples:
  legonet import-encodings clip_vit_b32.npz --encoder "CLIP ViT-B/32" --out clip
  legonet import-encodings embedded --out demo    # the data that comes with the package
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  add = parser.add_argument
  add("file", type=pathlib.Path, metavar="FILE.npz")
  add("--out", required=True, type=pathlib.Path, metavar="DIR", help="the new store")
  add("--encoder", default="unknown", help="a name to keep in meta.json (unknown)")
  add("--storage", choices=("float32", "float16"), default="float32",
      help="type of the stored encodings (float32)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
  """Runs the command; 0 when the store is complete."""
  if not lego.data.names.is_one_line(args.encoder, _LONGEST_NAME):
    raise errors.ConfigError(
      f"--encoder is {args.encoder[:40]!a}; give one line of 1 to {_LONGEST_NAME}"
      " printable characters"
    )
  embedded = str(args.file) == "embedded"
  if embedded:
    table = lego.data.encodings.make_table(args.file, _embedded())
  else:
    table = lego.data.encodings.read_encodings(args.file)
  # A number too large for the storage type becomes infinity, which is refused below.
  with np.errstate(over="ignore"):
    rows = table.encodings.astype(args.storage)
  bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
  if len(bad):
    raise errors.DataError(
      f"{args.file}: the encoding of id {table.ids[bad[0]]} is not finite in"
      f" {args.storage}; store float32"
    )
  source = lego.data.embedded.PATH if embedded else args.file
  how: dict[str, Any] = {
    "encoder": args.encoder,
    "imported": args.file.name,
    "imported_sha256": lego.io.download.sha256_of(source),
  }
  if not embedded:
    how["sources"] = [str(args.file.resolve())]
  store = lego.store.make.write_table(args.out, table._replace(encodings=rows), how)
  count, dim = store.encodings.shape
  if args.json:
    print(json.dumps({"store": str(args.out), "samples": count, "dim": dim}))
  else:
    gone = len(rows) - count
    erased = f"; {gone} erased rows stay erased" if gone else ""
    print(f"{args.out}: {count} encodings of width {dim}{erased}")
  return 0


def _embedded() -> dict[str, NDArray[Any]]:
  """The samples that come with the package, both splits."""
  train, test = lego.data.embedded.load_embedded()
  return {
    "encodings": np.concatenate([train.encodings, test.encodings]),
    "labels": np.concatenate([train.labels, test.labels]),
    "ids": np.concatenate([train.ids, test.ids]),
    "split": np.repeat([0, 1], [len(train.ids), len(test.ids)]),
    "classes": np.asarray(lego.data.embedded.CLASSES),
  }
