"""From one checkpoint to the next: a batch of requests, each adapter trained once."""

import itertools
import pathlib
import time
from typing import NamedTuple

import numpy as np

from legonet_jax import errors
from legonet_jax.core import samples as samples_lib
from legonet_jax.core.ids import Ids
from legonet_jax.core.samples import Samples
from legonet_jax.data import dataset as dataset_lib
from legonet_jax.host import requests
from legonet_jax.host.advance import Info, advance
from legonet_jax.host.digest import digest
from legonet_jax.host.state import LegoState, untrained
from legonet_jax.runs import (
  admission,
  checking,
  checkpoint,
  layout as layout_lib,
  rows as rows_lib,
  run as run_lib,
  tombstones,
)
from legonet_jax.runs.admission import Batch
from legonet_jax.runs.checkpoint import Manifest
from legonet_jax.runs.requests import Request
from legonet_jax.runs.run import Run
from legonet_jax.runs.session import Session
from legonet_jax.runtime.callbacks import OnStep, Progress
from legonet_jax.runtime.environment import environment
from legonet_jax.store import read as store_read, rows as store_rows

_NONE = np.zeros(0, np.int64)


class _StoreInTheWayError(Exception):
  """The rows that the request `name` learns cannot be read now."""

  def __init__(self, name: str, why: Exception) -> None:
    super().__init__(str(why))
    self.name = name


class _Outcome(NamedTuple):
  """The result of a batch: state, samples, stores, and the ids that left or joined."""

  state: LegoState
  samples: Samples | None
  stores: list[str]
  left: Ids
  joined: Ids
  lost: Ids
  trained: int
  masked: int
  made_on: dict[str, str]


def apply(
  session: Session, batch: Batch, progress: Progress | None, on_step: OnStep
) -> Session:
  """Saves the state after `batch` as a new checkpoint; the old one stays for now.

  If the requests cannot be carried out together, they are tried one by one. A request
  that fails alone is rejected; one whose store cannot be read now has to wait. So each
  call leaves fewer requests to be carried out.
  """
  try:
    return _apply(session, batch, progress, on_step)
  except _StoreInTheWayError as e:
    admission.hold(session, e.name, str(e))
    batch = [item for item in batch if item[0] != e.name]
    return apply(session, batch, progress, on_step) if batch else session
  except checking.REFUSALS as e:
    if len(batch) == 1:
      admission.reject(session, *batch[0], e)
      on_step("rejected")
      return session
  return apply(session, batch[:1], progress, on_step)


def _apply(
  session: Session, batch: Batch, progress: Progress | None, on_step: OnStep
) -> Session:
  run, start = session.run, time.perf_counter()
  if batch[0][1].kind == "compact":
    stores = _merge_stores(run, batch[0][0])
    made = _Outcome(
      run.state, session.samples, stores, _NONE, _NONE, _NONE, 0, run.manifest.masked,
      run.manifest.environment,
    )  # fmt: skip
    on_step("rows landed")
  else:
    made = _update(session, batch, progress, on_step)
  after = digest(made.state)
  manifest = Manifest(
    number=run.manifest.number + 1,
    digest=after,
    stores=made.stores,
    environment=made.made_on,
    requests=[name for name, _ in batch],
    report={
      "before": run.manifest.digest,
      "after": after,
      "adapters": made.trained,
      "masked": made.masked,
      "samples": len(made.state.ids),
      "seconds": round(time.perf_counter() - start, 4),
      "lost": len(made.lost),
      "forgotten": tombstones.mark(session.key, made.left),
      "relearned": _relearned(session, made.joined),
      "retained": tombstones.seal(session.key, made.state.ids),
      "key": tombstones.key_name(session.key),
    },
    head=session.entries[-1]["hash"],
    masked=made.masked,
    records=run_lib.records(run._replace(manifest=_with_stores(run, made.stores))),
  )
  checkpoint.save(run.layout.checkpoints, made.state, manifest, on_step)
  on_step("checkpoint saved")
  fresh = run._replace(state=made.state, manifest=manifest)
  return session._replace(run=fresh, samples=made.samples, left=made.left)


