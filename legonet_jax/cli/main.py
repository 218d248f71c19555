"""`legonet COMMAND ...`: finds the command and turns errors into one clear line.

Exit codes: 0 done, 1 a proof failed, 2 bad input, 130 interrupted.
"""

import argparse
from collections.abc import Sequence
import io
import os
import sys
from typing import NoReturn

import jax

import legonet_jax
from legonet_jax import errors
from legonet_jax.cli import (
  console,
  encode,
  fit,
  import_encodings,
  inspect,
  keygen,
  quickstart,
  requests,
  serving,
  verify,
)
from legonet_jax.runtime import compile_cache

RUNS = (fit, serving, requests, inspect, verify)
COMMANDS = (quickstart, encode, import_encodings, *RUNS, keygen)


class _Parser(argparse.ArgumentParser):
  """A parser that complains as the commands do: in one line, and nothing else."""

  def error(self, message: str) -> NoReturn:
    console.complain(f"{message}; see `{self.prog} --help`")
    self.exit(2)


def make_parser() -> argparse.ArgumentParser:
  """The parser of all commands."""
  parser = _Parser(
    prog="legonet",
    description="Exact machine unlearning that you can prove.",
    epilog="Start with: legonet quickstart",
  )
  parser.add_argument(
    "--version", action="version", version=f"legonet-jax {legonet_jax.__version__}"
  )
  commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
  for command in COMMANDS:
    command.register(commands)
  return parser


def main(argv: Sequence[str] | None = None) -> int:
  """Runs one command and returns its exit code."""
  _prepare_output()
  args = make_parser().parse_args(argv)
  try:
    compile_cache.use_cache()
    code: int = args.run(args)
    sys.stdout.flush()
    return code
  except BrokenPipeError:
    # The reader has seen enough (`legonet predict ... | head`). What is left in the
    # buffer goes nowhere, so that Python does not complain about it at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
  except errors.LegoError as e:
    console.complain(e)
    return 2
  except OSError as e:
    console.complain(_tell(e))
    return 2
  except (MemoryError, jax.errors.JaxRuntimeError) as e:
    if isinstance(e, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(e):
      raise
    why = f" ({e})" if str(e) else ""
    console.complain(f"there is not enough memory for this{why}; ask for less")
    return 2
  except KeyboardInterrupt:
    print(
      "legonet: interrupted, nothing is half-written; the same command goes on",
      file=sys.stderr,
    )
    return 130


def _prepare_output() -> None:
  """Makes sure that no output, nor the lack of a place for it, ends a command."""
  for name in ("stdout", "stderr"):
    if getattr(sys, name) is None:  # the caller has closed it: `legonet ... >&-`
      setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (to the very end)
  if isinstance(sys.stdout, io.TextIOWrapper):
    # A name that the terminal's encoding lacks is no reason to lose the rest.
    sys.stdout.reconfigure(errors="backslashreplace")


def _tell(e: OSError) -> str:
  """What the system refuses, and of which file."""
  name = e.filename2 or e.filename
  if e.strerror is None or not isinstance(name, (str, bytes)):
    return str(e)
  where = os.fsdecode(name)
  return f"{where}: {e.strerror}; check the path, its permissions and the disk"
