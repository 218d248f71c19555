"""Helpers shared by the commands on a run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
import importlib
import json
import os
import pathlib
import sys
from typing import Any

import numpy as np

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import console

_MOST_SHOWN = 3


def import_own(modules: Sequence[str], option: str = "--import") -> None:
  """Imports the user's modules, also from the current folder, as `python -m` does."""
  if modules and "" not in sys.path:
    sys.path.insert(0, "")
  for name in modules:
    try:
      importlib.import_module(name)
    except ImportError as e:
      raise errors.ConfigError(
        f"{option} {name} cannot be imported ({e}); give the name of a module, without"
        " .py, that is installed or in this folder"
      ) from None
    except SyntaxError as e:
      raise errors.ConfigError(
        f"{option} {name} cannot be imported: its code is not Python ({e}); correct it"
      ) from None


def add_run(parser: argparse.ArgumentParser) -> None:
  """Adds the run's folder as an argument."""
  parser.add_argument("path", type=pathlib.Path, metavar="RUN", help="the run's folder")


def note(text: str) -> None:
  """Prints one line for people to standard error."""
  print(f"legonet: note: {console.one_line(text)}", file=sys.stderr, flush=True)


def counted(number: int, noun: str) -> str:
  """`1 request`, `2 requests`, `6,000 requests`."""
  return f"{number:,} {noun}{'' if number == 1 else 's'}"


def named(sources: Sequence[str]) -> str:
  """The first few paths as text; they may hold anything that a file system allows."""
  shown = ", ".join(console.one_line(source) for source in sources[:_MOST_SHOWN])
  more = len(sources) - _MOST_SHOWN
  return shown + (f" and {more} more (--json)" if more > 0 else "")


def show(args: argparse.Namespace, value: Mapping[str, Any], text: str) -> None:
  """Prints a result as JSON or as text."""
  print(json.dumps(value) if args.json else text, flush=True)


def current(path: pathlib.Path) -> lego.runs.run.Run:
  """The run to answer from, after finishing accepted requests if that is possible."""
  run = lego.runs.run.load(path)  # fails for other folders, which stay untouched
  waiting = lego.runs.service.unfinished(path)
  if waiting:
    try:
      session, _ = lego.runs.service.carry_out(path)
      note(f"finished {counted(len(waiting), 'request')} accepted before")
      tell_notes(session)
      run = session.run
    except (errors.LegoError, OSError) as e:
      note(f"{counted(len(waiting), 'accepted request')} not carried out yet: {e}")
      run = lego.runs.run.load(path)
  tell_environment(run)
  return run


def tell_notes(session: lego.runs.session.Session) -> None:
  """Prints what happened to requests other than the user's own."""
  for text in session.notes[:_MOST_SHOWN]:
    note(text)
  if len(session.notes) > _MOST_SHOWN:
    note(f"{len(session.notes) - _MOST_SHOWN} more; see `legonet history`")


def tell_environment(run: lego.runs.run.Run) -> None:
  """Prints a note if the run was trained on another environment."""
  other = lego.runs.run.foreign(run)
  if other:
    parts = [
      f"{name} {there!r}, here {here!r}" for name, (there, here) in other.items()
    ]
    note(
      f"the run was trained on another environment ({'; '.join(parts)}): weights"
      " trained here may differ in the last bits, so the next request that trains will"
      " train all adapters"
    )


def read_ids_file(path: pathlib.Path) -> lego.core.ids.Ids:
  """Ids from a text file, separated by white space or commas."""
  try:
    words = lego.io.untrusted.read_text(path).replace(",", " ").split()
  except FileNotFoundError:
    raise errors.SampleError(f"no file {path}; check the path") from None
  if not words:
    raise errors.EmptyRequestError(f"{path} names no sample; write ids into it")
  try:
    return np.asarray([int(word) for word in words], np.int64)
  except (ValueError, OverflowError):
    raise errors.SampleError(
      f"{path} is not a list of ids; give whole numbers below 2**63, one per line"
    ) from None


def check_out(
  option: str,
  path: pathlib.Path,
  is_ours: Callable[[pathlib.Path], bool],
  run: pathlib.Path | None = None,
) -> None:
  """Checks before any work whether its result can be written to `path`.

  Args:
    option: the command-line option that names the file.
    path: the file.
    is_ours: whether an existing file is an earlier result, which may be replaced.
    run: a run that must not contain the file, because `verify` would reject it there.

  Raises:
    ConfigError: if `path` cannot be written, or holds something else.
  """
  problem = ""
  if path.is_dir():
    problem = "is a folder; name a file in it"
  elif os.path.lexists(path) and not path.is_file():
    problem = "is not a regular file; name another one"
  elif not path.parent.is_dir():
    problem = f"cannot be written: there is no folder {path.parent}; make it first"
  elif not os.access(path.parent, os.W_OK):
    problem = "is in a folder that cannot be written; name another folder"
  elif run is not None and run.resolve() in path.resolve().parents:
    problem = f"is inside of {run}, which holds its own files only; name another folder"
  elif path.is_file() and path.stat().st_size and not is_ours(path):
    problem = "is something else, which would be lost; name another file"
  if problem:
    raise errors.ConfigError(f"{option} {path} {problem}")


def as_ids(values: list[int]) -> lego.core.ids.Ids:
  """Ids from the command line as int64."""
  try:
    return np.asarray(values, np.int64)
  except OverflowError:
    raise errors.SampleError("an id is beyond 64 bits; check --ids") from None


def wanted_ids(args: argparse.Namespace) -> lego.core.ids.Ids | None:
  """The ids that `--ids` or `--ids-file` names, or None."""
  if args.ids is not None:
    return as_ids(args.ids)
  return read_ids_file(args.ids_file) if args.ids_file is not None else None
