"""Whether a request can be carried out, and what the run would hold afterwards.

A request is checked three times: when it is made (strictly, because its maker can still
correct it), when it is written into the journal, and when it is carried out, because
the run and its stores may have changed in between.
"""

import pathlib
from typing import NamedTuple

import numpy as np

from legonet_jax import errors
from legonet_jax.core import samples as samples_lib
from legonet_jax.core.ids import Ids
from legonet_jax.core.samples import Samples
from legonet_jax.runs import (
  journal,
  rows as rows_lib,
  tombstones,
)
from legonet_jax.runs.requests import Request
from legonet_jax.runs.run import Run
from legonet_jax.runs.session import Session
from legonet_jax.store import (
  format as store_format,
  read as store_read,
)
from legonet_jax.store.read import is_store

# Faults of the request itself: waiting does not help. All other errors are obstacles
# that may pass: a full disk, a missing store.
REFUSALS = (
  errors.SampleError, errors.DuplicateIdError, errors.UnknownIdError,
  errors.ForgottenIdError, errors.EmptyRequestError, errors.TooFewSamplesError,
  errors.SamplesMismatchError, errors.RelearnError, errors.ConfigError,
)  # fmt: skip


class Outlook(NamedTuple):
  """What a run will hold once all accepted requests are carried out."""

  ids: set[int]
  stores: list[str]


def after(ahead: Outlook, request: Request) -> Outlook:
  """The outlook with one more request; changes the one it is given."""
  if request.kind == "unlearn":
    ahead.ids.difference_update(request.ids.tolist())
  elif request.kind == "learn":
    ahead.ids.update(request.ids.tolist())
    if request.store and request.store not in ahead.stores:
      ahead.stores.append(request.store)
  return ahead


def check(
  session: Session, request: Request, ahead: Outlook, queued: bool = False
) -> None:
  """Raises if a request cannot be carried out after the accepted ones.

  A queued request may name samples that are gone by now: for them there is nothing left
  to do, but the request must still be carried out for the others.
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
    new_rows(session, request, ahead.stores, queued)
    return
  check_unlearn(session.run, named, ahead.ids, queued)


def check_unlearn(run: Run, named: set[int], held: set[int], queued: bool) -> None:
  """Raises if the samples `named` cannot leave a model that holds `held`."""
  unknown = sorted(named - held)
  if len(unknown) == len(named) or (unknown and not queued):
    raise errors.UnknownIdError(
      f"the model holds no sample {unknown[0]}: it never did, or has forgotten it;"
      " check the request's ids, or skip such ids with --skip-forgotten"
    )
  check_enough(run, len(held) - len(named & held))


def sort_out(run: Run, ids: Ids) -> dict[str, Ids]:
  """The `ids` [m] that the run holds, that it has forgotten, and that it never held."""
  entries = journal.read(run.layout.journal)
  held = np.isin(ids, run.state.ids)
  key = tombstones.open_key(run.layout.forgotten_key, entries)
  more = run.manifest.report.get("forgotten", ())
  before = ~held & tombstones.find_marked(key, tombstones.all_marks(entries, more), ids)
  return {
    "forgotten now": ids[held],
    "forgotten before": ids[before],
    "never held": ids[~held & ~before],
  }


def check_enough(run: Run, left: int) -> None:
  """Raises if a run cannot go on with `left` samples."""
  least = run.cfg.num_adapters if run.cfg.key_policy == "replace" else 1
  if left < least:
    raise errors.TooFewSamplesError(
      f"{left} samples would be left, and this model needs {least} (each adapter has a"
      " sample of its own as anchor); make a new run, or delete this one"
    )


def new_rows(
  session: Session, request: Request, stores: list[str], queued: bool = True
) -> Samples:
  """The samples of a `learn` request, checked; their ids are in no other store.

  Args:
    session: the run.
    request: what to learn.
    stores: the run's stores when the request is carried out.
    queued: whether to leave out rows that were erased meanwhile, instead of refusing.
  """
  run = session.run
  _require_not_forgotten(session, request)
  source = run.source._replace(stores=stores)
  if request.encodings is not None and request.labels is not None:
    _require_new(source, request.ids)
    new = samples_lib.make_samples(
      run.cfg, request.encodings, request.labels, request.ids
    )
  else:
    if request.store:
      path = pathlib.Path(request.store)
      store_read.open_store(path, verify=True)
      others = [store for store in stores if store != request.store]
      _require_new(source._replace(stores=others), store_read.read_ids(path))
      _require_encoder(run, path)
      _require_classes(run, path)
      source = source._replace(stores=[request.store])
    missing = rows_lib.lost(source, request.ids)
    if len(missing) and (len(missing) == len(request.ids) or not queued):
      raise errors.UnknownIdError(
        f"no sample with id {missing[0]} in {', '.join(source.stores)}; check the ids,"
        " or bring erased rows again with --encodings"
      )
    new = rows_lib.table(run.cfg, source, np.setdiff1d(request.ids, missing))
  width = run.state.net.keys.shape[1]
  if new.codes.shape[1] != width:
    raise errors.SampleError(
      f"the new encodings have width {new.codes.shape[1]}, the run's {width}; use the"
      " same encoder"
    )
  return new


def _require_not_forgotten(session: Session, request: Request) -> None:
  if request.relearn:
    return
  marks = tombstones.all_marks(session.entries)
  back = tombstones.find_marked(session.key, marks, request.ids)
  if back.any():
    raise errors.RelearnError(
      f"{int(back.sum())} of {len(back)} samples were forgotten by this run (the first"
      f" is {request.ids[back][0]}); leave them out, or bring them back on purpose with"
      " --allow-relearn"
    )


def _require_new(source: rows_lib.Source, ids: Ids) -> None:
  for store in source.stores:
    held = store_read.read_ids(rows_lib.resolve(source.root, store))
    taken = np.intersect1d(ids, held)
    if len(taken):
      raise errors.DuplicateIdError(
        f"id {taken[0]} is in the run's store {store} already; give new samples ids of"
        " their own (to learn a row of that store, leave --encodings out)"
      )


def _require_encoder(run: Run, path: pathlib.Path) -> None:
  theirs, ours = store_read.encoder_of(path), run.cfg.encoder
  first = run.layout.root / run.manifest.stores[0]
  meta = store_read.open_store(first).meta if is_store(first) else {}
  if ours and ours == meta.get("weights_sha256"):  # of an earlier version
    ours = store_format.identity(meta)
  if theirs != ours:
    raise errors.SamplesMismatchError(
      f"{path} was made by another encoder ({theirs or 'not named'}, not"
      f" {ours or 'not named'}); encode the samples as the run's were"
    )


def _require_classes(run: Run, path: pathlib.Path) -> None:
  """Raises if only one of run and store names its classes."""
  theirs = store_read.classes_of(path)
  if (theirs is None) != (run.classes is None):
    which, other = ("the run", path) if theirs is None else (path, "the run")
    raise errors.SamplesMismatchError(
      f"{which} names its classes and {other} does not, so labels cannot be matched;"
      " make the store again with class names (`classes` in the .npz), or fit a new run"
    )
