"""Whether each file of a store has exactly the contents that it should.

`meta.json` has no sha256 in a run's journal, and `erased.marks` grows without one, so
both are compared with what we write.
"""

from collections.abc import Mapping
import pathlib
import re
from typing import Any

import numpy as np

from legonet_jax.io import exact, untrusted
from legonet_jax.runtime.environment import NAME
from legonet_jax.store import format, marks

_HASH = re.compile("[0-9a-f]{64}")
_META: Mapping[str, Any] = {
  "version": int, "sha256": {**dict.fromkeys(format.ARRAYS, _HASH), "seals?": _HASH},
  "erased?": int, "sources?": [str],
  "encoder?": str, "samples?": int, "storage?": str, "classes?": list,
  # of `legonet encode`
  "size?": int, "compute?": str, "batch?": int, "devices?": int, "weights?": str,
  "weights_sha256?": _HASH, "resize?": str, "mean?": [float], "std?": [float],
  "dataset?": str, "dataset_sha256?": _HASH, "environment?": {NAME: str},
  # of `legonet import-encodings`, `make_store` and rows that a run has learned
  "imported?": str, "imported_sha256?": _HASH, "content_sha256?": _HASH,
  "learned?": True,
}  # fmt: skip


def find_fault(path: pathlib.Path, meta: Mapping[str, Any]) -> str:
  """The first thing that is not as we write it in the store in `path`, or "".

  Args:
    path: the folder; no process may be at work there.
    meta: the contents of its `meta.json`.
  """
  sealed = (format.SEALS, format.SALTS) if format.SEALS in meta["sha256"] else ()
  for name in (*format.ARRAYS, *sealed):
    if not exact.is_npy(path / f"{name}.npy"):
      return f"{path / name}.npy is not as np.save writes it; {_cure(path)}"
  ids = untrusted.map_npy(path / "ids.npy", follow=False)
  erased = int(np.sum(ids < 0))
  if erased != meta.get("erased", 0):
    return f"{path} has {erased} erased rows, not {meta.get('erased', 0)}"
  if not exact.is_json(path / format.META, _META):
    return f"{path / format.META} holds something else as well; {_cure(path)}"
  if meta.get("samples", len(ids)) != len(ids):
    return f"{path / format.META} names another number of samples; {_cure(path)}"
  head, known = marks.read(path)
  there = len(known) + marks.count_unmarked(path, erased)
  if head and (there != erased or not marks.is_whole(path)):
    return (
      f"{path / marks.FILE} does not have one mark for each of {erased} erased rows; if"
      " a process was killed while it erased rows, any command on its run goes on, else"
      " restore the store from a copy"
    )
  return ""


def _cure(path: pathlib.Path) -> str:
  return f"restore {path} from a copy"
