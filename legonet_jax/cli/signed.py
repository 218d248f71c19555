"""Shared by commands that sign: the option for the key, and writing signed files."""

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
  """The private key of `--sign-key`, or None; call it before any work begins."""
  return (
    None if args.sign_key is None else lego.runs.key_files.load_private(args.sign_key)
  )


def write_head(key: Any | None, session: lego.runs.session.Session) -> None:
  """Signs the journal's current head and writes it into the run."""
  if key is not None:
    data = lego.runs.attest.sign_head(key, session.run, session.entries)
    write_in_run(session.run.layout.head, data)


def write_in_run(path: pathlib.Path, data: bytes) -> None:
  """Writes a file into a run, under the lock that protects half-written files."""
  with lego.io.lock.hold(path.parent, lego.io.lock.QUEUE, wait=60.0):
    lego.io.durable.write(path, data)


def write_elsewhere(path: pathlib.Path, data: bytes) -> None:
  """Writes a file outside the run."""
  lego.io.files.write(path, data)
