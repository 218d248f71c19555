"""Checks of a run: the journal's chain, the files, the digests, and the model itself.

What is recorded can be forged by who can write the folder; what is recomputed cannot.
Keys, routes and members are always made again from the stores; the weights of M random
adapters, or of all, if asked. A cheat that left t of n adapters untrained goes unseen
by M random ones with a chance of about (1 - t/n)^M; trained in full, with none.
"""

import pathlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.config import LegoConfig
from legonet_jax.encoder import store as store_lib
from legonet_jax.runs import (
  certificate as certificate_lib,
  checkpoint,
  journal,
  requests as requests_lib,
  rows as rows_lib,
  run as run_lib,
)
from legonet_jax.runs.certificate import Certificate, Check
from legonet_jax.runs.layout import Layout
from legonet_jax.runs.run import Run
from legonet_jax.task import Progress


class Report(NamedTuple):
  """All checks, and the certificate, if there was a state to make it from."""

  checks: list[Check]
  certificate: Certificate | None

  @property
  def passed(self) -> bool:
    """Whether nothing was found."""
    return all(check.passed for check in self.checks)


def verify(
  path: pathlib.Path,
  adapters: int = 0,
  full: bool = False,
  head: str = "",
  progress: Progress | None = None,
) -> Report:
  """Verifies the run in `path`.

  Args:
    path: the run's folder; nothing in it is changed.
    adapters: how many adapters to train again, at random.
    full: train all of them and compare the digest of the state.
    head: hash of a journal entry that was noted earlier; it must be in the chain.
    progress: called with (samples passed, samples in all).
  """
  layout = Layout(path)
  checks: list[Check] = []
  entries: list[journal.Entry] = []
  try:
    entries = journal.read(layout.journal)
    checks.append(Check("journal", True, f"{len(entries)} entries, chain unbroken"))
  except errors.RunError as e:
    checks.append(Check("journal", False, str(e)))
  if head:
    known = any(entry["hash"] == head for entry in entries)
    text = "is" if known else "is NOT"
    checks.append(Check("head", known, f"{head[:16]} {text} in the journal"))
  try:
    run = run_lib.load(path)
  except errors.RunError as e:
    checks.append(Check("checkpoint", False, str(e)))
    return Report(checks, None)
  checks.append(
    Check("checkpoint", True, f"every file as saved, digest {run.manifest.digest[:16]}")
  )
  if entries:
    checks += [_history(run, entries), _leftovers(run, entries)]
  tip = entries[-1]["hash"] if entries else ""
  made = certificate_lib.make(run.cfg, run.state, run.manifest.environment, tip)
  try:
    for store in run.manifest.stores:
      store_lib.open_store(rows_lib.resolve(path, store), verify=True)
    samples = run_lib.table(run)
    checks.append(
      Check("stores", True, f"{len(samples.ids)} retained rows as they were learned")
    )
  except errors.LegoError as e:
    checks.append(Check("stores", False, str(e)))
    return _same_run(Report(checks, made), layout, tip)
  checks.append(_masks(run, made))
  chosen = choose(run.cfg, adapters, full)
  keys = np.load(layout.keys) if run.cfg.key_policy == "given" else None
  checks += certificate_lib.recheck(made, samples, keys, chosen, progress)
  made["trained_again"] = chosen.tolist()
  made["checks"] = [check._asdict() for check in checks]
  return _same_run(Report(checks, made), layout, tip)


def _same_run(report: Report, layout: Layout, tip: str) -> Report:
  """Raises if checks failed because another process has changed the run meanwhile."""
  if not report.passed and tip and journal.read(layout.journal)[-1]["hash"] != tip:
    raise errors.RunBusyError(
      f"{layout.root} was changed by another process meanwhile; verify it again"
    )
  return report


def choose(cfg: LegoConfig, adapters: int, full: bool) -> NDArray[np.intp]:
  """Which adapters [m] to train again: that many at random, or all."""
  n = cfg.num_adapters
  if full:
    return np.arange(n)
  if not 0 <= adapters <= n:
    raise errors.ConfigError(f"--adapters is {adapters}; give 1 to {n}, or --full")
  return np.sort(np.random.default_rng().choice(n, adapters, replace=False))


def _history(run: Run, entries: list[journal.Entry]) -> Check:
  """The digests of the entries form one line that ends in the checkpoint's."""
  last = None
  for entry in entries:
    if entry["event"] in ("created", "complete", "repaired"):
      if last is not None and entry.get("before", last) != last:
        return Check(
          "history", False, f"entry {entry['seq']} starts from another state"
        )
      last = entry["after"]
  known, settled = journal.of_requests(entries)
  pending = [name for name in run.manifest.requests if name not in settled]
  if pending:
    return Check("history", False, f"{len(pending)} requests are applied, not complete")
  if last != run.manifest.digest:
    return Check(
      "history", False, "the checkpoint is not the state the journal ends in"
    )
  hashes = {entry["hash"] for entry in entries}
  if run.manifest.head and run.manifest.head not in hashes:
    return Check("history", False, "the checkpoint follows an entry that is not there")
  done = len(settled & known.keys())
  return Check("history", True, f"{done} requests complete, digests in line")


def _leftovers(run: Run, entries: list[journal.Entry]) -> Check:
  """Nothing is there that may know of forgotten samples."""
  layout = run.layout
  known, settled = journal.of_requests(entries)
  waiting = {*known, *requests_lib.waiting(layout.requests)} - settled
  stray = [
    p
    for p in layout.checkpoints.iterdir()
    if p != checkpoint.path_of(layout.checkpoints, run.manifest.number)
  ]
  stray += requests_lib.leftovers(layout.requests)
  if layout.learned.is_dir():
    names = {f"learned/{p.name}" for p in layout.learned.iterdir()}
    stray += [layout.root / name for name in sorted(names - {*run.manifest.stores})]
  expected = {"run.json", "keys.npy", "journal.jsonl", "checkpoints", "learned"}
  expected |= {"requests", "certificate.json", "lock"}
  stray += [p for p in sorted(layout.root.iterdir()) if p.name not in expected]
  if waiting:
    return Check("leftovers", False, f"{len(waiting)} requests are not complete")
  if stray:
    return Check("leftovers", False, f"{stray[0]} does not belong to the run")
  return Check("leftovers", True, "no other checkpoint, request or file")


def _masks(run: Run, made: Certificate) -> Check:
  """Masked adapters hold no weights, and there are as many as the manifest says."""
  masked = np.asarray([w is None for w in made["weights"]], bool)
  hidden = np.asarray(run.state.model.weights)[~np.asarray(run.state.model.live)]
  if int(masked.sum()) != run.manifest.masked or np.any(hidden):
    return Check("masks", False, "an adapter that is not served has weights")
  return Check("masks", True, f"{int(masked.sum())} adapters wait for heal")
