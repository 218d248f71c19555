"""`legonet keygen`: makes a key pair for signing certificates and journal heads."""

from __future__ import annotations

import argparse
import pathlib

import legonet_jax as lego
from legonet_jax.cli import common

TEXT = """\
Makes an Ed25519 key pair for signing. KEY is the private key: it has no password, and
only you may read it. KEY.pub is the public key, for everybody who checks your
signatures. Hand over KEY.pub (or the key id) in a way that others trust. Nothing is
overwritten.

examples:
  legonet keygen ~/.config/legonet.key
  legonet keygen signing.key --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  parser.add_argument(
    "key", type=pathlib.Path, metavar="KEY", help="the new private key's file"
  )


def run(args: argparse.Namespace) -> int:
  """Runs the command; 0 when both files are on disk."""
  made = lego.runs.key_files.generate(args.key)
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
