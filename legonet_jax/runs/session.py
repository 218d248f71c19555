"""A run under its lock, in memory, while requests are carried out."""

import pathlib
from typing import NamedTuple

from legonet_jax.core.ids import Ids
from legonet_jax.core.samples import Samples
from legonet_jax.io import durable
from legonet_jax.io.files import PathLike
from legonet_jax.runs import (
  checkpoint,
  journal,
  layout as layout_lib,
  requests as requests_lib,
  run as run_lib,
  tombstones,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.runs.run import Run
from legonet_jax.runtime.callbacks import OnStep, no_step


class Session(NamedTuple):
  """A run whose lock we hold.

  Attributes:
    run: the run.
    samples: its samples; None until they are needed.
    entries: its journal; grows as entries are written.
    key: tells which samples the run has forgotten (see `tombstones`).
    left: [m] ids that the last batch removed from the state, whose rows are to be
      erased; None if another process carried out that batch.
    notes: messages for the user about requests other than their own.
    held: names of requests that have to wait.
  """

  run: Run
  samples: Samples | None
  entries: list[journal.Entry]
  key: bytes
  left: Ids | None
  notes: list[str]
  held: set[str]


def open_session(path: PathLike, on_step: OnStep = no_step) -> Session:
  """Opens a run whose lock the caller holds, and removes leftovers of a crash."""
  path = pathlib.Path(path)
  layout = Layout(path)
  layout_lib.read_settings(layout)
  entries = journal.read(layout.journal)
  journal.mend(layout.journal)  # only after `read`: a damaged journal is not touched
  key = tombstones.open_key(layout.forgotten_key, entries)
  run = run_lib.load(path)
  _, settled = journal.of_requests(entries)
  if layout.requests.is_dir() and any(layout.requests.iterdir()):
    # A killed process may not have synced its writes. A request or a journal line that
    # we act on must not vanish afterwards.
    durable.sync_file(layout.journal)
    durable.sync_folder(layout.requests)
  requests_lib.clean(layout, settled)
  remove_temporaries(layout)
  for number in checkpoint.numbers(layout.checkpoints):
    if number > run.manifest.number:  # damaged; its requests will be done again
      durable.shred_tree(checkpoint.path_of(layout.checkpoints, number))
  on_step("opened")
  return Session(run, None, entries, key, None, [], set())


def remove_temporaries(layout: Layout) -> None:
  """Shreds half-written files of killed processes; the caller holds the run's lock."""
  if not layout_lib.temporaries(layout.root):
    return
  with requests_lib.hold_queue(layout):  # nobody else is writing these files now
    for stale in layout_lib.temporaries(layout.root):
      durable.shred(stale)
      durable.sync_folder(stale.parent)


def newest(session: Session) -> Session:
  """The session with the newest checkpoint, which a failed attempt may have saved.

  An older checkpoint would repeat requests whose rows and files are already gone.
  """
  run = session.run
  if checkpoint.numbers(run.layout.checkpoints)[:1] == [run.manifest.number]:
    return session
  run = run_lib.load(run.layout.root)
  return session._replace(run=run, samples=None, left=None)
