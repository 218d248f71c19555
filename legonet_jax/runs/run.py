"""A run: opening it, and making a new one.

`load` only reads: it gives the last good state of a run, whatever else is going on.
"""

from collections.abc import Iterator
import contextlib
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import requests, samples as samples_lib
from legonet_jax.core.config import LegoConfig, describe, fingerprint
from legonet_jax.core.digest import digest
from legonet_jax.core.ids import Ids
from legonet_jax.core.samples import Samples
from legonet_jax.core.state import LegoState
from legonet_jax.data import dataset as dataset_lib
from legonet_jax.io import durable, files, lock, untrusted
from legonet_jax.runs import (
  checkpoint,
  journal,
  layout as layout_lib,
  rows as rows_lib,
  tombstones,
)
from legonet_jax.runs.checkpoint import Manifest
from legonet_jax.runs.layout import Layout, RunSettings
from legonet_jax.runtime.callbacks import OnStep, Progress, no_step
from legonet_jax.runtime.environment import differences, environment
from legonet_jax.store import (
  erase,
  read as store_read,
  rows as store_rows,
)


class Run(NamedTuple):
  """A run in memory: settings, the state of one checkpoint, and what that says."""

  layout: Layout
  cfg: LegoConfig
  state: LegoState
  manifest: Manifest
  classes: store_read.Classes = None

  @property
  def source(self) -> rows_lib.Source:
    """Where its rows are."""
    return rows_lib.Source(self.layout.root, self.manifest.stores, self.classes)


class Session(NamedTuple):
  """A run under the lock.

  Attributes:
    run: the run.
    samples: its samples, once they are needed.
    entries: its journal; grows as entries are written.
    key: tells which samples the run has forgotten (see `tombstones`).
    left: [m] ids that the last batch took out of the state and whose rows are to be
      erased; None if that batch was another process's.
    notes: lines for people: what happened to requests besides the one they made.
    held: requests that cannot be carried out now, and wait.
  """

  run: Run
  samples: Samples | None
  entries: list[journal.Entry]
  key: bytes
  left: Ids | None
  notes: list[str]
  held: set[str]


def load(path: pathlib.Path) -> Run:
  """The last good state of the run in `path`; changes nothing and needs no lock.

  Raises:
    RunError: if there is no run, or its checkpoint is damaged.
  """
  layout = Layout(path)
  settings = layout_lib.read_settings(layout)
  cfg = settings.cfg
  while True:
    there = checkpoint.numbers(layout.checkpoints)
    try:
      state, manifest = _newest(layout, cfg, there)
      break
    except (errors.LegoError, OSError):
      # A process at work may have replaced the checkpoint while it was read.
      if checkpoint.numbers(layout.checkpoints) == there:
        raise
  if not np.array_equal(state.settings, fingerprint(cfg)):
    raise errors.RunError(
      f"{layout.settings} and the checkpoint are of different settings; restore"
      " run.json from a copy"
    )
  for store in manifest.stores:
    rows_lib.locate(path, store)
  return Run(layout, cfg, state, manifest, settings.classes)


def table(run: Run) -> Samples:
  """The run's retained samples, each of them what it was when it was learned.

  Raises:
    StoreError: if a row is gone or has changed.
  """
  return checked_table(run, run.state.ids)


def checked_table(run: Run, ids: Ids) -> Samples:
  """The samples `ids` of the run's stores; those retained are as they were."""
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


def lost_rows(source: rows_lib.Source, ids: Ids, entries: list[journal.Entry]) -> Ids:
  """Those of the retained `ids` whose rows another run has erased from a shared store.

  Raises:
    StoreError: if rows are missing that nobody has erased.
  """
  gone = rows_lib.lost(source, ids)
  if not len(gone):
    return gone
  before = journal.latest(entries, "stores") or {}
  erased = 0
  for store in source.stores:
    now = erase.record(rows_lib.resolve(source.root, store))
    erased += now["erased"] - int(before.get(store, {}).get("erased", 0))
  if erased < len(gone):
    raise errors.StoreError(
      f"{len(gone)} of {len(ids)} retained samples are no longer in"
      f" {', '.join(source.stores)}, and only {max(erased, 0)} rows were erased there"
      " since; restore the stores from a copy"
    )
  return gone


def records(run: Run) -> dict[str, erase.PlainRecord]:
  """The run's stores as they are now."""
  root = run.layout.root
  return {s: erase.record(rows_lib.resolve(root, s)) for s in run.manifest.stores}


def foreign(run: Run) -> dict[str, tuple[str, str]]:
  """In what this environment differs from the run's: name -> (there, here)."""
  return differences(run.manifest.environment)


