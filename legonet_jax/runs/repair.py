"""Makes a damaged checkpoint again: a state is a function of settings and samples.

The journal has the digest of the lost state, which proves that the new one is equal. It
also has a seal of the set of samples, so that repair never trains on a sample that the
run has forgotten or never learned.
"""

import pathlib
from typing import Any, NamedTuple

import numpy as np

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig, is_portable
from legonet_jax.core.ids import Ids
from legonet_jax.data import dataset as dataset_lib
from legonet_jax.host import requests
from legonet_jax.host.digest import digest
from legonet_jax.io import lock
from legonet_jax.io.files import PathLike
from legonet_jax.runs import (
  checkpoint,
  finishing,
  journal,
  layout as layout_lib,
  rows as rows_lib,
  run as run_lib,
  tombstones,
)
from legonet_jax.runs.checkpoint import Manifest
from legonet_jax.runs.layout import Layout
from legonet_jax.runs.run import Run
from legonet_jax.runs.session import Session
from legonet_jax.runtime.callbacks import OnStep, Progress, no_step
from legonet_jax.runtime.environment import differences, environment
from legonet_jax.store import erase, rows as store_rows


class Lost(NamedTuple):
  """The lost state: its samples and stores, and its manifest if that is readable."""

  ids: Ids
  stores: list[str]
  manifest: Manifest | None
  midway: bool


def repair(
  path: PathLike, progress: Progress | None = None, on_step: OnStep = no_step
) -> tuple[Run, bool]:
  """Fits the run again on its retained samples if no checkpoint can be read.

  It can be killed at any moment and started again; the old checkpoint stays until the
  new one is on disk.

  Returns:
    The run, and whether the journal's digest proves that nothing was lost. There is no
    proof if adapters were masked, on another environment, or if another run has erased
    rows meanwhile, which this run then forgets as well.

  Raises:
    RunError: if the run is sound, or the lost state cannot be made from what is left.
  """
  path = pathlib.Path(path)
  layout = Layout(path)
  settings = layout_lib.read_settings(layout)
  with lock.hold(path):
    entries = journal.read(layout.journal)
    journal.mend(layout.journal)
    key, renewed = tombstones.renew_key(layout.forgotten_key, entries)
    try:
      run = run_lib.load(path)
    except errors.OldRunError:
      raise
    except errors.RunError:
      pass
    else:
      if renewed:
        return _record_key(run, entries, key), True
      if was_killed(run, entries):
        finishing.finish(Session(run, None, entries, key, None, [], set()), on_step)
        return run, bool(run.manifest.report["repair"]["proved"])
      raise errors.RunError(f"{path} is sound; there is nothing to repair")
    lost = find_lost(layout, settings, entries, key)
    return make_again(layout, settings, entries, key, lost, progress, on_step)


def was_killed(run: Run, entries: list[journal.Entry]) -> bool:
  """Whether an earlier repair saved its checkpoint and was killed before its end."""
  missing = finishing.missing_entries(run, entries)
  return run.manifest.event == "repaired" and bool(missing)


def make_again(
  layout: Layout,
  settings: layout_lib.RunSettings,
  entries: list[journal.Entry],
  key: bytes,
  lost: Lost,
  progress: Progress | None,
  on_step: OnStep,
  migrated: str = "",
) -> tuple[Run, bool]:
  """Fits a run again on the samples of the lost state, and saves and records it.

  Args:
    layout: the run's folder; the caller holds its lock.
    settings: the run's settings.
    entries: its journal.
    key: its key of forgotten ids.
    lost: the state to make again.
    progress: called with (samples passed, samples in all).
    on_step: called with the name of each step when it is done.
    migrated: the version of the lost state, if that was proved to be what the journal
      ends in, but defines its numbers otherwise.

  Returns:
    The run, and whether it is proved that nothing was lost.
  """
  path, cfg = layout.root, settings.cfg
  source = rows_lib.Source(path, lost.stores, settings.classes)
  erased = run_lib.lost_rows(source, lost.ids)
  samples = rows_lib.table(cfg, source, np.setdiff1d(lost.ids, erased))
  keys = layout_lib.read_keys(layout, cfg)
  state, _ = requests.fit(cfg, samples, keys, progress)
  on_step("trained")
  claimed, masked = claims_of(lost, entries)
  proved = bool(migrated) or digest(state) == claimed
  if not (proved or masked or _is_elsewhere(cfg, lost) or len(erased)):
    raise errors.RunError(
      f"what is left in {', '.join(lost.stores)} does not give the state that the"
      " journal ends in; restore the run from a copy"
    )
  values: dict[str, Any] = {"proved": proved, "samples": len(state.ids)}
  values |= {"retained": tombstones.seal(key, state.ids), "lost": len(erased)}
  values |= {"forgotten": tombstones.mark(key, erased)}
  values |= {"key": tombstones.key_name(key)}
  if migrated:
    values["migrated"] = migrated
  if not lost.midway:
    values |= {"before": claimed, "after": digest(state)}
  before = lost.manifest if lost.midway else None
  manifest = Manifest(
    number=checkpoint.numbers(layout.checkpoints)[0] + 1,
    digest=digest(state),
    stores=lost.stores,
    environment=environment(),
    requests=before.requests if before else [],
    report={
      **(before.report if before else {}),
      **({"after": digest(state)} if before else {}),
      "repair": values,
    },
    head=entries[-1]["hash"],
    masked=0,
    event="repaired",
    records={s: erase.record(rows_lib.resolve(path, s)) for s in lost.stores},
  )
  checkpoint.save(layout.checkpoints, state, manifest, on_step)
  on_step("checkpoint saved")
  run = Run(layout, cfg, state, manifest, settings.classes)
  finishing.finish(Session(run, None, entries, key, None, [], set()), on_step)
  return run, proved


