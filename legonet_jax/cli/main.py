"""The command `legonet`."""

import argparse
from collections.abc import Sequence
import sys

from legonet_jax import errors
from legonet_jax.cli import encode, import_encodings

COMMANDS = (encode, import_encodings)


def main(argv: Sequence[str] | None = None) -> int:
  """Parses and runs a command; a caller's mistake is one line and exit code 2."""
  parser = argparse.ArgumentParser(prog="legonet", description=__doc__)
  commands = parser.add_subparsers(required=True, metavar="COMMAND")
  for command in COMMANDS:
    command.register(commands)
  args = parser.parse_args(argv)
  try:
    code: int = args.run(args)
  except (errors.LegoError, OSError) as e:
    print(f"legonet: error: {e}", file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    return 130
  return code
