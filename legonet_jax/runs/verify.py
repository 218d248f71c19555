"""Checks of a run: the journal's chain, the files, the digests, and the model itself.

Whoever can write the folder can forge its records, but not results that are recomputed.
Keys, routes and members are always made again from the stores; the weights of M random
adapters, or of all, on request. A cheat that left t of n adapters untrained escapes M
random ones with probability about (1 - t/n)^M, and never escapes a full verification.

A run may be verified while a process works on it: then its last good state is judged,
and the files of that process do not count as leftovers.
"""

from collections.abc import Sequence
import pathlib
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.samples import Samples
from legonet_jax.io import durable, lock
from legonet_jax.io.files import PathLike
from legonet_jax.runs import (
  certificate as certificate_lib,
  finishing,
  inventory,
  journal,
  layout as layout_lib,
  run as run_lib,
  sources as sources_lib,
)
from legonet_jax.runs.certificate import Certificate
from legonet_jax.runs.layout import Layout
from legonet_jax.runs.run import Run
from legonet_jax.runtime.callbacks import Progress
from legonet_jax.runtime.checks import Check

_TRIES, _PAUSE = 20, 0.25


class Report(NamedTuple):
  """What a verification has found.

  Attributes:
    checks: all checks.
    certificate: None if there was no state to make it from.
    sources: files outside of the run that may still hold forgotten samples.
  """

  checks: list[Check]
  certificate: Certificate | None
  sources: Sequence[str] = ()

  @property
  def passed(self) -> bool:
    """Whether all checks passed."""
    return all(check.passed for check in self.checks)


class _Look(NamedTuple):
  """A run as read at one moment, with the checks so far."""

  checks: list[Check]
  run: Run | None
  samples: Samples | None
  tip: str
  sources: Sequence[str] = ()


def verify(
  path: PathLike,
  adapters: int = 0,
  full: bool = False,
  head: str = "",
  progress: Progress | None = None,
) -> Report:
  """Verifies the run in `path`.

  Args:
    path: the run's folder; nothing in it is changed.
    adapters: how many random adapters to train again.
    full: whether to train all of them and compare the digest of the state.
    head: hash of a journal entry that was noted earlier; it must be in the chain.
    progress: called with (samples passed, samples in all).
  """
  path = pathlib.Path(path)
  checks, run, samples, tip, sources = _look_steadily(path, head)
  if run is None:
    return Report(checks, None)
  made = certificate_lib.make(
    run.cfg, run.state, run.manifest.environment, tip, run.classes
  )
  checks.append(_masks(run, made))
  if samples is None:
    return Report(checks, made, sources)
  chosen = choose(run.cfg, adapters, full)
  try:
    keys = layout_lib.read_keys(run.layout, run.cfg)
    checks += certificate_lib.recheck(made, samples, keys, chosen, progress)
  except (errors.RunError, errors.SampleError) as e:
    checks.append(Check("keys", False, str(e)))
    return Report(checks, None, sources)
  made["trained_again"] = chosen.tolist()
  made["checks"] = [check._asdict() for check in checks]
  return Report(checks, made, sources)


def _look_steadily(path: pathlib.Path, head: str) -> _Look:
  """Reads a run; reads it again if another process has changed it meanwhile.

  Raises:
    RunBusyError: if the run keeps changing.
  """
  layout = Layout(path)
  for _ in range(_TRIES):
    before = _moment(layout)
    busy = lock.holder(path)
    look = _look(layout, head, busy)
    sound = all(check.passed for check in look.checks)
    # Another process may have changed the run while we read it; a failed check counts
    # only if the run stayed the same.
    if sound or (before == _moment(layout) and busy == lock.holder(path) == ""):
      return look
    if before == _moment(layout) and busy and busy == lock.holder(path):
      time.sleep(_PAUSE)
      if before == _moment(layout):
        return look
    time.sleep(_PAUSE)
  raise errors.RunBusyError(
    f"{path} is being changed by another process all the time; verify it again later"
  )


