"""Making a run: settings, the first fit, its checkpoint, the journal's first entry."""

from collections.abc import Iterator
import contextlib
import pathlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import samples as samples_lib
from legonet_jax.core.config import LegoConfig, describe
from legonet_jax.core.ids import Ids
from legonet_jax.core.samples import Samples
from legonet_jax.data import dataset as dataset_lib
from legonet_jax.host import requests
from legonet_jax.host.digest import digest
from legonet_jax.io import durable, files, lock, untrusted
from legonet_jax.io.files import PathLike
from legonet_jax.runs import (
  checkpoint,
  journal,
  layout as layout_lib,
  tombstones,
)
from legonet_jax.runs.checkpoint import Manifest
from legonet_jax.runs.layout import Layout, RunSettings
from legonet_jax.runs.run import Run
from legonet_jax.runtime.callbacks import OnStep, Progress, no_step
from legonet_jax.runtime.environment import environment
from legonet_jax.store import (
  erase,
  read as store_read,
  rows as store_rows,
)


def create(
  path: PathLike,
  cfg: LegoConfig,
  store: PathLike,
  ids: Ids | None = None,
  keys: NDArray[Any] | None = None,
  progress: Progress | None = None,
  on_step: OnStep = no_step,
) -> Run:
  """Fits a new run on a store, or goes on with a fit that was interrupted.

  Args:
    path: the run's folder, new or empty.
    cfg: the settings.
    store: the encoding store; it becomes one of the run's, and requests erase rows.
    ids: which samples; the whole split `train` if not given.
    keys: K [n, d], required under the policy `given`, else None.
    progress: called with (samples passed, samples in all).
    on_step: called with the name of each step when it is done.
  """
  path = pathlib.Path(path)
  store = pathlib.Path(store)
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
    if layout.journal.exists():  # another process has just made the same run
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
      if not begun:  # these settings cannot work, so their files are removed
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


def fixed_files(layout: Layout, cfg: LegoConfig) -> dict[str, str]:
  """By name, the sha256 of each file that never changes."""
  paths = [layout.settings, *([layout.keys] if cfg.key_policy == "given" else [])]
  return {path.name: untrusted.sha256_of(path) for path in paths}


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
  """Makes the folder of a run and holds the run's lock."""
  durable.make_folder(path)
  with lock.hold(path):
    yield


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
