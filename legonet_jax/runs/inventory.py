"""Checks of the files in a run and its stores, by contents and not by names.

No file may be left that could contain a forgotten sample: no other checkpoint, no
request, no foreign file, and no file of the run with unexpected contents. A store must
match the journal's record of it, and hold no row of a sample that the run was asked to
forget.
"""

import pathlib

import numpy as np

from legonet_jax import errors
from legonet_jax.io import exact, lock
from legonet_jax.runs import (
  checkpoint,
  exact as exact_lib,
  journal,
  layout as layout_lib,
  requests as requests_lib,
  rows as rows_lib,
  tombstones,
)
from legonet_jax.runs.run import Run
from legonet_jax.runtime.checks import Check
from legonet_jax.store import (
  erase,
  exact as store_exact,
  format,
  marks,
  read as store_read,
)

_ARRAYS = (*format.ARRAYS, format.SEALS, format.SALTS)
_STORE_FILES = {format.META, marks.FILE, *(f"{name}.npy" for name in _ARRAYS)}


def check_files(run: Run, entries: list[journal.Entry], busy: str) -> Check:
  """Checks that the run's folder holds only files that belong there.

  Args:
    run: the run.
    entries: its journal.
    busy: the number of the process that works on the run now, or "".
  """
  layout = run.layout
  known, settled = journal.of_requests(entries)
  waiting = {*known, *requests_lib.waiting(layout.requests)} - settled
  if busy:
    text = f"process {busy} works on the run, {len(waiting)} requests are under way"
    return Check("leftovers", True, f"not looked for: {text}")
  if waiting:
    return Check("leftovers", False, f"{len(waiting)} requests are not complete")
  stray = _stray_files(run, settled)
  if stray and stray[0] in layout_lib.temporaries(layout.root):
    text = f"{stray[0]} was left half-written by a killed command; `legonet verify"
    text += f" {layout.root}` removes it where the run can be written"
    return Check("leftovers", False, text)
  if stray:
    return Check("leftovers", False, f"{stray[0]} does not belong to the run")
  changed = exact_lib.find_fault(run, entries)
  if changed:
    return Check("leftovers", False, f"{changed} has other contents than it should")
  tagged = exact.find_tagged(layout.root)
  if tagged:
    return Check("leftovers", False, _tags(tagged))
  return Check("leftovers", True, "no other checkpoint, request or file")


def _stray_files(run: Run, settled: set[str]) -> list[pathlib.Path]:
  layout, manifest = run.layout, run.manifest
  current = checkpoint.path_of(layout.checkpoints, manifest.number)
  stray = [p for p in layout.checkpoints.iterdir() if p != current]
  stray += requests_lib.leftovers(layout.requests, settled)
  if layout.learned.is_dir():
    names = {f"learned/{p.name}" for p in layout.learned.iterdir()}
    stray += [layout.root / name for name in sorted(names - {*manifest.stores})]
  expected = {"run.json", "journal.jsonl", "checkpoints", "learned", "requests"}
  expected |= {"certificate.json", "head.json", "forgotten.key", lock.WORK, lock.QUEUE}
  if run.cfg.key_policy == "given":
    expected.add("keys.npy")
  return stray + [p for p in sorted(layout.root.iterdir()) if p.name not in expected]


def _tags(path: pathlib.Path) -> str:
  return f"{path} has extended attributes; remove them: setfattr -x NAME {path}"


def check_stores(
  run: Run, entries: list[journal.Entry], busy: str, untouched: bool = False
) -> list[Check]:
  """Checks that the stores match the journal and hold no forgotten sample.

  Args:
    run: the run.
    entries: its journal.
    busy: as for `check_files`.
    untouched: whether a store without seals must be as the run has left it; otherwise
      it may have lost rows to another run.
  """
  known = journal.records(entries) or {}
  details = []
  for store in run.manifest.stores:
    try:
      path = rows_lib.resolve(run.layout.root, store)
      problem = _store_problem(path, known.get(store), busy, untouched)
      held = store_read.read_ids(path)
      details.append(f"{len(held)} rows")
    except (errors.LegoError, FileNotFoundError) as e:
      problem = str(e)
    if problem:
      return [Check("stores", False, problem)]
  checks = [Check("stores", True, f"as recorded: {', '.join(details)}")]
  return [*checks, _check_forgotten(run, entries, busy)]


def _store_problem(
  path: pathlib.Path, record: erase.PlainRecord | None, busy: str, untouched: bool
) -> str:
  """A description of the fault of a store, or ""."""
  other = {p.name for p in path.iterdir()} - _STORE_FILES
  if lock.WORK in other and exact_lib.is_lock(path / lock.WORK):
    other.discard(lock.WORK)
  at_work = bool(busy or lock.holder(path))
  if other and not at_work:
    return f"{path / min(other)} does not belong to the store"
  try:
    store = store_read.open_store(path, verify=True)
  except errors.StoreError:
    if at_work:  # rows are being erased, and the sums are written after them
      return ""
    raise
  fault = "" if at_work else store_exact.find_fault(path, store.meta)
  if fault:
    return fault
  tagged = exact.find_tagged(path)
  if tagged:
    return _tags(tagged)
  if record is None or at_work:
    return ""
  now = erase.record(path)
  if now == record:
    return ""
  grown = now["rows"] == record["rows"] and now["erased"] > record["erased"]
  sealed = [sums["sha256"].get(format.SEALS) for sums in (now, record)]
  if grown and sealed[0] == sealed[1] and (sealed[0] or not untouched):
    return ""  # another run has erased rows since; all others have their seals
  return (
    f"{path} does not match the journal: it had {record['rows']} rows,"
    f" {record['erased']} of them erased, and now has {now['rows']}, {now['erased']}"
    " of them erased"
  )


def _check_forgotten(run: Run, entries: list[journal.Entry], busy: str) -> Check:
  """Checks that none of the run's stores holds a row of a forgotten sample."""
  # Rows of a request that is under way may still be there.
  under_way = () if busy else run.manifest.report.get("forgotten", ())
  marks = tombstones.all_marks(entries, under_way)
  if not marks:
    return Check("forgotten", True, "nothing was forgotten yet")
  try:
    key = tombstones.read_key(run.layout.forgotten_key)
  except errors.RunError as e:
    return Check("forgotten", False, str(e))
  if tombstones.key_name(key) != journal.latest(entries, "key"):
    return Check("forgotten", False, f"{run.layout.forgotten_key} is another run's")
  for store in run.manifest.stores:
    ids = store_read.read_ids(rows_lib.resolve(run.layout.root, store))
    ids = ids[~np.isin(ids, run.state.ids)]
    back = int(tombstones.find_marked(key, marks, ids).sum())
    if back:
      return Check("forgotten", False, f"{back} forgotten samples are back in {store}")
  held = tombstones.find_marked(key, marks, run.state.ids)
  if held.any():
    return Check("forgotten", False, f"the model holds {int(held.sum())} of them again")
  noun = "sample" if len(marks) == 1 else "samples"
  return Check("forgotten", True, f"{len(marks)} {noun}, not back")
