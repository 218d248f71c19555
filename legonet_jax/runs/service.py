"""The life of a request, in named steps, each of which may be the last before a crash.

    requested            the request file is on disk: from now on it will be done
    accepted             the journal says so
    rows landed          (learn) its rows are in a store; (compact) the stores are merged
    trained              the new state, in memory
    arrays written, checkpoint written
    checkpoint saved     the new state is on disk, with the names of the requests in it
    encoding overwritten, id overwritten
    erased               rows of forgotten samples are gone from the stores
    shredding a checkpoint
    checkpoints deleted  every checkpoint that saw them is gone
    requests removed     the last place that named them is gone
    complete             the journal says so

Everything after `checkpoint saved` may be repeated, everything before it starts over, and
the names in the checkpoint tell which: nothing is lost and nothing is done twice.
"""

from collections.abc import Sequence
import pathlib
import time
from typing import Any, NamedTuple

import numpy as np

from legonet_jax import errors, samples as samples_lib, training, unlearning
from legonet_jax.digests import digest, environment
from legonet_jax.ids import Ids
from legonet_jax.rebuild import Info, LegoState, untrained
from legonet_jax.runs import checkpoint, durable, erasure, journal, lock
from legonet_jax.runs import requests as requests_lib, rows as rows_lib, run as run_lib
from legonet_jax.runs.checkpoint import Manifest
from legonet_jax.runs.erasure import OnStep
from legonet_jax.runs.requests import Request
from legonet_jax.runs.run import Run, no_step
from legonet_jax.samples import Samples


class Service(NamedTuple):
  """A run under the lock: with its samples, once they are needed, and its journal."""

  run: Run
  samples: Samples | None
  entries: list[journal.Entry]


Batch = list[tuple[str, Request]]


def open_service(path: pathlib.Path, on_step: OnStep = no_step) -> Service:
  """Opens a run whose lock the caller holds, and clears what a crash has left.

  Nothing is decided here: `settle` carries out what was accepted.
  """
  layout = run_lib.Layout(path)
  run_lib.layout_lib.read_settings(layout)
  journal.mend(layout.journal)
  entries = journal.read(layout.journal)
  requests_lib.clean(layout.requests)
  run = run_lib.load(path)
  newest = run.manifest.number
  for number in checkpoint.numbers(layout.checkpoints):
    if number > newest:  # damaged; what it held will be done again
      durable.shred_tree(checkpoint.path_of(layout.checkpoints, number))
  on_step("opened")
  return Service(run, None, entries)


def submit(service: Service, request: Request) -> str:
  """Checks a request against the run and leaves it in the queue; its name.

  Raises:
    LegoError: if it cannot be carried out; then nothing has happened.
  """
  _check(service, request, _effective(service))
  return requests_lib.drop(service.run.layout.requests, request)


def settle(
  service: Service,
  progress: training.Progress | None = None,
  on_step: OnStep = no_step,
) -> Service:
  """Carries out all requests there are, also those that come in meanwhile.

  Those that wait are merged, as far as no id occurs in two of them, so that each adapter
  is trained once.
  """
  service = _finish_applied(service, on_step)
  while True:
    _admit(service, on_step)
    batch = _next_batch(service)
    if not batch:
      return service
    service = _apply(service, batch, progress, on_step)
    service = _finish_applied(service, on_step)


def carry_out(
  path: pathlib.Path,
  request: Request | None = None,
  progress: training.Progress | None = None,
  on_step: OnStep = no_step,
) -> tuple[Run, list[journal.Entry], str]:
  """One command: opens, finishes what was accepted, does `request`, takes the queue.

  Returns:
    The run, its journal, and the name of the request.
  """
  name = ""
  with lock.hold(path):
    service = settle(open_service(path, on_step), progress, on_step)
    if request is not None:
      name = submit(service, request)
      on_step("requested")
      service = settle(service, progress, on_step)
  # Whoever queued a request while we held the lock relies on us to look once more.
  while requests_lib.waiting(service.run.layout.requests):
    try:
      with lock.hold(path):
        service = settle(open_service(path, on_step), progress, on_step)
    except errors.RunBusyError:
      break
  return service.run, service.entries, name


