"""Brings a run of an earlier version up to date, and proves what it did.

Version 2 of states defines every number of `Ridge` as an integer, and codes and ξ of
both solvers in a way that is the same on every machine (docs/portable.md). So a state
of version 1 cannot be converted: it is fitted again, on the same samples. What is
proved: the old checkpoint is intact, its digest is the one that the journal ends in,
its ids are those that the journal's seal names, and the stores are as recorded. The
journal gets an entry with both digests.
"""

import pathlib

import numpy as np

from legonet_jax import errors
from legonet_jax.host.digest import OLD_VERSION
from legonet_jax.io import lock
from legonet_jax.io.files import PathLike
from legonet_jax.runs import (
  checkpoint,
  finishing,
  inventory,
  journal,
  layout as layout_lib,
  repair,
  run as run_lib,
  tombstones,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.runs.run import Run
from legonet_jax.runs.session import Session
from legonet_jax.runtime.callbacks import OnStep, Progress, no_step


def _load(path: pathlib.Path) -> Run | None:
  """The run, or None if it is one of an earlier version."""
  try:
    return run_lib.load(path)
  except errors.OldRunError:
    return None


def migrate(
  path: PathLike, progress: Progress | None = None, on_step: OnStep = no_step
) -> Run:
  """Fits a run of an earlier version again, on the samples that it retains.

  It can be killed at any moment and started again; the old checkpoint stays until the
  new one is on disk. Adapters that waited for `heal` are trained.

  Raises:
    RunError: if the run is up to date, or damaged.
  """
  path = pathlib.Path(path)
  layout = Layout(path)
  settings = layout_lib.read_settings(layout)
  with lock.hold(path):
    entries = journal.read(layout.journal)
    journal.mend(layout.journal)
    run = _load(path)
    if run is not None and not repair.was_killed(run, entries):
      raise errors.RunError(f"{path} is up to date; there is nothing to migrate")
    key, _ = tombstones.renew_key(layout.forgotten_key, entries)
    if run is not None:
      finishing.finish(Session(run, None, entries, key, None, [], set()), on_step)
      return run
    number = checkpoint.numbers(layout.checkpoints)[0]
    place = checkpoint.path_of(layout.checkpoints, number)
    state, manifest = checkpoint.load(place, settings.cfg, old=True)
    lost = repair.find_lost(layout, settings, entries, key)
    claimed, _ = repair.claims_of(lost, entries)
    if manifest.digest != claimed or not np.array_equal(
      np.sort(lost.ids), np.sort(state.ids)
    ):
      raise errors.RunError(
        f"the checkpoint {place} is not the state that the journal ends in; restore the"
        " run from a copy"
      )
    old = Run(layout, settings.cfg, state, manifest, settings.classes)
    # While a request is under way, its rows may be erased already.
    checks = [] if lost.midway else inventory.check_stores(old, entries, "", True)
    for check in checks:
      if not check.passed:
        raise errors.RunError(f"{check.detail}; restore the run from a copy")
    made = repair.make_again(
      layout, settings, entries, key, lost, progress, on_step, OLD_VERSION
    )
  return made[0]
