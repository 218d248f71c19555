"""From one checkpoint to the next: a batch of requests, each adapter trained once."""

import pathlib
import time

import numpy as np

from legonet_jax import samples as samples_lib, unlearning
from legonet_jax.digests import digest, environment
from legonet_jax.ids import Ids
from legonet_jax.rebuild import Info, rebuild
from legonet_jax.runs import admission, checkpoint, rows as rows_lib, run as run_lib
from legonet_jax.runs.admission import Batch
from legonet_jax.runs.checkpoint import Manifest
from legonet_jax.runs.erasure import OnStep
from legonet_jax.runs.requests import Request
from legonet_jax.runs.run import Run, Session
from legonet_jax.samples import Samples
from legonet_jax.state import LegoState, untrained
from legonet_jax.task import Progress


def apply(
  session: Session,
  batch: Batch,
  progress: Progress | None,
  on_step: OnStep,
) -> Session:
  """Saves the state after `batch` as a new checkpoint; the old one stays for now."""
  run, start = session.run, time.perf_counter()
  stores = list(run.manifest.stores)
  state, samples = run.state, session.samples
  trained, masked = 0, run.manifest.masked
  made_on = run.manifest.environment
  if batch[0][1].kind == "compact":
    stores = _merge_stores(run, batch[0][0])
    on_step("rows landed")
  else:
    new = []
    for name, request in batch:
      if request.kind == "learn":
        new.append(admission.new_rows(run, request, stores))
        stores = _land(run, name, request, stores)
    on_step("rows landed")
    gone = np.intersect1d(admission.ids_of(batch, "unlearn"), state.ids)
    if samples is None:
      samples = run_lib.checked_table(run, np.setdiff1d(state.ids, gone))
    for part in new:
      samples = samples_lib.append(samples, part)
    defer = all(r.kind == "unlearn" and r.defer for _, r in batch)
    added = admission.ids_of(batch, "learn")
    state, info = _train(run, samples, gone, added, progress, defer)
    on_step("trained")
    samples = samples_lib.select(samples, state.ids)  # forgets the rows in memory
    trained, masked = info.adapters_retrained, info.adapters_masked
    made_on = made_on if defer else environment()
  after = digest(state)
  manifest = Manifest(
    number=run.manifest.number + 1,
    digest=after,
    stores=stores,
    environment=made_on,
    requests=[name for name, _ in batch],
    report={
      "before": run.manifest.digest,
      "after": after,
      "adapters": trained,
      "masked": masked,
      "samples": len(state.ids),
      "seconds": round(time.perf_counter() - start, 4),
    },
    head=session.entries[-1]["hash"],
    masked=masked,
  )
  checkpoint.save(run.layout.checkpoints, state, manifest, on_step)
  on_step("checkpoint saved")
  return Session(Run(run.layout, run.cfg, state, manifest), samples, session.entries)


def refit(
  run: Run, samples: Samples, progress: Progress | None = None
) -> tuple[LegoState, Info]:
  """A fresh fit on all of `samples`, with the run's settings and keys."""
  if run.cfg.key_policy != "given":
    return unlearning.fit(run.cfg, samples, progress=progress)
  return rebuild(
    run.cfg, samples, empty(run), np.zeros(0, np.int64), samples.ids, progress
  )


def empty(run: Run) -> LegoState:
  """The run before it has learned anything."""
  keys = np.load(run.layout.keys) if run.cfg.key_policy == "given" else None
  return untrained(run.cfg, run.state.model.keys.shape[1], keys)


def _train(
  run: Run,
  samples: Samples,
  gone: Ids,
  new: Ids,
  progress: Progress | None,
  defer: bool,
) -> tuple[LegoState, Info]:
  """The new state; on another environment everything is trained anew, nothing mixed."""
  if defer or not run_lib.foreign(run):
    return unlearning.update(run.cfg, run.state, samples, gone, new, progress, defer)
  ids = np.union1d(np.setdiff1d(run.state.ids, gone), new)
  return refit(run, samples_lib.select(samples, ids), progress)


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
  rows_lib.land(run.layout.learned / name, rows_lib.merge(parts), run.cfg.encoder)
  return [*others, f"learned/{name}"]