def unfinished(path: pathlib.Path) -> list[str]:
  """Requests that are accepted or queued, and not complete."""
  layout = run_lib.Layout(path)
  accepted, settled = journal.of_requests(journal.read(layout.journal))
  names = [*accepted, *requests_lib.waiting(layout.requests)]
  return [name for name in dict.fromkeys(names) if name not in settled]


def _effective(service: Service) -> set[int]:
  """The ids that the run holds once all accepted requests are carried out."""
  held = set(service.run.state.ids.tolist())
  for _, request in _accepted(service):
    if request.kind == "unlearn":
      held -= set(request.ids.tolist())
    elif request.kind == "learn":
      held |= set(request.ids.tolist())
  return held


def _accepted(service: Service) -> Batch:
  """Accepted requests that no checkpoint has, in the order of acceptance."""
  accepted, settled = journal.of_requests(service.entries)
  folder = service.run.layout.requests
  open_names = [n for n in accepted if n not in settled]
  names = [n for n in open_names if n not in service.run.manifest.requests]
  return [(name, requests_lib.read(folder, name)) for name in names]


def _admit(service: Service, on_step: OnStep) -> None:
  """Writes every queued request into the journal, as accepted or as rejected."""
  layout = service.run.layout
  accepted, settled = journal.of_requests(service.entries)
  for name in requests_lib.waiting(layout.requests):
    if name in settled:  # the crash came between the journal and the removal
      requests_lib.remove(layout.requests, [name])
    elif name not in accepted:
      request = requests_lib.read(layout.requests, name)
      about = {
        "request": name,
        "kind": request.kind,
        "defer": request.defer,
        "count": len(request.ids),
        "ids": journal.salted(request.salt, request.ids),
      }
      try:
        _check(service, request, _effective(service), queued=True)
      except errors.LegoError as e:
        # Messages name ids; the journal must not.
        reason = {"reason": type(e).__name__}
        journal.append(layout.journal, service.entries, "rejected", about | reason)
        requests_lib.remove(layout.requests, [name])
        on_step("rejected")
        continue
      journal.append(layout.journal, service.entries, "accepted", about)
      on_step("accepted")


def _check(
  service: Service, request: Request, held: set[int], queued: bool = False
) -> None:
  """Raises if a request cannot be carried out on a run that holds the ids `held`.

  A queued request to forget may name samples that are gone meanwhile: it is as good as
  done for those, and must not be lost for the others.
  """
  cfg, wanted = service.run.cfg, samples_lib.check_ids(request.ids)
  if request.kind in ("heal", "compact"):
    return
  if not len(wanted):
    raise errors.EmptyRequestError("the request names no sample; give at least one id")
  named = set(wanted.tolist())
  if request.kind == "unlearn":
    unknown = sorted(named - held)
    if len(unknown) == len(named) or (unknown and not queued):
      raise errors.UnknownIdError(
        f"the model holds no sample {unknown[0]}: it never did, or has forgotten it;"
        " check the request's ids"
      )
    left = len(held) - len(named & held)
    least = cfg.num_adapters if cfg.key_policy == "replace" else 1
    if left < least:
      raise errors.TooFewSamplesError(
        f"{left} samples would be left, and this model needs {least} (each adapter has"
        " a sample of its own as anchor); make a new run, or delete this one"
      )
    return
  known = sorted(named & held)
  if known:
    raise errors.DuplicateIdError(
      f"sample {known[0]} is in the model already; leave it out of the request"
    )
  _new_rows(service, request)