def _update(
  session: Session, batch: Batch, progress: Progress | None, on_step: OnStep
) -> _Outcome:
  """Forgets and learns the samples that the requests of a batch name."""
  run, state, samples = session.run, session.run.state, session.samples
  stores, new = list(run.manifest.stores), []
  for name, request in batch:
    if request.kind == "learn":
      try:
        part = checking.new_rows(session, request, stores)
      except (errors.StoreError, OSError) as e:
        raise _StoreInTheWayError(name, e) from e
      stores = _land(run, name, request, stores)
      new.append(part)
  on_step("rows landed")
  wanted = np.intersect1d(admission.ids_of(batch, "unlearn"), state.ids)
  lost = _NONE
  if samples is None:
    lost = np.setdiff1d(run_lib.lost_rows(run.source, state.ids), wanted)
    samples = run_lib.checked_table(run, np.setdiff1d(state.ids, [*wanted, *lost]))
  left = np.union1d(wanted, lost)
  if len(left):
    checking.check_enough(run, len(state.ids) - len(left))
  for part in new:
    samples = samples_lib.append(samples, part)
  joined = np.concatenate([_NONE, *(part.ids for part in new)])
  state, info = _train(run, samples, left, joined, batch, progress)
  on_step("trained")
  return _Outcome(
    state=state,
    samples=_without(samples, left),
    stores=stores,
    left=left,
    joined=joined,
    lost=lost,
    trained=info.adapters_retrained,
    masked=info.adapters_masked,
    made_on=environment() if info.adapters_retrained else run.manifest.environment,
  )


def _without(samples: Samples, left: Ids) -> Samples:
  """The table without the rows of `left`; some of them may be gone already."""
  rows = np.minimum(np.searchsorted(samples.ids, left), len(samples.ids) - 1)
  return samples_lib.drop(samples, left[samples.ids[rows] == left])


def refit(
  run: Run, samples: Samples, progress: Progress | None = None
) -> tuple[LegoState, Info]:
  """A fresh fit on all of `samples`, with the run's settings and keys."""
  if run.cfg.key_policy != "given":
    return requests.fit(run.cfg, samples, progress=progress)
  return advance(empty(run), samples, _NONE, samples.ids, progress)


def empty(run: Run) -> LegoState:
  """The run before it has learned anything."""
  keys = layout_lib.read_keys(run.layout, run.cfg)
  return untrained(run.cfg, run.state.net.keys.shape[1], keys)


def _train(
  run: Run,
  samples: Samples,
  left: Ids,
  joined: Ids,
  batch: Batch,
  progress: Progress | None,
) -> tuple[LegoState, Info]:
  """The new state; another environment trains all adapters, to mix no bits."""
  unlearns = all(request.kind == "unlearn" for _, request in batch)
  defer = unlearns and all(request.defer for _, request in batch)
  limits = [r.defer_over for _, r in batch if r.defer_over >= 0]
  update = (run.state, samples, left, joined, progress)
  if unlearns and limits and not defer:
    state, info = requests.update(*update, defer=True)
    if info.adapters_masked > min(limits):
      return state, info
  if defer or not run_lib.foreign(run):
    return requests.update(*update, defer=defer)
  ids = np.union1d(np.setdiff1d(run.state.ids, left), joined)
  return refit(run, samples_lib.select(samples, ids), progress)


def _relearned(session: Session, joined: Ids) -> list[str]:
  marks = tombstones.all_marks(session.entries)
  back = tombstones.find_marked(session.key, marks, joined)
  return tombstones.mark(session.key, joined[back])


def _with_stores(run: Run, stores: list[str]) -> Manifest:
  return run.manifest._replace(stores=stores)


def _land(run: Run, name: str, request: Request, stores: list[str]) -> list[str]:
  """The run's stores, including the one with the rows of a `learn` request."""
  if request.encodings is None or request.labels is None:
    new = request.store
    return stores if not new or new in stores else [*stores, new]
  rows = store_rows.StoreRows(
    np.asarray(request.encodings),
    np.asarray(request.labels),
    request.ids,
    np.full(len(request.ids), dataset_lib.TRAIN, np.uint8),
  )
  sources = [request.source] if request.source else []
  _land_rows(run, name, rows, sources)
  return [*stores, f"learned/{name}"]


def _merge_stores(run: Run, name: str) -> list[str]:
  """Merges the run's rows in the stores that it owns into one store; all stores."""
  own = [s for s in run.manifest.stores if not pathlib.Path(s).is_absolute()]
  others = [s for s in run.manifest.stores if s not in own]
  paths = [rows_lib.resolve(run.layout.root, s) for s in own]
  parts = [store_rows.read(path, run.state.ids) for path in paths]
  parts = [part for part in parts if len(part.ids)]
  if not parts:
    return others
  named = [store_read.open_store(path).meta.get("sources", ()) for path in paths]
  sources = list(dict.fromkeys(itertools.chain(*named)))
  _land_rows(run, name, store_rows.merge(parts), sources)
  return [*others, f"learned/{name}"]


def _land_rows(
  run: Run, name: str, rows: store_rows.StoreRows, sources: list[str]
) -> None:
  """Writes rows to a store of the run's own."""
  place = run.layout.learned / name
  store_rows.land(place, rows, run.cfg.encoder, run.classes, sources)
