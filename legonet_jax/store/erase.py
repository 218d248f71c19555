"""Erasing rows of an encoding store, in place.

`erase` marks the ids (see `marks`), overwrites encoding, split and salt with zeros and
label and id with -1, and updates the sha256 values in `meta.json`. The id goes last:
after a crash before that, the rows can still be found and erased again; after a later
crash, only the sha256 values are stale, which every call computes anew. So `erase` may
be repeated at will.

Rows are found by id, whoever wrote them. A store may serve several runs: a row that one
of them erases is gone for the others as well.
"""

from collections.abc import Callable
import os
import pathlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core.ids import Ids
from legonet_jax.io import durable, files, hashing, lock, untrusted
from legonet_jax.runtime.callbacks import OnStep
from legonet_jax.store import format, leftovers, marks, read

PlainRecord = dict[str, Any]
_ERASED_ID, _ERASED_LABEL = -1, -1


def erase(
  path: pathlib.Path,
  choose: Callable[[Ids], NDArray[np.bool_]],
  on_step: OnStep,
  wait: float = lock.STORE_SECONDS,
  again: bool = False,
) -> int:
  """Erases rows from the store in `path`.

  Args:
    path: the store's folder.
    choose: given the ids [m] of the rows that are not erased, says which to erase.
    on_step: called with the name of each step when it is done, for tests that kill.
    wait: for how many seconds to wait for another process that erases.
    again: overwrite erased rows once more. Needed if a process was killed or a disk
      failed during an erasure: the zeros may have reached memory, but not the disk.

  Returns:
    How many rows this call erased.
  """
  read.require_store(path)
  advice = "it erases rows there; try again when it is done"
  with lock.hold(path, wait=wait, advice=advice):
    leftovers.clean(path)
    meta = untrusted.read_json(path / "meta.json", follow=False)
    raw = untrusted.read_npy(path / "ids.npy", follow=False)
    if raw.dtype != np.int64 or raw.ndim != 1:
      raise errors.StoreError(f"{path / 'ids.npy'} is damaged; restore the store")
    live = np.flatnonzero(raw >= 0)
    chosen = live[choose(raw[live])]
    rows = np.union1d(chosen, _find_half_erased(path, raw))
    count = len(rows)
    if again:
      rows = np.union1d(rows, np.flatnonzero(raw < 0))
    # Not those half erased: they were marked before, and their ids may be torn.
    marks.add(path, raw[chosen], int(meta.get("erased", 0)))
    _overwrite(path / "encodings.npy", rows, 0)
    on_step("encoding overwritten")
    _overwrite(path / "labels.npy", rows, _ERASED_LABEL)
    _overwrite(path / "split.npy", rows, 0)
    if format.SEALS in meta["sha256"]:
      _overwrite(path / f"{format.SALTS}.npy", rows, 0)
    _overwrite(path / "ids.npy", rows, _ERASED_ID)
    on_step("id overwritten")
    raw[rows] = _ERASED_ID
    sums = {name: untrusted.sha256_of(path / f"{name}.npy") for name in meta["sha256"]}
    erased = int(np.sum(raw < 0))
    stale = sums != meta["sha256"] or erased != meta.get("erased", 0)
    if stale or (again and erased):
      fresh = {**meta, "sha256": sums, "erased": erased}
      durable.write(path / "meta.json", hashing.to_text(fresh))
  return count


def _find_half_erased(path: pathlib.Path, ids: Ids) -> NDArray[np.intp]:
  """Rows whose encoding and label are erased, but whose id is not, or only partly.

  No request could find a partly overwritten id again.
  """
  labels = untrusted.read_npy(path / "labels.npy", follow=False)
  if labels.shape != ids.shape:
    raise errors.StoreError(f"{path / 'labels.npy'} is damaged; restore the store")
  half = np.flatnonzero((labels == _ERASED_LABEL) & (ids != _ERASED_ID))
  if not len(half):
    return half
  encodings = untrusted.map_npy(path / "encodings.npy", follow=False)
  return half[~encodings[half].any(axis=1)]


def record(path: pathlib.Path) -> PlainRecord:
  """The record of a store for journal and checkpoint: sha256, rows, erased rows."""
  return read.read_record(path)._asdict()


def _overwrite(path: pathlib.Path, rows: NDArray[np.intp], value: Any) -> None:
  """Sets rows of an `.npy` file to `value`, durable when this returns."""
  if not len(rows):
    return
  with untrusted.open_plain(path, follow=False) as file:
    version = np.lib.format.read_magic(file)
    read = {
      (1, 0): np.lib.format.read_array_header_1_0,
      (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, fortran, dtype = read(file)
    start = file.tell()
  if fortran and len(shape) > 1:
    raise errors.StoreError(f"{path} is in Fortran order; write the store again")
  blank = np.full(shape[1:], value, dtype).tobytes()
  # Written, not memory-mapped: if a copy-on-write file system runs out of space, this
  # raises an error that can be caught, instead of a signal.
  handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
  try:
    for row in rows.tolist():
      _write_at(handle, start + row * len(blank), blank)
    files.flush(handle)
  finally:
    os.close(handle)


def _write_at(handle: int, at: int, data: bytes) -> None:
  while data:
    done = os.pwrite(handle, data, at)
    at, data = at + done, data[done:]
