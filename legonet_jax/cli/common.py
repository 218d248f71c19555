"""What the commands around a run share."""

import argparse
from collections.abc import Callable, Mapping
import json
import pathlib
import sys
from typing import Any
import zipfile
import zlib

import numpy as np

from legonet_jax import errors
from legonet_jax.ids import Ids
from legonet_jax.runs import rows as rows_lib, run as run_lib, service
from legonet_jax.runs.erasure import is_store
from legonet_jax.runs.rows import Rows
from legonet_jax.runs.run import Run

Commands = Any  # what argparse gives for adding sub-commands is private


def parser_of(
  commands: Commands, name: str, brief: str, text: str, run: Callable[..., int]
) -> argparse.ArgumentParser:
  """A sub-command whose `text` starts with what it does and ends with examples."""
  parser: argparse.ArgumentParser = commands.add_parser(
    name,
    help=brief,
    description=text,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("--json", action="store_true", help="print one JSON object only")
  parser.set_defaults(run=run)
  return parser


def add_run(parser: argparse.ArgumentParser) -> None:
  """Adds the run's folder as an argument."""
  parser.add_argument("path", type=pathlib.Path, metavar="RUN", help="the run's folder")


def note(text: str) -> None:
  """One line for people, beside the result."""
  print(f"legonet: note: {text}", file=sys.stderr, flush=True)


def show(args: argparse.Namespace, value: Mapping[str, Any], text: str) -> None:
  """Prints a result as JSON or as text."""
  print(json.dumps(value) if args.json else text, flush=True)


def current(path: pathlib.Path) -> Run:
  """The run to serve: accepted requests are finished first, if that can be done."""
  run_lib.load(path)  # a folder that is no run must not be touched
  waiting = service.unfinished(path)
  if waiting:
    try:
      service.carry_out(path)
      note(f"finished {len(waiting)} requests that were accepted before")
    except (errors.LegoError, OSError) as e:
      reason = " ".join(str(e).split())
      note(f"{len(waiting)} accepted requests are not carried out yet: {reason}")
  run = run_lib.load(path)
  tell_environment(run)
  return run


def tell_environment(run: Run) -> None:
  """Says so if the run was trained somewhere else."""
  other = run_lib.foreign(run)
  if other:
    parts = [
      f"{name} {there!r}, here {here!r}" for name, (there, here) in other.items()
    ]
    note(
      f"the run was trained on another environment ({'; '.join(parts)}): what is"
      " trained here may differ in the last bits, so the next request that trains does"
      " so for all adapters"
    )


def read_ids_file(path: pathlib.Path) -> Ids:
  """Ids from a text file, separated by white space or commas."""
  try:
    words = path.read_text().replace(",", " ").split()
    return np.asarray([int(word) for word in words], np.int64)
  except (ValueError, OverflowError, UnicodeDecodeError):
    raise errors.SampleError(
      f"{path} is not a list of ids; give whole numbers, one per line"
    ) from None


def wanted_ids(args: argparse.Namespace) -> Ids | None:
  """The ids that `--ids` or `--ids-file` name."""
  if args.ids is not None:
    try:
      return np.asarray(args.ids, np.int64)
    except OverflowError:
      raise errors.SampleError("an id is beyond 64 bits; check --ids") from None
  return read_ids_file(args.ids_file) if args.ids_file is not None else None


def read_rows(path: pathlib.Path, labels: bool = True) -> Rows:
  """Rows of a store or of an `.npz` with encodings, labels, ids (and split)."""
  if is_store(path):
    return rows_lib.read(path)
  if path.is_dir() or not path.is_file():
    raise errors.DataError(f"{path} is neither an encoding store nor an .npz file")
  try:
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
      arrays = {name: file[name] for name in file.files}
  except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as e:
    raise errors.DataError(f"{path} is not a readable .npz of arrays ({e})") from None
  needed = ("encodings", "labels") if labels else ("encodings",)
  for name in needed:
    if name not in arrays:
      raise errors.DataError(f"{path} has no array '{name}'; it has {list(arrays)}")
  encodings = arrays["encodings"]
  if encodings.ndim != 2 or encodings.dtype.kind != "f" or not encodings.size:
    raise errors.DataError(
      f"{path}: encodings are {encodings.dtype}{list(encodings.shape)}; give floats"
      " [samples, width]"
    )
  count = len(encodings)
  columns = {
    "labels": arrays.get("labels", np.zeros(count, np.int32)),
    "ids": arrays.get("ids", np.arange(count)),
    "split": arrays.get("split", np.zeros(count, np.uint8)),
  }
  for name, column in columns.items():
    if column.shape != (count,) or column.dtype.kind not in "iu":
      raise errors.DataError(f"{path}: {name} must be {count} integers")
  return Rows(
    encodings,
    columns["labels"].astype(np.int32),
    columns["ids"].astype(np.int64),
    columns["split"].astype(np.uint8),
  )


def take(rows: Rows, mask: Any) -> Rows:
  """The rows where `mask` [N] holds."""
  return Rows(*(column[mask] for column in rows))