def _moment(layout: Layout) -> tuple[int, list[str]]:
  """The journal's size and the checkpoints' names, which differ after any request."""
  size = layout.journal.stat().st_size if layout.journal.is_file() else -1
  folder = layout.checkpoints
  return size, sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []


def _look(layout: Layout, head: str, busy: str) -> _Look:
  checks: list[Check] = []
  entries: list[journal.Entry] = []
  try:
    durable.require_plain(layout.root)
  except errors.LinkError as e:
    return _Look([Check("files", False, str(e))], None, None, "")
  try:
    entries = journal.read(layout.journal)
    checks.append(Check("journal", True, f"{len(entries)} entries, chain unbroken"))
  except errors.LegoError as e:
    checks.append(Check("journal", False, str(e)))
  if head:
    known = any(entry["hash"] == head for entry in entries)
    text = "is" if known else "is NOT"
    checks.append(Check("head", known, f"{head[:16]} {text} in the journal"))
  tip = entries[-1]["hash"] if entries else ""
  try:
    run = run_lib.load(layout.root)
  except errors.LegoError as e:
    checks.append(Check("checkpoint", False, str(e)))
    return _Look(checks, None, None, tip)
  checks.append(
    Check("checkpoint", True, f"every file as saved, digest {run.manifest.digest[:16]}")
  )
  if entries:
    checks.append(_history(run, entries, busy))
    checks.append(inventory.check_files(run, entries, busy))
  try:
    # Rows are read into memory, so that nobody can change them between the checks.
    samples = run_lib.table(run)
    checks.append(
      Check("rows", True, f"{len(samples.ids)} retained rows as they were learned")
    )
  except (errors.LegoError, FileNotFoundError) as e:
    checks.append(Check("rows", False, str(e)))
    samples = None
  if entries:
    checks += inventory.check_stores(run, entries, busy)
  forgot = any(entry.get("forgotten") for entry in entries)
  return _Look(checks, run, samples, tip, sources_lib.find(run) if forgot else ())


def choose(cfg: LegoConfig, adapters: int, full: bool) -> NDArray[np.intp]:
  """Which adapters [m] to train again: that many at random, or all."""
  n = cfg.num_adapters
  if full:
    return np.arange(n)
  if not 0 <= adapters <= n:
    raise errors.ConfigError(f"--adapters is {adapters}; give 1 to {n}, or --full")
  return np.sort(np.random.default_rng().choice(n, adapters, replace=False))


def _history(run: Run, entries: list[journal.Entry], busy: str) -> Check:
  """Checks that the digests of the entries follow each other up to the checkpoint."""
  last, samples = None, None
  for entry in entries:
    if entry["event"] in ("created", "complete", "repaired"):
      if last is not None and entry.get("before", last) != last:
        return Check(
          "history", False, f"entry {entry['seq']} starts from another state"
        )
      last = entry.get("after", last)
      samples = entry.get("samples", samples)
  known, settled = journal.of_requests(entries)
  missing = finishing.missing_entries(run, entries)
  if missing and busy:  # the other process has yet to write the entry
    last, samples = run.manifest.digest, len(run.state.ids)
  elif missing:
    count = len(run.manifest.requests)
    return Check("history", False, f"{count} requests are applied, not complete")
  if last != run.manifest.digest or samples != len(run.state.ids):
    return Check(
      "history", False, "the checkpoint is not the state the journal ends in"
    )
  hashes = {entry["hash"] for entry in entries}
  if run.manifest.head and run.manifest.head not in hashes:
    return Check("history", False, "the checkpoint follows an entry that is not there")
  done = len(settled & known.keys())
  noun = "request" if done == 1 else "requests"
  return Check("history", True, f"{done} {noun} complete, digests in line")


def _masks(run: Run, made: Certificate) -> Check:
  """Checks that masked adapters have no weights and number as the manifest says."""
  masked = np.asarray([w is None for w in made["weights"]], bool)
  hidden = run.state.weights[~run.state.live]
  if int(masked.sum()) != run.manifest.masked or np.any(hidden):
    return Check("masks", False, "an adapter that is not served has weights")
  return Check("masks", True, f"{int(masked.sum())} adapters wait for heal")
