"""`legonet keygen`: a pair of keys for signing certificates and journal heads."""

import argparse
import pathlib
from typing import Any

from legonet_jax.cli import common
from legonet_jax.runs import key_files

_TEXT = """\
Makes an Ed25519 key for signing: KEY, the private key, which only you may read and
which has no password; and KEY.pub, the public key, for everybody who checks your
signatures. Hand KEY.pub (or the key id) over in a way that others trust. Nothing is
overwritten.

examples:
  legonet keygen ~/.config/legonet.key
  legonet keygen signing.key --json
"""


def register(commands: Any) -> None:
  """Adds the command."""
  parser = common.parser_of(
    commands, "keygen", "make a key for signing certificates", _TEXT, run
  )
  parser.add_argument(
    "key", type=pathlib.Path, metavar="KEY", help="the new private key's file"
  )


def run(args: argparse.Namespace) -> int:
  """Runs the command; 0 when both files are on disk."""
  made = key_files.generate(args.key)
  value = {
    "private_key": str(made.private),
    "public_key": str(made.public),
    "key_id": made.key_id,
  }
  common.show(
    args,
    value,
    f"private key: {made.private} (keep it secret)\npublic key:  {made.public}\n"
    f"key id:      {made.key_id}",
  )
  return 0
