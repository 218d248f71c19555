"""Files from which a run's stores were made, and which may still hold their samples.

A run erases rows in its stores, not in files of others: an `.npz` that was imported or
learned from, a folder of images. It can only name them. Stores record their paths for
that (`sources` in `meta.json`), and nothing else depends on these.
"""

import os

import numpy as np

from legonet_jax import errors
from legonet_jax.core.ids import Ids
from legonet_jax.runs import rows as rows_lib
from legonet_jax.runs.run import Run
from legonet_jax.store import marks, read as store_read


def find(run: Run, ids: Ids | None = None) -> list[str]:
  """Paths of existing files from which the run's stores were made.

  Args:
    run: the run. A store that cannot be read now names nothing: others report that.
    ids: only of stores that hold or have erased one of these; of all if not given.
  """
  found: dict[str, None] = {}
  for store in run.manifest.stores:
    try:
      path = rows_lib.resolve(run.layout.root, store)
      opened = store_read.open_store(path)
      if ids is not None and not (
        np.isin(ids, opened.ids).any() or marks.find_erased(path, ids).any()
      ):
        continue
    except (errors.LegoError, OSError):
      continue
    found.update(dict.fromkeys(opened.meta.get("sources", ())))
  return [source for source in found if os.path.exists(source)]
