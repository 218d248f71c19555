"""A run in memory, and how it is loaded from its folder.

`load` only reads: it gives the last good state, even while another process works on the
run.
"""

import pathlib
from typing import NamedTuple

import numpy as np

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig, is_portable
from legonet_jax.core.ids import Ids
from legonet_jax.core.samples import Samples
from legonet_jax.host.state import LegoState
from legonet_jax.io.files import PathLike
from legonet_jax.runs import (
  checkpoint,
  layout as layout_lib,
  rows as rows_lib,
)
from legonet_jax.runs.checkpoint import Manifest
from legonet_jax.runs.layout import Layout
from legonet_jax.runtime.environment import differences
from legonet_jax.store import erase, marks, read as store_read


class Run(NamedTuple):
  """A run in memory: settings, and the state and manifest of one checkpoint."""

  layout: Layout
  cfg: LegoConfig
  state: LegoState
  manifest: Manifest
  classes: store_read.Classes = None

  @property
  def source(self) -> rows_lib.Source:
    """The stores that hold its rows."""
    return rows_lib.Source(self.layout.root, self.manifest.stores, self.classes)


def load(path: PathLike) -> Run:
  """The last good state of the run in `path`; changes nothing and needs no lock.

  Raises:
    RunError: if there is no run, or its checkpoint is damaged.
  """
  path = pathlib.Path(path)
  layout = Layout(path)
  settings = layout_lib.read_settings(layout)
  cfg = settings.cfg
  while True:
    there = checkpoint.numbers(layout.checkpoints)
    try:
      state, manifest = _newest(layout, cfg, there)
      break
    except (errors.LegoError, OSError):
      # Another process may have replaced the checkpoint while it was read.
      if checkpoint.numbers(layout.checkpoints) == there:
        raise
  for store in manifest.stores:
    rows_lib.locate(path, store)
  return Run(layout, cfg, state, manifest, settings.classes)


def table(run: Run) -> Samples:
  """The run's retained samples, each checked to be unchanged since it was learned.

  Raises:
    StoreError: if a row is gone or has changed.
  """
  return checked_table(run, run.state.ids)


def checked_table(run: Run, ids: Ids) -> Samples:
  """The samples `ids` of the run's stores; StoreError if a retained one has changed."""
  try:
    samples = rows_lib.table(run.cfg, run.source, ids)
  except (errors.SampleError, errors.DuplicateIdError) as e:
    raise errors.StoreError(
      f"a store of the run has changed ({e}); restore it from a copy"
    ) from None
  order = np.argsort(run.state.ids)
  kept = run.state.ids[order]
  common, at, there = np.intersect1d(
    kept, samples.ids, assume_unique=True, return_indices=True
  )
  same = run.state.prints[order][at] == samples.prints[there]
  if not same.all():
    raise errors.StoreError(
      f"{int((~same.all(axis=1)).sum())} of {len(common)} retained samples have other"
      " encodings or labels in the store than when they were learned; restore the store"
      " from a copy"
    )
  return samples


def lost_rows(source: rows_lib.Source, ids: Ids) -> Ids:
  """The retained `ids` whose rows another run has erased from a shared store.

  Raises:
    StoreError: if rows are missing that were not erased.
  """
  gone = rows_lib.lost(source, ids)
  if not len(gone):
    return gone
  erased, unmarked = np.zeros(len(gone), bool), 0
  for store in source.stores:
    path = rows_lib.resolve(source.root, store)
    erased |= marks.find_erased(path, gone)
    # Up to version 0.3 stores had no marks.
    meta = store_read.open_store(path).meta
    unmarked += marks.count_unmarked(path, int(meta.get("erased", 0)))
  if int((~erased).sum()) > unmarked:
    raise errors.StoreError(
      f"{len(gone)} of {len(ids)} retained samples are no longer in"
      f" {', '.join(source.stores)}, and only {int(erased.sum()) + unmarked} of them"
      " were erased there; restore the stores from a copy"
    )
  return gone


def records(run: Run) -> dict[str, erase.PlainRecord]:
  """By store, its sums, rows and erased rows as they are now."""
  root = run.layout.root
  return {s: erase.record(rows_lib.resolve(root, s)) for s in run.manifest.stores}


def foreign(run: Run) -> dict[str, tuple[str, str]]:
  """How this environment differs from the run's: name -> (the run's, this one's).

  Nothing differs for a portable solver, whose bits are the same everywhere.
  """
  return {} if is_portable(run.cfg) else differences(run.manifest.environment)


def _newest(
  layout: Layout, cfg: LegoConfig, there: list[int]
) -> tuple[LegoState, Manifest]:
  """The newest intact checkpoint; if none is intact, raises the newest one's error."""
  first = None
  for number in there:
    try:
      return checkpoint.load(checkpoint.path_of(layout.checkpoints, number), cfg)
    except errors.RunError as e:
      first = first or e
  raise first or errors.RunError(
    f"{layout.checkpoints} holds no checkpoint; restore the run from a copy"
  )