def create(
  path: pathlib.Path,
  cfg: LegoConfig,
  store: pathlib.Path,
  ids: Ids | None = None,
  keys: NDArray[Any] | None = None,
  progress: Progress | None = None,
  on_step: OnStep = no_step,
) -> Run:
  """Fits a new run on a store, or goes on with a fit that was interrupted.

  Args:
    path: the run's folder, new or empty.
    cfg: the settings.
    store: the encoding store; from now on one of the run's, which erases rows in it.
    ids: which samples; all of the split `train` if not given.
    keys: K [n, d], always and only under the policy `given`.
    progress: called with (samples passed, samples in all).
    on_step: told the name of each step when it is done.
  """
  layout_lib.check_config(cfg)
  layout = Layout(path)
  if layout.journal.exists():
    raise errors.RunError(f"{path} is a run already; give another folder")
  if not layout_lib.may_begin(path):
    raise errors.RunError(f"{path} is in use for something else; give an empty folder")
  place = str(store.resolve())
  if store.resolve() in path.resolve().parents:
    raise errors.RunError(f"{path} is inside of the store; give a folder elsewhere")
  samples = _first_samples(cfg, store, ids)
  classes = store_read.classes_of(store)
  if classes is not None and len(classes) != cfg.num_classes:
    raise errors.ConfigError(
      f"num_classes is {cfg.num_classes}, but {store} names {len(classes)} classes; use"
      " their number"
    )
  begun = path.exists() and any(path.iterdir())
  with files.folders_for(path), _locked(path):
    if layout.journal.exists():  # another process was quicker
      raise errors.RunError(f"{path} is a run already; give another folder")
    durable.require_plain(path)
    for stale in layout_lib.temporaries(path):
      durable.shred(stale)
    key = tombstones.make_key(layout.forgotten_key)
    layout_lib.write_settings(layout, RunSettings(cfg, [place], classes), keys)
    on_step("settings written")
    try:
      state, info = requests.fit(cfg, samples, keys, progress)
    except (errors.LegoError, MemoryError):
      if not begun:  # these settings cannot work: nothing is left of them
        for file in (layout.settings, layout.keys, layout.forgotten_key):
          durable.shred(file)
        (path / lock.WORK).unlink()
      raise
    on_step("trained")
    manifest = Manifest(
      number=0,
      digest=digest(state),
      stores=[place],
      environment=environment(),
      requests=[],
      report={},
      head="",
      masked=0,
      event="created",
      records={place: erase.record(store)},
    )
    run = Run(layout, cfg, state, manifest, classes)
    checkpoint.save(layout.checkpoints, state, manifest, on_step)
    on_step("checkpoint saved")
    journal.append(
      layout.journal,
      [],
      "created",
      {
        "config": describe(cfg),
        "environment": manifest.environment,
        "samples": len(state.ids),
        "adapters": info.adapters_retrained,
        "after": manifest.digest,
        "seconds": round(info.seconds, 4),
        "format": journal.FORMAT,
        "files": fixed_files(layout, cfg),
        "classes": None if classes is None else list(classes),
        "stores": manifest.records,
        "checkpoint": manifest.number,
        "key": tombstones.key_name(key),
        "retained": tombstones.seal(key, state.ids),
      },
    )
    on_step("created")
  return run


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
  """Makes the folder of a run and holds its lock."""
  durable.make_folder(path)
  with lock.hold(path):
    yield


def fixed_files(layout: Layout, cfg: LegoConfig) -> dict[str, str]:
  """The sha256 of the files that never change, by name."""
  paths = [layout.settings, *([layout.keys] if cfg.key_policy == "given" else [])]
  return {path.name: untrusted.sha256_of(path) for path in paths}


def _first_samples(cfg: LegoConfig, path: pathlib.Path, ids: Ids | None) -> Samples:
  store_read.open_store(path, verify=True)
  rows = store_rows.read(path)
  chosen = rows.split == dataset_lib.TRAIN
  if ids is not None:
    chosen = np.isin(rows.ids, samples_lib.check_ids(ids))
    unknown = np.setdiff1d(ids, rows.ids)
    if len(unknown):
      raise errors.UnknownIdError(f"{path} holds no sample with id {unknown[0]}")
  if not chosen.any():
    raise errors.StoreError(f"{path} has no training samples; check its split")
  columns = (rows.encodings[chosen], rows.labels[chosen], rows.ids[chosen])
  return samples_lib.make_samples(cfg, *columns)


def _newest(
  layout: Layout, cfg: LegoConfig, there: list[int]
) -> tuple[LegoState, Manifest]:
  """The newest checkpoint that is whole; the error of the newest if none is."""
  first = None
  for number in there:
    try:
      return checkpoint.load(checkpoint.path_of(layout.checkpoints, number), cfg)
    except errors.RunError as e:
      first = first or e
  raise first or errors.RunError(
    f"{layout.checkpoints} holds no checkpoint; restore the run from a copy"
  )
