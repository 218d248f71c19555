"""Which rows must go, and that they go: what makes a request to forget complete.

A request is complete when no store of the run holds a row of a sample that left the
state. The process that took them out knows which they are. After a crash, or where
somebody has put back an older copy of a store, they are found by comparing: every row
that the state does not hold is looked up among the marks (see `tombstones`). The
request file, which may be damaged by then, is never asked.
"""

from collections.abc import Callable
import functools

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core.ids import Ids
from legonet_jax.runs import checkpoint, journal, rows as rows_lib, tombstones
from legonet_jax.runs.run import Run, Session
from legonet_jax.runtime.callbacks import OnStep
from legonet_jax.store import erase


def erase_rows(session: Session, on_step: OnStep) -> None:
  """Erases every row of a forgotten sample that any of the run's stores still has."""
  run, left = session.run, session.left
  known = journal.latest(session.entries, "stores") or {}
  for store in run.manifest.stores:
    path = rows_lib.resolve(run.layout.root, store)
    if left is not None and (not known or erase.record(path) == known.get(store)):
      if len(left):
        erase.erase(path, functools.partial(np.isin, test_elements=left), on_step)
    else:
      erase.erase(path, _find_forgotten(session), on_step, again=True)
  on_step("erased")


def _find_forgotten(session: Session) -> Callable[[Ids], NDArray[np.bool_]]:
  """Says which ids [m] of a store are of samples that were forgotten."""
  run = session.run
  more = run.manifest.report.get("forgotten", ())
  marks = tombstones.all_marks(session.entries, more)

  def choose(ids: Ids) -> NDArray[np.bool_]:
    chosen = ~np.isin(ids, run.state.ids)
    chosen[chosen] = tombstones.find_marked(session.key, marks, ids[chosen])
    return chosen

  return choose


def with_current_key(session: Session) -> Session:
  """Marks what the checkpoint has forgotten anew, if the key was lost meanwhile.

  Then only the checkpoint before it tells what that was.
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
  """What the checkpoint before this one held; it stays until all rows are erased."""
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
    f"{layout.forgotten_key} was lost while a request was carried out, and nothing else"
    " tells which rows to erase; restore it from a copy"
  )
