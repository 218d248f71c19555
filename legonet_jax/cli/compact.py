"""`legonet compact`: merges the stores that a run owns."""

from __future__ import annotations

import argparse

import legonet_jax as lego
from legonet_jax.cli import common, request

TEXT = """\
Merges the stores that the run owns (rows learned from .npz files) into one, without
erased rows. The model does not change.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  common.add_run(parser)
  request.add_options(parser)


def run(args: argparse.Namespace) -> int:
  """Runs the command."""
  return request.carry_out_command(
    args, "compact", lambda run: lego.runs.requests.make("compact")
  )
