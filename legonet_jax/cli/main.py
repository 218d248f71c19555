"""`legonet COMMAND ...`: finds the command and turns errors into one clear line.

Exit codes: 0 done, 1 a proof failed, 2 bad input, 130 interrupted.
"""

import argparse
from collections.abc import Sequence
import sys

import legonet_jax
from legonet_jax import errors
from legonet_jax.cli import (
  compiled,
  encode,
  fit,
  import_encodings,
  inspect,
  quickstart,
  requests,
  serving,
  verify,
)

RUNS = (fit, serving, requests, inspect, verify)
COMMANDS = (quickstart, encode, import_encodings, *RUNS)


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
    return code
  except (errors.LegoError, OSError) as e:
    print(f"legonet: error: {' '.join(str(e).split())}", file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    print(
      "legonet: interrupted, nothing is half-written; the same command goes on",
      file=sys.stderr,
    )
    return 130
