"""From the queue to a batch: which requests are accepted, and which go together.

A request that cannot be carried out ends as `rejected` in the journal, with the reason,
and never holds up the requests behind it.
"""

import pathlib

import numpy as np

from legonet_jax import errors
from legonet_jax.core.ids import Ids
from legonet_jax.io import durable
from legonet_jax.runs import (
  journal,
  requests as requests_lib,
)
from legonet_jax.runs.checking import REFUSALS, Outlook, after, check
from legonet_jax.runs.requests import Request
from legonet_jax.runs.session import Session
from legonet_jax.runtime.callbacks import OnStep
from legonet_jax.store.read import open_store, require_store

Batch = list[tuple[str, Request]]


def outlook(session: Session) -> Outlook:
  """What the run will hold once all accepted requests are carried out."""
  ahead = Outlook(
    set(session.run.state.ids.tolist()), list(session.run.manifest.stores)
  )
  for _, request in accepted(session):
    ahead = after(ahead, request)
  return ahead


def accepted(session: Session) -> Batch:
  """Accepted requests that are in no checkpoint yet, in the order of acceptance."""
  entries, settled = journal.of_requests(session.entries)
  done = settled.union(session.run.manifest.requests)
  batch: Batch = []
  for name in entries:
    if name not in done:
      request = _read(session, name)
      if request is not None:
        batch.append((name, request))
  return batch


def _read(session: Session, name: str) -> Request | None:
  """A request, or None if it cannot be read; a damaged one is rejected for good."""
  try:
    return requests_lib.read(session.run.layout.requests, name)
  except errors.DamagedRequestError as e:
    reject(session, name, None, e)
  except PermissionError:
    hold(session, name, "only the user who made it can read it")
  return None


def hold(session: Session, name: str, why: str) -> None:
  """Leaves a request in the queue; the next command looks at it again."""
  if name not in session.held:
    session.notes.append(f"request {name} has to wait: {' '.join(why.split())}")
  session.held.add(name)


def reject(
  session: Session, name: str, request: Request | None, why: errors.LegoError
) -> None:
  """Ends a request that cannot be carried out and removes its file."""
  layout = session.run.layout
  about = {
    "request": name,
    "kind": "unknown" if request is None else request.kind,
    "count": 0 if request is None else len(request.ids),
    "ids": [] if request is None else journal.salted(request.salt, request.ids),
    # Messages name ids; the journal must not.
    "reason": type(why).__name__,
  }
  durable.shred_tree(layout.learned / name)  # the rows that this request had copied
  journal.append(layout.journal, session.entries, "rejected", about)
  requests_lib.remove(layout.requests, [name])
  session.notes.append(f"request {name} was rejected: {' '.join(str(why).split())}")


def admit(session: Session, on_step: OnStep) -> None:
  """Writes every queued request into the journal, as accepted or as rejected."""
  layout = session.run.layout
  known, _ = journal.of_requests(session.entries)
  ahead = None
  for name in requests_lib.waiting(layout.requests):
    if name in known:
      continue
    request = _read(session, name)
    if request is None:
      continue
    ahead = ahead or outlook(session)
    try:
      check(session, request, ahead, queued=True)
    except REFUSALS as e:
      reject(session, name, request, e)
      on_step("rejected")
      continue
    except (errors.LegoError, OSError) as e:
      hold(session, name, str(e))
      continue
    about = {
      "request": name,
      "kind": request.kind,
      "defer": request.defer,
      "count": len(request.ids),
      "ids": journal.salted(request.salt, request.ids),
    }
    journal.append(layout.journal, session.entries, "accepted", about)
    ahead = after(ahead, request)
    on_step("accepted")


def next_batch(session: Session) -> Batch:
  """The accepted requests, up to the first that repeats an id of an earlier one.

  A request that has to wait, such as one to learn from a store that is damaged or away,
  holds up only requests that name the same samples.
  """
  batch: Batch = []
  named: set[int] = set()
  held_up: set[int] = set()
  for name, request in accepted(session):
    ids = set(request.ids.tolist())
    alone = request.kind == "compact"
    if named & ids or (alone and batch):
      break
    if not held_up & ids and name not in session.held:
      _hold_if_store_is_damaged(session, name, request)
    if held_up & ids or name in session.held:
      held_up |= ids
      continue
    batch.append((name, request))
    named |= ids
    if alone:
      break
  return batch


def _hold_if_store_is_damaged(session: Session, name: str, request: Request) -> None:
  """Leaves a request in the queue if the store that it names cannot be read now."""
  if not request.store:
    return
  try:
    path = pathlib.Path(request.store)
    require_store(path)
    open_store(path)
  except (errors.StoreError, errors.LinkError, errors.DataError, OSError) as e:
    hold(session, name, str(e))


def ids_of(batch: Batch, kind: str) -> Ids:
  """The ids [m] of all requests of one kind."""
  ids = [request.ids for _, request in batch if request.kind == kind]
  return np.concatenate([np.zeros(0, np.int64), *ids])
