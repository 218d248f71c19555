"""`legonet COMMAND ...`: finds the command and turns errors into one clear line.

Exit codes: 0 done, 1 a proof failed, 2 bad input, 130 interrupted.
"""

import argparse
from collections.abc import Sequence
import os
import sys

import legonet_jax
from legonet_jax import errors
from legonet_jax.cli import (
  compiled,
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

RUNS = (fit, serving, requests, inspect, verify)
COMMANDS = (quickstart, encode, import_encodings, *RUNS, keygen)


def make_parser() -> argparse.ArgumentParser:
  """The parser of all commands."""
  parser = argparse.ArgumentParser(
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
  args = make_parser().parse_args(argv)
  try:
    compiled.use_cache()
    code: int = args.run(args)
    sys.stdout.flush()
    return code
  except BrokenPipeError:
    # The reader has seen enough (`legonet predict ... | head`). What is left in the
    # buffer goes nowhere, so that Python does not complain about it at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
  except (errors.LegoError, OSError, MemoryError) as e:
    text = " ".join(str(e).split()) or "there is not enough memory for this"
    print(f"legonet: error: {text}", file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    print(
      "legonet: interrupted, nothing is half-written; the same command goes on",
      file=sys.stderr,
    )
    return 130
