"""The steps after a checkpoint is saved: erase rows, delete files, write the journal.

A request is complete when no store of the run holds a row of a forgotten sample, no
older checkpoint exists, and the journal says so. Every step may be repeated. The
process that forgot the samples knows their ids. After a crash, or if somebody has put
back an older copy of a store, the rows are found by comparison: every row that the
state does not hold is looked up among the marks (see `tombstones`). The request file,
which may be damaged by then, is not used.
"""

from collections.abc import Callable
import functools
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core.ids import Ids
from legonet_jax.io import durable
from legonet_jax.runs import (
  checkpoint,
  journal,
  requests as requests_lib,
  rows as rows_lib,
  run as run_lib,
  tombstones,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.runs.run import Run
from legonet_jax.runs.session import Session
from legonet_jax.runtime.callbacks import OnStep, no_step
from legonet_jax.store import erase


def finish(session: Session, on_step: OnStep = no_step) -> Session:
  """Does all remaining steps for the requests in the checkpoint; may be repeated."""
  if not missing_entries(session.run, session.entries):
    return session
  if session.left is None:
    _sync(session.run.layout)
  session = with_current_key(session)
  erase_rows(session, on_step)
  run = session.run
  layout, manifest = run.layout, run.manifest
  _remove_statements(layout)
  checkpoint.remove_others(layout.checkpoints, manifest.number, on_step)
  _remove_stores(run)
  on_step("checkpoints deleted")
  requests_lib.remove(layout.requests, manifest.requests)
  on_step("requests removed")
  records = run_lib.records(run)
  for event, values in missing_entries(run, session.entries):
    stores = journal.changes(session.entries, records)
    now = {"checkpoint": manifest.number, **stores}
    journal.append(layout.journal, session.entries, event, {**values, **now})
    on_step(event)
  return session._replace(left=None)


def missing_entries(
  run: Run, entries: list[journal.Entry]
) -> list[tuple[str, dict[str, Any]]]:
  """Events and values about the run's checkpoint that the journal still lacks."""
  manifest = run.manifest
  missing = []
  if manifest.event == "repaired" and not any(
    e["event"] == "repaired" and e.get("checkpoint") == manifest.number for e in entries
  ):
    missing.append(("repaired", manifest.report["repair"]))
  _, settled = journal.of_requests(entries)
  pending = [name for name in manifest.requests if name not in settled]
  if pending:
    values = {k: v for k, v in manifest.report.items() if k != "repair"}
    missing.append(("complete", {"requests": pending, **values}))
  return missing


def erase_rows(session: Session, on_step: OnStep) -> None:
  """Erases every row of a forgotten sample from the run's stores."""
  run, left = session.run, session.left
  known = journal.records(session.entries) or {}
  for store in run.manifest.stores:
    path = rows_lib.resolve(run.layout.root, store)
    if left is not None and (not known or erase.record(path) == known.get(store)):
      if len(left):
        erase.erase(path, functools.partial(np.isin, test_elements=left), on_step)
    else:
      erase.erase(path, _find_forgotten(session), on_step, again=True)
  on_step("erased")


def _find_forgotten(session: Session) -> Callable[[Ids], NDArray[np.bool_]]:
  """A function that tells which ids [m] of a store were forgotten."""
  run = session.run
  more = run.manifest.report.get("forgotten", ())
  marks = tombstones.all_marks(session.entries, more)

  def choose(ids: Ids) -> NDArray[np.bool_]:
    chosen = ~np.isin(ids, run.state.ids)
    chosen[chosen] = tombstones.find_marked(session.key, marks, ids[chosen])
    return chosen

  return choose


def with_current_key(session: Session) -> Session:
  """Marks the checkpoint's forgotten ids with the new key, if the old one was lost.

  Then only the previous checkpoint still tells which ids these are.
  """
  run, key = session.run, session.key
  report, name = run.manifest.report, tombstones.key_name(key)
  if report.get("key", name) == name:
    return session
  left = np.zeros(0, np.int64)
  if report["forgotten"]:
    left = np.setdiff1d(_ids_before(run), run.state.ids)
  report = {
    **report,
    "key": name,
    "forgotten": tombstones.mark(key, left),
    "relearned": [],
    "retained": tombstones.seal(key, run.state.ids),
  }
  manifest = run.manifest._replace(report=report)
  return session._replace(run=run._replace(manifest=manifest))


def _ids_before(run: Run) -> Ids:
  """The ids of the previous checkpoint, which stays until all rows are erased."""
  layout = run.layout
  numbers = checkpoint.numbers(layout.checkpoints)
  older = [number for number in numbers if number < run.manifest.number]
  for number in older:
    ids = checkpoint.read_retained(checkpoint.path_of(layout.checkpoints, number))
    if ids is not None:
      return ids
  if not older:
    return run.state.ids
  raise errors.RunError(
    f"{layout.forgotten_key} was lost while a request was carried out, so nothing tells"
    " which rows to erase; restore it from a copy"
  )


def _remove_statements(layout: Layout) -> None:
  """Shreds statements about the previous state, durable when this returns."""
  there = [p for p in (layout.certificate, layout.head) if os.path.lexists(p)]
  for path in there:
    durable.shred(path)
  if there:
    durable.sync_folder(layout.root)


def _sync(layout: Layout) -> None:
  """Makes the files of a killed process or of a failed attempt durable.

  The steps that follow destroy data for good, so the new checkpoint must be on disk
  before them, not only in the system's memory.
  """
  durable.sync_tree(layout.checkpoints)
  for folder in (layout.root, layout.learned, layout.requests):
    if folder.is_dir():
      durable.sync_folder(folder)


def _remove_stores(run: Run) -> None:
  """Shreds the run's own stores that the checkpoint no longer names."""
  if run.layout.learned.is_dir():
    for path in sorted(run.layout.learned.iterdir()):
      if f"learned/{path.name}" not in run.manifest.stores:
        durable.shred_tree(path)
