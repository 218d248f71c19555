"""A damaged checkpoint, made again: a state is a function of settings and samples.

The journal has the digest of the state that was lost, so the new one is proved equal.
"""

import pathlib
from typing import Any

import numpy as np

from legonet_jax import errors, samples as samples_lib, unlearning
from legonet_jax.config import LegoConfig
from legonet_jax.digests import digest, environment
from legonet_jax.ids import Ids
from legonet_jax.runs import (
  checkpoint,
  journal,
  layout as layout_lib,
  lock,
  rows as rows_lib,
  run as run_lib,
)
from legonet_jax.runs.checkpoint import Manifest
from legonet_jax.runs.layout import Layout
from legonet_jax.runs.run import Run, no_step
from legonet_jax.samples import Samples
from legonet_jax.task import Progress


def repair(path: pathlib.Path, progress: Progress | None = None) -> tuple[Run, bool]:
  """Fits the run again on its retained samples if no checkpoint of it can be read.

  Returns:
    The run, and whether the journal's digest proves that nothing was lost. It cannot
    where adapters were masked, or on another environment.

  Raises:
    RunError: if the run is sound, or what is left does not give the lost state.
  """
  layout = Layout(path)
  cfg, first = layout_lib.read_settings(layout)
  with lock.hold(path):
    journal.mend(layout.journal)
    entries = journal.read(layout.journal)
    try:
      run_lib.load(path)
    except errors.RunError:
      pass
    else:
      raise errors.RunError(f"{path} is sound; there is nothing to repair")
    numbers = checkpoint.numbers(layout.checkpoints)
    if not numbers:
      raise errors.RunError(f"{path} has no checkpoint left; fit a new run")
    damaged = checkpoint.path_of(layout.checkpoints, numbers[0])
    manifest = _manifest(damaged)
    stores = manifest.stores if manifest else [*first, *_own_stores(layout)]
    samples = _retained(cfg, path, stores, damaged)
    keys = np.load(layout.keys) if cfg.key_policy == "given" else None
    state, _ = unlearning.fit(cfg, samples, keys, progress)
    claimed, masked = _last(entries)
    _, settled = journal.of_requests(entries)
    midway = manifest is not None and not settled.issuperset(manifest.requests)
    if manifest is not None and midway:  # its requests are applied and not complete
      claimed, masked = manifest.digest, manifest.masked > 0
    proved = digest(state) == claimed
    known_place = manifest is None or not _differs(manifest.environment)
    if not proved and not masked and known_place:
      raise errors.RunError(
        f"what is left in {', '.join(stores)} does not give the state that the journal"
        " ends in; restore the run from a copy"
      )
    fresh = Manifest(
      number=numbers[0] + 1,
      digest=digest(state),
      stores=stores,
      environment=environment(),
      requests=manifest.requests if manifest else [],
      report={**manifest.report, "after": digest(state)} if manifest else {},
      head=entries[-1]["hash"],
      masked=0,
    )
    checkpoint.save(layout.checkpoints, state, fresh, no_step)
    checkpoint.remove_others(layout.checkpoints, fresh.number, no_step)
    values: dict[str, Any] = {"proved": proved}
    if not midway:
      values |= {"before": claimed, "after": fresh.digest}
    journal.append(layout.journal, entries, "repaired", values)
  return Run(layout, cfg, state, fresh), proved


def _manifest(path: pathlib.Path) -> Manifest | None:
  try:
    return checkpoint.read_manifest(path)
  except errors.RunError:
    return None


def _own_stores(layout: Layout) -> list[str]:
  if not layout.learned.is_dir():
    return []
  return sorted(f"learned/{p.name}" for p in layout.learned.iterdir())


def _retained(
  cfg: LegoConfig, path: pathlib.Path, stores: list[str], damaged: pathlib.Path
) -> Samples:
  """The samples that the lost state held, by its list of ids or the stores' split."""
  try:
    ids: Ids = checkpoint.read_retained(damaged)
    return rows_lib.table(cfg, path, stores, ids)
  except (errors.LegoError, OSError, ValueError, EOFError):
    parts = [rows_lib.read(rows_lib.resolve(path, store)) for store in stores]
    rows = rows_lib.merge([part for part in parts if len(part.ids)])
    train = rows.split == rows_lib.TRAIN
    return samples_lib.make_samples(
      cfg, rows.encodings[train], rows.labels[train], rows.ids[train]
    )


def _last(entries: list[journal.Entry]) -> tuple[str, bool]:
  """The digest that the journal ends in, and whether adapters were masked then."""
  ends = [e for e in entries if "after" in e]
  return ends[-1]["after"], bool(ends[-1].get("masked", 0))


def _differs(made_on: dict[str, str]) -> bool:
  here = environment()
  return any(made_on.get(k) != v for k, v in here.items() if k != "python")
