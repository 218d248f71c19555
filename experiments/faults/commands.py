"""The commands that are cut, what a user does after a cut, and what each must leave."""

from collections.abc import Sequence
import contextlib
import io
import json
import pathlib

import numpy as np

from experiments.faults import world as world_lib
from experiments.faults.world import World
from legonet_jax import errors
from legonet_jax.cli import main as cli
from legonet_jax.io import lock
from legonet_jax.runs import (
  create as create_lib,
  requests as requests_lib,
  run as run_lib,
  service,
  session as session_lib,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.runs.requests import Request
from legonet_jax.store import read as store_read

Requests = Sequence[Request]


class CommandError(errors.LegoError):
  """A command has ended with an exit code that is not 0."""


def run_command(*args: object) -> None:
  """Runs a command of `legonet`, quietly.

  Raises:
    CommandError: if it does not end well.
  """
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    code = cli.main([str(arg) for arg in args])
  if code:
    raise CommandError(f"exit code {code}: {err.getvalue() or out.getvalue()}")


def reopen(world: World) -> None:
  """What every command does first."""
  service.carry_out(world.run)


def carry_out(world: World, wanted: Requests) -> None:
  """A command per request."""
  for request in wanted:
    service.carry_out(world.run, request)


def queue(world: World, wanted: Requests) -> None:
  """All requests are waiting when a command comes."""
  for request in wanted:
    requests_lib.drop(Layout(world.run), request)
  service.carry_out(world.run)


def serve(world: World, wanted: Requests) -> None:
  """A service, which tries again after an error without opening the run anew."""
  with lock.hold(world.run):
    session = _settle(session_lib.open_session(world.run))
    for request in wanted:
      service.submit(session, request)
      session = _settle(session)


def _settle(session: session_lib.Session, tries: int = 3) -> session_lib.Session:
  try:
    return service.settle(session)
  except (errors.LegoError, OSError):
    if tries == 1:
      raise
  return _settle(session, tries - 1)


def open_other_first(world: World) -> None:
  """The other run is used before the one that was cut is opened again."""
  with contextlib.suppress(CommandError):  # the store may have to wait for its run
    run_command("unlearn", world.other, "--erased", "--json")
  reopen(world)


def check_other(world: World) -> list[str]:
  """The other run can forget what this one has erased, and ends in a refit as well."""
  run_command("unlearn", world.other, "--erased", "--json")
  here, there = run_lib.load(world.run), run_lib.load(world.other)
  same = set(here.state.ids.tolist()) == set(there.state.ids.tolist())
  same = same and here.manifest.digest == there.manifest.digest
  return [] if same else ["the other run does not end in the same state"]


def fit(world: World, _: Requests = ()) -> None:
  """A new run on the store."""
  create_lib.create(world.run, world_lib.CONFIG, world.store)


def fit_again(world: World) -> None:
  """The same command again; if the run was whole when the cut came, it must say so."""
  try:
    fit(world)
  except errors.RunError as e:
    if "is a run already" not in str(e):
      raise
  run_command("verify", world.run, "--json")


def repair(world: World, _: Requests = ()) -> None:
  """`legonet repair`."""
  run_command("repair", world.run, "--json")


def repair_again(world: World) -> None:
  """The same command again; if there is nothing to repair, that must be true."""
  try:
    repair(world)
  except CommandError as e:
    if "there is nothing to repair" not in str(e):
      raise
  run_command("verify", world.run, "--json")


def sign_key(world: World) -> pathlib.Path:
  """A key to sign with."""
  return world.tools / "signing.key"


def unlearn_signed(world: World, wanted: Requests) -> None:
  """`legonet unlearn --sign-key`."""
  for request in wanted:
    key, ids = sign_key(world), request.ids.tolist()
    run_command("unlearn", world.run, "--ids", *ids, "--sign-key", key, "--json")


def check_head(world: World) -> list[str]:
  """A signed head is of the journal as it is, or not there."""
  if not Layout(world.run).head.exists():
    return []
  public = sign_key(world).with_name("signing.key.pub")
  try:
    run_command("verify", world.run, "--public-key", public, "--json")
  except errors.LegoError as e:
    return [f"the signed head: {e}"]
  return []


def verify(world: World, _: Requests = ()) -> None:
  """`legonet verify --full`, which writes a certificate."""
  run_command("verify", world.run, "--full", "--json")


def check_certificate(world: World) -> list[str]:
  """The same command again writes one."""
  verify(world)
  there = Layout(world.run).certificate.exists()
  return [] if there else ["verify --full has written no certificate"]


def make_table(world: World) -> None:
  """An `.npz` to import, and the store that it makes when nothing comes in between."""
  world.tools.mkdir(exist_ok=True)
  np.savez(
    world.tools / "t.npz",
    encodings=world_lib.ENCODINGS,
    labels=world_lib.LABELS,
    ids=world_lib.EVERYONE,
    classes=np.asarray(world_lib.CLASSES),
  )
  _import_to(world, world.tools / "whole")


def import_encodings(world: World, _: Requests = ()) -> None:
  """`legonet import-encodings`."""
  _import_to(world, world.store)


def _import_to(world: World, out: pathlib.Path) -> None:
  run_command("import-encodings", world.tools / "t.npz", "--out", out)


def _bytes_but_salts(folder: pathlib.Path) -> dict[str, bytes | None]:
  """The files of a store; None in place of what depends on random salts."""
  meta = json.loads((folder / "meta.json").read_bytes())
  del meta["sha256"]["seals"]
  found: dict[str, bytes | None] = {p.name: p.read_bytes() for p in folder.iterdir()}
  salted = dict.fromkeys(("salts.npy", "seals.npy"))
  return {**found, **salted, "meta.json": json.dumps(meta).encode()}


def check_import(world: World) -> list[str]:
  """The store has the bytes of the one that nothing came in between."""
  store_read.open_store(world.store, verify=True)
  found, whole = map(_bytes_but_salts, (world.store, world.tools / "whole"))
  return [] if found == whole else [f"the store has other bytes: {sorted(found)}"]
