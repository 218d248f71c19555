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
Which rows to erase is not taken from the request file, which may be damaged by then,
but found by comparing the stores with the state (see `finishing`).

The files follow the same path: `requests` (on disk), `checking` and `admission` (into
the journal, and into a batch), `applying` (a new checkpoint), `finishing` (erased and
complete). `session` is the run meanwhile.
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
  """What the maker of a request keeps: its name, and the salt of its id hashes."""

  name: str
  salt: str


def no_receipt(_: Receipt) -> None:
  """For callers who do not wait for the receipt."""


def submit(session: Session, request: Request) -> str:
  """Checks a request against the run and leaves it in the queue; its name.

  Raises:
    LegoError: if it cannot be carried out; then nothing has happened.
  """
  checking.check(session, request, admission.outlook(session))
  return requests_lib.drop(session.run.layout, request, session.entries)


def settle(
  session: Session,
  progress: Progress | None = None,
  on_step: OnStep = no_step,
) -> Session:
  """Carries out all requests there are, also those that come in meanwhile.

  Those that wait are merged, as far as no id occurs in two of them, so that each
  adapter is trained once. After an error it may be called again with the same session.
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
  """One command: finishes what was accepted, does `request`, empties the queue.

  Args:
    path: the run's folder.
    request: what to do, or a function that makes it from the run as it is then.
    progress: called with (samples passed, samples in all).
    on_step: told the name of each step when it is done.
    on_receipt: given the receipt as soon as the request is on disk, before any work.
    wait: for how many seconds to wait for another process on the run.

  Returns:
    The session, and the name and salt of the request. If a crash came in the middle of
    the same request to forget, that one is finished instead of a new one made.
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
        problem = e  # what was accepted before is done all the same
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
  # Who queued a request while we held the lock relies on us to look once more.
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
  """Requests that are accepted or queued, and not complete."""
  path = pathlib.Path(path)
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


def _receipts(session: Session) -> list[tuple[Request, Receipt]]:
  """Requests to forget that were made before and are not complete."""
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
  """Requests that were looked at and cannot be carried out now."""
  known, _ = journal.of_requests(session.entries)
  return {*known, *session.held}
