"""Erasing rows of an encoding store, in place.

The encoding is overwritten with zeros, label and id with -1, and `meta.json` gets the
sha256 values of what is left. The id goes last: until then a crash leaves rows that can
be found and erased again, and afterwards only the sums in `meta.json` are stale, which
are made anew every time. So `erase` may be repeated at will.

Rows are found by id, whoever wrote them: a store may serve several runs, and what one
of them erases is gone for the others as well.
"""

from collections.abc import Callable
import json
import os
import pathlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors, fetch
from legonet_jax.ids import Ids
from legonet_jax.runs import durable, lock

OnStep = Callable[[str], None]
_ERASED_ID = -1


def erase(path: pathlib.Path, ids: Ids, on_step: OnStep) -> int:
  """Erases the rows of `ids` [m] from the store in `path`.

  Args:
    path: the store's folder.
    ids: which samples; those that the store does not hold are left out.
    on_step: told the name of each step when it is done, for tests that kill.

  Returns:
    How many rows were erased now.
  """
  if not is_store(path):
    raise errors.StoreError(
      f"the store {path} is not there to erase rows from; bring it back, and the next"
      " command on the run finishes the request"
    )
  with lock.folder(path):
    for stale in path.glob(".meta.json.*"):  # of a process that was killed
      stale.unlink()
    meta = json.loads((path / "meta.json").read_text())
    try:
      raw = np.load(path / "ids.npy", allow_pickle=False)
    except ValueError as e:
      raise errors.StoreError(f"{path / 'ids.npy'} is damaged ({e})") from None
    rows = np.flatnonzero(np.isin(raw, ids) & (raw >= 0))
    _overwrite(path / "encodings.npy", rows, 0)
    on_step("encoding overwritten")
    _overwrite(path / "labels.npy", rows, -1)
    _overwrite(path / "split.npy", rows, 0)
    _overwrite(path / "ids.npy", rows, _ERASED_ID)
    on_step("id overwritten")
    raw[rows] = _ERASED_ID
    sums = {name: fetch.sha256_of(path / f"{name}.npy") for name in meta["sha256"]}
    erased = int(np.sum(raw < 0))
    if sums != meta["sha256"] or erased != meta.get("erased", 0):
      fresh = {**meta, "sha256": sums, "erased": erased}
      text = json.dumps(fresh, indent=1, sort_keys=True) + "\n"
      durable.write(path / "meta.json", text.encode())
  return len(rows)


def is_store(path: pathlib.Path) -> bool:
  """Whether `path` looks like an encoding store."""
  return (path / "meta.json").is_file()


def _overwrite(path: pathlib.Path, rows: NDArray[np.intp], value: Any) -> None:
  """Sets rows of an `.npy` file to `value`, durable when this returns."""
  if not len(rows):
    return
  with path.open("r+b") as file:
    version = np.lib.format.read_magic(file)
    read = {
      (1, 0): np.lib.format.read_array_header_1_0,
      (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, fortran, dtype = read(file)
    if fortran:
      raise errors.StoreError(f"{path} is in Fortran order; write the store again")
    start = file.tell()
    blank = np.full(shape[1:], value, dtype).tobytes()
    # Written, not mapped: a file system that copies on write may run out of space, and
    # then there is an error to catch instead of a signal.
    for row in rows.tolist():
      file.seek(start + row * len(blank))
      file.write(blank)
    file.flush()
    os.fsync(file.fileno())
