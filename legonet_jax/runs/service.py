"""The life of a request, in named steps; each may be the last before a crash.

    requested            the request file is on disk: from now on it will be done
    accepted             the journal says so
    rows landed          the rows to learn are in a store; or own stores are merged
    trained              the new state is there, in memory
    arrays written
    checkpoint written
    checkpoint saved     the new state is on disk, with the names of its requests
    encoding overwritten
    id overwritten
    erased               rows of forgotten samples are gone from the stores
    shredding a checkpoint
    checkpoints deleted  every checkpoint that saw them is gone
    requests removed     the last file that named them is gone
    complete             the journal says so

What comes before `checkpoint saved` starts over after a crash, what comes after it is
repeated, and the names in the checkpoint tell which: no request is lost or done twice.
"""

import pathlib
from typing import Any, NamedTuple

import numpy as np

from legonet_jax import errors
from legonet_jax.runs import (
  admission,
  applying,
  checkpoint,
  durable,
  erasure,
  journal,
  lock,
  requests as requests_lib,
  rows as rows_lib,
  run as run_lib,
)
from legonet_jax.runs.erasure import OnStep
from legonet_jax.runs.layout import Layout, read_settings
from legonet_jax.runs.requests import Request
from legonet_jax.runs.run import Run, Session, no_step
from legonet_jax.task import Progress


class Receipt(NamedTuple):
  """What the maker of a request keeps: its name, and the salt of its id hashes."""

  name: str
  salt: str


def open_session(path: pathlib.Path, on_step: OnStep = no_step) -> Session:
  """Opens a run whose lock the caller holds, and clears what a crash has left."""
  layout = Layout(path)
  read_settings(layout)
  journal.mend(layout.journal)
  entries = journal.read(layout.journal)
  requests_lib.clean(layout.requests)
  with lock.folder(path):
    for stale in path.glob(".*.json.*"):  # of a process that was killed
      durable.shred(stale)
  run = run_lib.load(path)
  for number in checkpoint.numbers(layout.checkpoints):
    if number > run.manifest.number:  # damaged; its requests will be done again
      durable.shred_tree(checkpoint.path_of(layout.checkpoints, number))
  on_step("opened")
  return Session(run, None, entries)


def submit(session: Session, request: Request) -> str:
  """Checks a request against the run and leaves it in the queue; its name.

  Raises:
    LegoError: if it cannot be carried out; then nothing has happened.
  """
  admission.check(session.run, request, admission.outlook(session))
  return requests_lib.drop(session.run.layout.requests, request)


def settle(
  session: Session,
  progress: Progress | None = None,
  on_step: OnStep = no_step,
) -> Session:
  """Carries out all requests there are, also those that come in meanwhile.

  Those that wait are merged, as far as no id occurs in two of them, so that each
  adapter is trained once.
  """
  session = finish(session, on_step)
  while True:
    admission.admit(session, on_step)
    batch = admission.next_batch(session)
    if not batch:
      return session
    session = applying.apply(session, batch, progress, on_step)
    session = finish(session, on_step)


def finish(session: Session, on_step: OnStep = no_step) -> Session:
  """All that is left to do for the requests in the checkpoint; may be repeated."""
  run = session.run
  layout, manifest = run.layout, run.manifest
  _, settled = journal.of_requests(session.entries)
  names = [name for name in manifest.requests if name not in settled]
  if not names:
    return session
  there = set(requests_lib.waiting(layout.requests))
  batch = [(n, requests_lib.read(layout.requests, n)) for n in names if n in there]
  gone = admission.ids_of(batch, "unlearn")
  if len(gone):
    for store in manifest.stores:
      erasure.erase(rows_lib.resolve(layout.root, store), gone, on_step)
    on_step("erased")
  durable.shred(layout.certificate)
  checkpoint.remove_others(layout.checkpoints, manifest.number, on_step)
  _remove_stores(run)
  on_step("checkpoints deleted")
  requests_lib.remove(layout.requests, names)
  on_step("requests removed")
  values: dict[str, Any] = {"requests": names, **manifest.report}
  journal.append(layout.journal, session.entries, "complete", values)
  on_step("complete")
  return session


def carry_out(
  path: pathlib.Path,
  request: Request | None = None,
  progress: Progress | None = None,
  on_step: OnStep = no_step,
) -> tuple[Session, Receipt]:
  """One command: finishes what was accepted, does `request`, empties the queue.

  Returns:
    The session, and the name and salt of the request. If a crash came in the middle of
    the same request to forget, that one is finished instead of a new one made.
  """
  receipt = Receipt("", "")
  with lock.hold(path):
    session = open_session(path, on_step)
    earlier = _same_request(session, request)
    session = finish(session, on_step)
    admission.admit(session, on_step)
    if request is not None:
      receipt = earlier or Receipt(submit(session, request), request.salt.hex())
      on_step("requested")
    try:
      session = settle(session, progress, on_step)
    except (errors.LegoError, OSError) as e:
      if not receipt.name:
        raise
      raise errors.RunError(
        f"{e} (the request is kept, and the next command on the run goes on with it)"
      ) from e
  # Who queued a request while we held the lock relies on us to look once more.
  while set(requests_lib.waiting(session.run.layout.requests)) - _held_up(session):
    try:
      with lock.hold(path):
        session = settle(open_session(path, on_step), progress, on_step)
    except errors.RunBusyError:
      break
  return session, receipt


def unfinished(path: pathlib.Path) -> list[str]:
  """Requests that are accepted or queued, and not complete."""
  layout = Layout(path)
  known, settled = journal.of_requests(journal.read(layout.journal))
  names = dict.fromkeys((*known, *requests_lib.waiting(layout.requests)))
  return [name for name in names if name not in settled]


def outcome(session: Session, name: str) -> journal.Entry:
  """The entry that settles a request, or its acceptance if it has to wait."""
  for entry in reversed(session.entries):
    if name in entry.get("requests", ()) or name == entry.get("request"):
      return entry
  raise errors.RunError(f"the journal has no request {name}")


def _same_request(session: Session, request: Request | None) -> Receipt | None:
  """An unfinished request to forget the same samples, if there is one."""
  if request is None or request.kind != "unlearn":
    return None
  folder = session.run.layout.requests
  for name in requests_lib.waiting(folder):
    other = requests_lib.read(folder, name)
    same = other.kind == "unlearn" and np.array_equal(
      np.sort(other.ids), np.sort(request.ids)
    )
    if same and other.defer == request.defer:
      return Receipt(name, other.salt.hex())
  return None


def _held_up(session: Session) -> set[str]:
  """Accepted requests that cannot be carried out now, because their store is away."""
  return {name for name, _ in admission.accepted(session)}


def _remove_stores(run: Run) -> None:
  """Shreds stores of the run's own that no checkpoint names any more."""
  if run.layout.learned.is_dir():
    for path in sorted(run.layout.learned.iterdir()):
      if f"learned/{path.name}" not in run.manifest.stores:
        durable.shred_tree(path)