def _new_rows(service: Service, request: Request) -> Samples:
  """The samples of a `learn` request, checked; their ids are in no other store."""
  run = service.run
  root, stores = run.layout.root, run.manifest.stores
  outside = request.encodings is not None
  for store in stores:
    if outside or (request.store and request.store != store):
      ids = request.ids
      if not outside:
        ids = rows_lib.read_ids(pathlib.Path(request.store))
      taken = np.intersect1d(ids, rows_lib.read_ids(rows_lib.resolve(root, store)))
      if len(taken):
        raise errors.DuplicateIdError(
          f"id {taken[0]} is in the run's store {store} already; give new samples ids"
          " of their own"
        )
  if request.encodings is not None and request.labels is not None:
    new = samples_lib.make_samples(
      run.cfg, request.encodings, request.labels, request.ids
    )
  else:
    from_stores = [request.store] if request.store else stores
    if request.store:
      encoder = rows_lib.encoder_of(pathlib.Path(request.store))
      if encoder != run.cfg.encoder:
        raise errors.SamplesMismatchError(
          f"{request.store} was made by another encoder ({encoder[:16]}, not"
          f" {run.cfg.encoder[:16]}); encode the samples with the run's encoder"
        )
    missing = rows_lib.lost(root, from_stores, request.ids)
    if len(missing):
      raise errors.UnknownIdError(
        f"no store holds a sample with id {missing[0]}; check the request's ids"
      )
    new = rows_lib.table(run.cfg, root, from_stores, request.ids)
  if new.codes.shape[1] != run.state.model.keys.shape[1]:
    raise errors.SampleError(
      f"the new encodings have width {new.codes.shape[1]}, the run's"
      f" {run.state.model.keys.shape[1]}; use the same encoder"
    )
  return new


def _next_batch(service: Service) -> Batch:
  """The accepted requests, up to the first one with an id that occurs before it."""
  batch: Batch = []
  named: set[int] = set()
  for name, request in _accepted(service):
    ids = set(request.ids.tolist())
    alone = request.kind == "compact"
    if named & ids or (alone and batch):
      break
    batch.append((name, request))
    named |= ids
    if alone:
      break
  return batch


def _apply(
  service: Service,
  batch: Batch,
  progress: training.Progress | None,
  on_step: OnStep,
) -> Service:
  """From the state of one checkpoint to the next; the old one stays for now."""
  run, start = service.run, time.perf_counter()
  layout, manifest = run.layout, run.manifest
  stores = list(manifest.stores)
  state, samples, info = run.state, service.samples, None
  if batch[0][1].kind == "compact":
    stores = _merge_stores(run, batch[0][0])
    on_step("rows landed")
  else:
    added = []
    for name, request in batch:
      if request.kind == "learn":
        added.append(_new_rows(service, request))
        stores = _land(run, name, request, stores)
    on_step("rows landed")
    gone = _held(state, _ids_of(batch, "unlearn"))
    if samples is None:
      kept = np.setdiff1d(state.ids, gone)
      samples = run_lib.checked_table(run, kept)
    for new in added:
      samples = samples_lib.append(samples, new)
    defer = all(r.kind == "unlearn" and r.defer for _, r in batch)
    state, info = _train(
      run, samples, gone, _ids_of(batch, "learn"), progress, defer=defer
    )
    on_step("trained")
    samples = samples_lib.select(samples, state.ids)
  after = digest(state)
  trained_here = info is not None and info.adapters_masked == 0
  fresh = Manifest(
    number=manifest.number + 1,
    digest=after,
    stores=stores,
    environment=environment() if trained_here else manifest.environment,
    requests=[name for name, _ in batch],
    report={
      "before": manifest.digest,
      "after": after,
      "adapters": info.adapters_retrained if info else 0,
      "masked": info.adapters_masked if info else manifest.masked,
      "samples": len(state.ids),
      "seconds": round(time.perf_counter() - start, 4),
    },
    head=service.entries[-1]["hash"],
    masked=info.adapters_masked if info else manifest.masked,
  )
  checkpoint.save(layout.checkpoints, state, fresh, on_step)
  on_step("checkpoint saved")
  return Service(Run(layout, run.cfg, state, fresh), samples, service.entries)


