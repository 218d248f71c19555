"""The life of a request in named steps; a crash may come after any of them.

    requested            the request file is on disk; from now on it will be carried out
    accepted             the journal has an `accepted` line about it
    rows landed          the rows to learn are in a store; or own stores are merged
    trained              the new state is in memory
    arrays written
    checkpoint written
    checkpoint saved     the new state is on disk, with the names of its requests
    encoding overwritten
    id overwritten
    erased               rows of forgotten samples are gone from the stores
    shredding a checkpoint
    checkpoints deleted  every checkpoint that saw them is gone
    requests removed     the last file that named them is gone
    complete             the journal has a `complete` line about it

After a crash before `checkpoint saved` the request starts over; after a later crash the
remaining steps are repeated. The request names in the checkpoint tell which of the two
applies, so no request is lost or carried out twice. The rows to erase are not taken
from the request file, which may be damaged by then, but found by comparing the stores
with the state (see `finishing`).

The modules follow the same path: `requests` (on disk), `checking` and `admission` (into
the journal, and into a batch), `applying` (a new checkpoint), `finishing` (erased and
complete). `session` holds the run meanwhile.
"""

from collections.abc import Callable
import pathlib
from typing import NamedTuple

import numpy as np

from legonet_jax import errors
from legonet_jax.io import lock
from legonet_jax.io.files import PathLike
from legonet_jax.runs import (
  admission,
  applying,
  checking,
  journal,
  requests as requests_lib,
)
from legonet_jax.runs.finishing import finish
from legonet_jax.runs.layout import Layout
from legonet_jax.runs.requests import Request
from legonet_jax.runs.run import Run
from legonet_jax.runs.session import Session, newest, open_session
from legonet_jax.runtime.callbacks import OnStep, Progress, no_step

MakeRequest = Callable[[Run], Request]


class Receipt(NamedTuple):
  """For the maker of a request to keep: its name, and the salt of its id hashes."""

  name: str
  salt: str


def no_receipt(_: Receipt) -> None:
  """Ignores the receipt."""


def submit(session: Session, request: Request) -> str:
  """Checks a request against the run and adds it to the queue; returns its name.

  Raises:
    LegoError: if it cannot be carried out; then nothing has changed.
  """
  checking.check(session, request, admission.outlook(session))
  return requests_lib.drop(session.run.layout, request, session.entries)


def settle(
  session: Session,
  progress: Progress | None = None,
  on_step: OnStep = no_step,
) -> Session:
  """Carries out all requests, also those that arrive meanwhile.

  Waiting requests are merged unless they share an id, so that each adapter is trained
  once. After an error it may be called again with the same session.
  """
  session = finish(newest(session), on_step)
  while True:
    admission.admit(session, on_step)
    batch = admission.next_batch(session)
    if not batch:
      return session
    session = applying.apply(session, batch, progress, on_step)
    session = finish(session, on_step)


def carry_out(
  path: PathLike,
  request: Request | MakeRequest | None = None,
  progress: Progress | None = None,
  on_step: OnStep = no_step,
  on_receipt: Callable[[Receipt], None] = no_receipt,
  wait: float = 0.0,
) -> tuple[Session, Receipt]:
  """One command: finishes accepted requests, does `request`, empties the queue.

  Args:
    path: the run's folder.
    request: the request, or a function that makes it from the current run.
    progress: called with (samples passed, samples in all).
    on_step: called with the name of each step when it is done.
    on_receipt: called with the receipt once the request is on disk, before any work.
    wait: how many seconds to wait for another process that works on the run.

  Returns:
    The session, and the name and salt of the request. If a crash has interrupted a
    request to forget the same samples, it is finished and no new one is made.
  """
  path = pathlib.Path(path)
  receipt = Receipt("", "")
  problem: errors.LegoError | None = None
  with lock.hold(path, wait=wait):
    session = open_session(path, on_step)
    waiting = _receipts(session)
    session = finish(session, on_step)
    admission.admit(session, on_step)
    if request is not None:
      try:
        made = request if isinstance(request, Request) else request(session.run)
        receipt = _same_request(waiting, made) or Receipt(
          submit(session, made), made.salt.hex()
        )
        on_step("requested")
        on_receipt(receipt)
      except errors.LegoError as e:
        problem = e  # raised below, after the requests that were accepted before
    try:
      session = settle(session, progress, on_step)
    except (errors.LegoError, OSError) as e:
      if not receipt.name:
        raise problem or e from None
      raise errors.RunError(
        f"{e} (the request is kept, and the next command on the run goes on with it)"
      ) from e
  if problem is not None:
    raise problem
  # A process that queued a request while we held the lock relies on us to do it.
  while set(requests_lib.waiting(session.run.layout.requests)) - _held_up(session):
    try:
      with lock.hold(path):
        notes = session.notes
        session = settle(open_session(path, on_step), progress, on_step)
        session = session._replace(notes=notes + session.notes)
    except errors.RunBusyError:
      break
  return session, receipt


def unfinished(path: PathLike) -> list[str]:
  """The names of requests that are accepted or queued, but not complete."""
  path = pathlib.Path(path)
  layout = Layout(path)
  known, settled = journal.of_requests(journal.read(layout.journal))
  names = dict.fromkeys((*known, *requests_lib.waiting(layout.requests)))
  return [name for name in names if name not in settled]


def outcome(session: Session, name: str) -> journal.Entry:
  """The journal entry that settles a request, or its `accepted` entry if it waits."""
  for entry in reversed(session.entries):
    if name in entry.get("requests", ()) or name == entry.get("request"):
      return entry
  raise errors.RunError(f"the journal has no request {name}")


def _receipts(session: Session) -> list[tuple[Request, Receipt]]:
  """Earlier requests to forget that are not complete, with their receipts."""
  folder = session.run.layout.requests
  found = []
  for name in requests_lib.waiting(folder):
    try:
      other = requests_lib.read(folder, name)
    except (errors.DamagedRequestError, OSError):
      continue
    if other.kind == "unlearn":
      found.append((other, Receipt(name, other.salt.hex())))
  return found


def _same_request(
  waiting: list[tuple[Request, Receipt]], request: Request
) -> Receipt | None:
  """The receipt of an unfinished request to forget the same samples."""
  for other, receipt in waiting:
    same = np.array_equal(np.sort(other.ids), np.sort(request.ids))
    if same and request.kind == "unlearn" and other.defer == request.defer:
      return receipt
  return None


def _held_up(session: Session) -> set[str]:
  """The names of requests that were checked and cannot be carried out now."""
  known, _ = journal.of_requests(session.entries)
  return {*known, *session.held}
