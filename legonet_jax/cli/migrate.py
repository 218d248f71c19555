"""`legonet migrate`: brings a run of an earlier version up to date."""

from __future__ import annotations

import argparse

import legonet_jax as lego
from legonet_jax.cli import common, console

TEXT = """\
Brings a run of an earlier version up to date. Version 2 defines the numbers of a state
so that they are the same on every machine, so the model is fitted again, on the same
samples. The journal records the digests before and after. First it is proved that the
old checkpoint is intact, that it is the state that the journal ends in, and that the
stores are as recorded.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  common.add_run(parser)


def run(args: argparse.Namespace) -> int:
  """Runs the command."""
  with console.bar("migrate", quiet=args.json) as progress:
    made = lego.runs.migrate.migrate(args.path, progress)
    session, _ = lego.runs.service.carry_out(
      args.path, None, progress
    )  # requests that have arrived meanwhile
  common.tell_notes(session)
  report = made.manifest.report["repair"]
  value = {key: report[key] for key in ("migrated", "samples", "before", "after")}
  text = (
    f"{args.path}: {report['samples']} samples fitted again; digest"
    f" {report['before'][:16]} ({report['migrated']}) is now {report['after'][:16]}"
  )
  common.show(args, value, text)
  return 0
