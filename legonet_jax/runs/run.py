"""A run: opening it, and making a new one.

`load` only reads: it gives the last good state of a run, whatever else is going on.
"""

import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors, samples as samples_lib, unlearning
from legonet_jax.config import LegoConfig, describe, fingerprint
from legonet_jax.digests import digest, environment
from legonet_jax.encoder import store as store_lib
from legonet_jax.ids import Ids
from legonet_jax.runs import (
  checkpoint,
  durable,
  journal,
  layout as layout_lib,
  lock,
  rows as rows_lib,
)
from legonet_jax.runs.checkpoint import Manifest
from legonet_jax.runs.erasure import OnStep
from legonet_jax.runs.layout import Layout
from legonet_jax.samples import Samples
from legonet_jax.state import LegoState
from legonet_jax.task import Progress


class Run(NamedTuple):
  """A run in memory: settings, the state of one checkpoint, and what that says."""

  layout: Layout
  cfg: LegoConfig
  state: LegoState
  manifest: Manifest


class Session(NamedTuple):
  """A run under the lock: with its journal, and its samples once they are needed."""

  run: Run
  samples: Samples | None
  entries: list[journal.Entry]


def no_step(_: str) -> None:
  """For callers who do not follow the steps."""


def load(path: pathlib.Path) -> Run:
  """The last good state of the run in `path`; changes nothing and needs no lock.

  Raises:
    RunError: if there is no run, or its checkpoint is damaged.
  """
  layout = Layout(path)
  cfg, _ = layout_lib.read_settings(layout)
  while True:
    there = checkpoint.numbers(layout.checkpoints)
    try:
      state, manifest = _newest(layout, there)
      break
    except (errors.RunError, OSError):
      # A process at work may have replaced the checkpoint while it was read.
      if checkpoint.numbers(layout.checkpoints) == there:
        raise
  if not np.array_equal(state.settings, fingerprint(cfg)):
    raise errors.RunError(
      f"{layout.settings} and the checkpoint are of different settings; restore"
      " run.json from a copy"
    )
  return Run(layout, cfg, state, manifest)


def table(run: Run) -> Samples:
  """The run's retained samples, each of them what it was when it was learned.

  Raises:
    StoreError: if a row is gone or has changed.
  """
  return checked_table(run, run.state.ids)


def checked_table(run: Run, ids: Ids) -> Samples:
  """The samples `ids` of the run's stores; those retained are as they were."""
  samples = rows_lib.table(run.cfg, run.layout.root, run.manifest.stores, ids)
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


def foreign(run: Run) -> dict[str, tuple[str, str]]:
  """In what this environment differs from the run's: name -> (there, here)."""
  here = {k: v for k, v in environment().items() if k != "python"}
  there = run.manifest.environment
  return {k: (there.get(k, ""), v) for k, v in here.items() if there.get(k) != v}


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
  if path.exists() and (
    not path.is_dir() or (any(path.iterdir()) and not (path / "lock").exists())
  ):
    raise errors.RunError(f"{path} is in use for something else; give an empty folder")
  samples = _first_samples(cfg, store, ids)
  durable.make_folder(path)
  stores = [str(store.resolve())]
  with lock.hold(path):
    if layout.journal.exists():  # another process was quicker
      raise errors.RunError(f"{path} is a run already; give another folder")
    layout_lib.write_settings(layout, cfg, stores, keys)
    on_step("settings written")
    state, info = unlearning.fit(cfg, samples, keys, progress)
    on_step("trained")
    manifest = Manifest(
      number=0,
      digest=digest(state),
      stores=stores,
      environment=environment(),
      requests=[],
      report={},
      head="",
      masked=0,
    )
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
      },
    )
    on_step("created")
  return Run(layout, cfg, state, manifest)


def _first_samples(cfg: LegoConfig, path: pathlib.Path, ids: Ids | None) -> Samples:
  store = store_lib.open_store(path, verify=True)
  rows = rows_lib.read(path)
  chosen = rows.split == rows_lib.TRAIN
  if ids is not None:
    chosen = np.isin(rows.ids, samples_lib.check_ids(ids))
    unknown = np.setdiff1d(ids, rows.ids)
    if len(unknown):
      raise errors.UnknownIdError(f"{path} holds no sample with id {unknown[0]}")
  del store
  if not chosen.any():
    raise errors.StoreError(f"{path} has no training samples; check its split")
  columns = (rows.encodings[chosen], rows.labels[chosen], rows.ids[chosen])
  return samples_lib.make_samples(cfg, *columns)


def _newest(layout: Layout, there: list[int]) -> tuple[LegoState, Manifest]:
  """The newest checkpoint that is whole; the error of the newest if none is."""
  first = None
  for number in there:
    try:
      return checkpoint.load(checkpoint.path_of(layout.checkpoints, number))
    except errors.RunError as e:
      first = first or e
  raise first or errors.RunError(f"{layout.checkpoints} holds no checkpoint")
