"""`legonet heal`: trains the adapters that deferred requests have masked."""

from __future__ import annotations

import argparse

import legonet_jax as lego
from legonet_jax.cli import common, request

TEXT = """\
Trains the adapters that `unlearn --defer` has masked. Afterwards the state equals, bit
for bit, a fresh fit on the remaining samples.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  common.add_run(parser)
  request.add_options(parser)


def run(args: argparse.Namespace) -> int:
  """Runs the command."""
  return request.carry_out_command(
    args, "heal", lambda run: lego.runs.requests.make("heal")
  )
