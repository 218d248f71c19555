"""Which requests can be carried out, in which order, and which of them together."""

import pathlib
from typing import NamedTuple

import numpy as np

from legonet_jax import errors, samples as samples_lib
from legonet_jax.ids import Ids
from legonet_jax.runs import journal, requests as requests_lib, rows as rows_lib
from legonet_jax.runs.erasure import OnStep, is_store
from legonet_jax.runs.requests import Request
from legonet_jax.runs.run import Run, Session
from legonet_jax.samples import Samples

Batch = list[tuple[str, Request]]


class Outlook(NamedTuple):
  """What a run will hold once all accepted requests are carried out."""

  ids: set[int]
  stores: list[str]


def outlook(session: Session) -> Outlook:
  """Where the accepted requests lead."""
  ahead = Outlook(
    set(session.run.state.ids.tolist()), list(session.run.manifest.stores)
  )
  for _, request in accepted(session):
    ahead = after(ahead, request)
  return ahead


def after(ahead: Outlook, request: Request) -> Outlook:
  """The outlook with one more request; changes the one it is given."""
  if request.kind == "unlearn":
    ahead.ids.difference_update(request.ids.tolist())
  elif request.kind == "learn":
    ahead.ids.update(request.ids.tolist())
    if request.store and request.store not in ahead.stores:
      ahead.stores.append(request.store)
  return ahead


def accepted(session: Session) -> Batch:
  """Accepted requests that no checkpoint has, in the order of acceptance."""
  entries, settled = journal.of_requests(session.entries)
  done = settled.union(session.run.manifest.requests)
  folder = session.run.layout.requests
  return [(n, requests_lib.read(folder, n)) for n in entries if n not in done]


def admit(session: Session, on_step: OnStep) -> None:
  """Writes every queued request into the journal, as accepted or as rejected."""
  layout = session.run.layout
  known, settled = journal.of_requests(session.entries)
  ahead = None
  for name in requests_lib.waiting(layout.requests):
    if name in settled:  # a crash came between the journal and the removal
      requests_lib.remove(layout.requests, [name])
    elif name not in known:
      request = requests_lib.read(layout.requests, name)
      about = {
        "request": name,
        "kind": request.kind,
        "defer": request.defer,
        "count": len(request.ids),
        "ids": journal.salted(request.salt, request.ids),
      }
      ahead = ahead or outlook(session)
      try:
        check(session.run, request, ahead, queued=True)
      except errors.LegoError as e:
        # Messages name ids; the journal must not.
        about["reason"] = type(e).__name__
        journal.append(layout.journal, session.entries, "rejected", about)
        requests_lib.remove(layout.requests, [name])
        on_step("rejected")
        continue
      journal.append(layout.journal, session.entries, "accepted", about)
      ahead = after(ahead, request)
      on_step("accepted")


def check(run: Run, request: Request, ahead: Outlook, queued: bool = False) -> None:
  """Raises if a request cannot be carried out after those that were accepted.

  A queued request to forget may name samples that are gone meanwhile: it is as good as
  done for those, and must not be lost for the others.
  """
  if request.kind in ("heal", "compact"):
    return
  wanted = samples_lib.check_ids(request.ids)
  if not len(wanted):
    raise errors.EmptyRequestError("the request names no sample; give at least one id")
  named = set(wanted.tolist())
  if request.kind == "learn":
    known = sorted(named & ahead.ids)
    if known:
      raise errors.DuplicateIdError(
        f"sample {known[0]} is in the model already; leave it out of the request"
      )
    new_rows(run, request, ahead.stores)
    return
  unknown = sorted(named - ahead.ids)
  if len(unknown) == len(named) or (unknown and not queued):
    raise errors.UnknownIdError(
      f"the model holds no sample {unknown[0]}: it never did, or has forgotten it;"
      " check the request's ids"
    )
  left = len(ahead.ids) - len(named & ahead.ids)
  least = run.cfg.num_adapters if run.cfg.key_policy == "replace" else 1
  if left < least:
    raise errors.TooFewSamplesError(
      f"{left} samples would be left, and this model needs {least} (each adapter has a"
      " sample of its own as anchor); make a new run, or delete this one"
    )


def new_rows(run: Run, request: Request, stores: list[str]) -> Samples:
  """The samples of a `learn` request, checked; their ids are in no other store."""
  root = run.layout.root
  if request.encodings is not None and request.labels is not None:
    _require_new(root, request.ids, stores)
    new = samples_lib.make_samples(
      run.cfg, request.encodings, request.labels, request.ids
    )
  else:
    sources = [request.store] if request.store else stores
    if request.store:
      path = pathlib.Path(request.store)
      others = [store for store in stores if store != request.store]
      _require_new(root, rows_lib.read_ids(path), others)
      _require_encoder(run, path)
    missing = rows_lib.lost(root, sources, request.ids)
    if len(missing):
      raise errors.UnknownIdError(
        f"no sample with id {missing[0]} in {', '.join(sources)}; check the request"
      )
    new = rows_lib.table(run.cfg, root, sources, request.ids)
  width = run.state.model.keys.shape[1]
  if new.codes.shape[1] != width:
    raise errors.SampleError(
      f"the new encodings have width {new.codes.shape[1]}, the run's {width}; use the"
      " same encoder"
    )
  return new


def next_batch(session: Session) -> Batch:
  """The accepted requests, up to the first one with an id that occurs before it.

  A request to learn from a store that is not there waits, and holds up only those that
  name the same samples.
  """
  batch: Batch = []
  named: set[int] = set()
  held_up: set[int] = set()
  for name, request in accepted(session):
    ids = set(request.ids.tolist())
    alone = request.kind == "compact"
    if named & ids or (alone and batch):
      break
    if held_up & ids or (request.store and not is_store(pathlib.Path(request.store))):
      held_up |= ids
      continue
    batch.append((name, request))
    named |= ids
    if alone:
      break
  return batch


def ids_of(batch: Batch, kind: str) -> Ids:
  """The ids [m] of all requests of one kind."""
  ids = [request.ids for _, request in batch if request.kind == kind]
  return np.concatenate([np.zeros(0, np.int64), *ids])


def _require_new(root: pathlib.Path, ids: Ids, stores: list[str]) -> None:
  for store in stores:
    taken = np.intersect1d(ids, rows_lib.read_ids(rows_lib.resolve(root, store)))
    if len(taken):
      raise errors.DuplicateIdError(
        f"id {taken[0]} is in the run's store {store} already; give new samples ids of"
        " their own (to learn a row of that store, leave --encodings out)"
      )


def _require_encoder(run: Run, path: pathlib.Path) -> None:
  encoder = rows_lib.encoder_of(path)
  if encoder != run.cfg.encoder:
    raise errors.SamplesMismatchError(
      f"{path} was made by another encoder ({encoder[:16]}, not"
      f" {run.cfg.encoder[:16]}); encode the samples with the run's encoder"
    )