def _is_elsewhere(cfg: LegoConfig, lost: Lost) -> bool:
  """Whether the lost state may differ because it was trained elsewhere."""
  if lost.manifest is None or is_portable(cfg):
    return False
  return bool(differences(lost.manifest.environment))


def _record_key(run: Run, entries: list[journal.Entry], key: bytes) -> Run:
  """Records in the journal that the run has a new `forgotten.key`."""
  values = {
    "proved": True,
    "samples": len(run.state.ids),
    "key": tombstones.key_name(key),
    "retained": tombstones.seal(key, run.state.ids),
  }
  journal.append(run.layout.journal, entries, "repaired", values)
  return run


def find_lost(
  layout: Layout,
  settings: layout_lib.RunSettings,
  entries: list[journal.Entry],
  key: bytes,
) -> Lost:
  """The samples of the lost state, proved by the journal's seal if there is one."""
  numbers = checkpoint.numbers(layout.checkpoints)
  if not numbers:
    raise errors.RunError(f"{layout.root} has no checkpoint left; fit a new run")
  damaged = [checkpoint.path_of(layout.checkpoints, number) for number in numbers]
  manifest = _manifest(damaged[0])
  stores = manifest.stores if manifest else _all_stores(layout, settings, entries)
  _, settled = journal.of_requests(entries)
  midway = manifest is not None and not settled.issuperset(manifest.requests)
  report = manifest.report if manifest is not None and midway else {}
  wanted = {
    "retained": report.get("retained") or journal.latest(entries, "retained"),
    "samples": report.get("samples") or journal.latest(entries, "samples"),
  }
  marks = tombstones.all_marks(entries, report.get("forgotten", ()))
  lists = [checkpoint.read_retained(path) for path in damaged]
  source = rows_lib.Source(layout.root, stores, settings.classes)
  lists.append(_training_ids(source, key, marks))
  for ids in lists:
    if ids is None or len(ids) != wanted["samples"]:
      continue
    # A seal made with a lost key proves nothing; then only the digest can.
    seal = wanted["retained"] if tombstones.is_current(key, entries) else None
    proved = seal is None or tombstones.seal(key, ids) == seal
    if proved and not tombstones.find_marked(key, marks, ids).any():
      return Lost(ids, stores, manifest, midway)
  raise errors.RunError(
    f"nothing in {layout.root} names just the {wanted['samples']} samples that the"
    " journal says the model holds, so it does not give the state that the journal ends"
    " in; restore the run from a copy"
  )


def _training_ids(
  source: rows_lib.Source, key: bytes, marks: tombstones.Marks
) -> Ids | None:
  """The ids of all training rows in the stores, without forgotten ones."""
  try:
    parts = [store_rows.read(rows_lib.resolve(source.root, s)) for s in source.stores]
  except (errors.LegoError, OSError):
    return None
  found = [part.ids[part.split == dataset_lib.TRAIN] for part in parts]
  ids = np.concatenate([np.zeros(0, np.int64), *found])
  return ids[~tombstones.find_marked(key, marks, ids)]


def _manifest(path: pathlib.Path) -> Manifest | None:
  try:
    return checkpoint.read_manifest(path)
  except errors.RunError:
    return None


def _all_stores(
  layout: Layout, settings: layout_lib.RunSettings, entries: list[journal.Entry]
) -> list[str]:
  """The run's stores by its journal, or by its folder if the journal is too old."""
  known = journal.records(entries)
  if known is not None:
    return list(known)
  own = layout.learned.iterdir() if layout.learned.is_dir() else ()
  return [*settings.stores, *sorted(f"learned/{path.name}" for path in own)]


def claims_of(lost: Lost, entries: list[journal.Entry]) -> tuple[str, bool]:
  """The digest of the lost state, and whether it had masked adapters."""
  if lost.manifest is not None and lost.midway:
    return lost.manifest.digest, lost.manifest.masked > 0
  last = [e for e in entries if "after" in e][-1]
  return last["after"], bool(last.get("masked", 0))
