"""What commands share about signatures: the key option, and where signed things go."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import legonet_jax as lego


def add_key(parser: argparse.ArgumentParser) -> None:
  """Adds `--sign-key` to a command that changes a run."""
  parser.add_argument("--sign-key", type=pathlib.Path, metavar="KEY",
                      help="sign the journal's head, into RUN/head.json; see"
                      " `legonet keygen`")  # fmt: skip


def load_key(args: argparse.Namespace) -> Any | None:
  """The private key that the options name; looked at before any work begins."""
  return (
    None if args.sign_key is None else lego.runs.key_files.load_private(args.sign_key)
  )


def write_head(key: Any | None, session: lego.runs.session.Session) -> None:
  """Signs the journal's head as it is now and puts it into the run."""
  if key is not None:
    data = lego.runs.attest.sign_head(key, session.run, session.entries)
    write_in_run(session.run.layout.head, data)


def write_in_run(path: pathlib.Path, data: bytes) -> None:
  """Writes a file of a run, while nobody clears up half-written ones there."""
  with lego.io.lock.hold(path.parent, lego.io.lock.QUEUE, wait=60.0):
    lego.io.durable.write(path, data)


def write_elsewhere(path: pathlib.Path, data: bytes) -> None:
  """Writes a file of the user's."""
  lego.io.files.write(path, data)
