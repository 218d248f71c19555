"""`legonet repair`: makes a damaged checkpoint again."""

from __future__ import annotations

import argparse

import legonet_jax as lego
from legonet_jax.cli import common, console

TEXT = """\
Makes a damaged checkpoint again: fits on the retained samples in the stores, and proves
by the digest in the journal that the new state equals the lost one.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  common.add_run(parser)


def run(args: argparse.Namespace) -> int:
  """Runs the command."""
  with console.bar("repair", quiet=args.json) as progress:
    mended, proved = lego.runs.repair.repair(args.path, progress)
    session, _ = lego.runs.service.carry_out(
      args.path, None, progress
    )  # requests that have arrived meanwhile
  common.tell_notes(session)
  value = {"digest": mended.manifest.digest, "proved": proved}
  why = "equal to the lost one" if proved else "NOT comparable with the lost one"
  common.show(args, value, f"{args.path}: digest {mended.manifest.digest[:16]}, {why}")
  return 0