def _train(
  run: Run,
  samples: Samples,
  gone: Ids,
  new: Ids,
  progress: training.Progress | None,
  defer: bool,
) -> tuple[LegoState, Info]:
  """The new state; on another environment everything is trained anew, nothing mixed."""
  if defer or not run_lib.foreign(run):
    return unlearning.update(
      run.cfg, run.state, samples, gone, new, progress, defer=defer
    )
  ids = np.union1d(np.setdiff1d(run.state.ids, gone), new)
  retained = samples_lib.select(samples, ids)
  if run.cfg.key_policy != "given":
    return unlearning.fit(run.cfg, retained, progress=progress)
  empty = untrained(run.cfg, retained.codes.shape[1], np.load(run.layout.keys))
  return unlearning.rebuild(
    run.cfg, retained, empty, np.zeros(0, np.intp), ids, progress
  )


def _finish_applied(service: Service, on_step: OnStep) -> Service:
  """Everything between the checkpoint that holds a batch and its completion."""
  run, entries = service.run, service.entries
  layout, manifest = run.layout, run.manifest
  _, settled = journal.of_requests(entries)
  open_names = [name for name in manifest.requests if name not in settled]
  if not open_names:
    return service
  waiting = requests_lib.waiting(layout.requests)
  batch = [
    (n, requests_lib.read(layout.requests, n)) for n in open_names if n in waiting
  ]
  gone = _ids_of(batch, "unlearn")
  if len(gone):
    for store in manifest.stores:
      erasure.erase(rows_lib.resolve(layout.root, store), gone, on_step)
    on_step("erased")
  durable.shred(layout.certificate)
  checkpoint.remove_others(layout.checkpoints, manifest.number, on_step)
  _remove_stores(run)
  on_step("checkpoints deleted")
  requests_lib.remove(layout.requests, open_names)
  on_step("requests removed")
  values: dict[str, Any] = {"requests": open_names, **manifest.report}
  journal.append(layout.journal, entries, "complete", values)
  on_step("complete")
  return service


def _ids_of(batch: Sequence[tuple[str, Request]], kind: str) -> Ids:
  ids = [request.ids for _, request in batch if request.kind == kind]
  return np.concatenate([np.zeros(0, np.int64), *ids])


def _held(state: LegoState, ids: Ids) -> Ids:
  return np.intersect1d(ids, state.ids)


def _land(run: Run, name: str, request: Request, stores: list[str]) -> list[str]:
  """The run's stores, with the one that holds the rows of a `learn` request."""
  if request.encodings is None or request.labels is None:
    new = request.store
    return stores if not new or new in stores else [*stores, new]
  rows = rows_lib.Rows(
    np.asarray(request.encodings),
    np.asarray(request.labels),
    request.ids,
    np.full(len(request.ids), rows_lib.TRAIN, np.uint8),
  )
  rows_lib.land(run.layout.learned / name, rows, run.cfg.encoder)
  return [*stores, f"learned/{name}"]


def _merge_stores(run: Run, name: str) -> list[str]:
  """The run's stores, those that it owns merged into one without erased rows."""
  own = [s for s in run.manifest.stores if not pathlib.Path(s).is_absolute()]
  others = [s for s in run.manifest.stores if s not in own]
  parts = [rows_lib.read(rows_lib.resolve(run.layout.root, s)) for s in own]
  parts = [part for part in parts if len(part.ids)]
  if not parts:
    return others
  merged = rows_lib.merge(parts)
  rows_lib.land(run.layout.learned / name, merged, run.cfg.encoder)
  return [*others, f"learned/{name}"]


def _remove_stores(run: Run) -> None:
  """Shreds stores of the run's own that no checkpoint names any more."""
  if run.layout.learned.is_dir():
    for path in sorted(run.layout.learned.iterdir()):
      if f"learned/{path.name}" not in run.manifest.stores:
        durable.shred_tree(path)
