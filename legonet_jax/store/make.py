"""Makes a store from encodings in memory, in one call."""

from collections.abc import Mapping, Sequence
import hashlib
import pathlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legonet_jax.data.encodings import EncodingTable, make_table
from legonet_jax.io.files import PathLike
from legonet_jax.store import write
from legonet_jax.store.read import Encodings, open_store


def make_store(
  path: PathLike,
  encodings: NDArray[np.floating],
  labels: NDArray[np.integer],
  ids: NDArray[np.integer] | None = None,
  split: NDArray[np.integer] | None = None,
  classes: Sequence[str] | None = None,
  encoder: str = "unknown",
) -> Encodings:
  """Makes a new store from encodings in memory.

  Rows are sorted by id. If the folder holds these rows already, nothing changes.

  Args:
    path: the folder.
    encodings: [N, d] float16, float32 or float64, kept in that type.
    labels: [N].
    ids: [N] stable ids; the row numbers if not given.
    split: [N] 0 train, 1 test; all train if not given.
    classes: names of the labels 0 ... C - 1.
    encoder: which encoder made the encodings, preferably with the sha256 of its
      weights. A run learns only from stores of the same encoder.

  Raises:
    DataError: if a column is wrong.
    StoreError: if the folder holds something else, or the disk is full.
  """
  count = len(encodings)
  arrays: dict[str, NDArray[Any]] = {
    "encodings": np.asarray(encodings),
    "labels": np.asarray(labels),
    "ids": np.arange(count) if ids is None else np.asarray(ids),
    "split": np.zeros(count, np.uint8) if split is None else np.asarray(split),
  }
  if classes is not None:
    arrays["classes"] = np.asarray(classes)
  path = pathlib.Path(path)
  table = make_table(path, arrays)
  content = hashlib.sha256()
  for column in (table.encodings, table.labels, table.ids, table.split):
    content.update(np.ascontiguousarray(column).data)
  how = {"encoder": encoder, "content_sha256": content.hexdigest()}
  return write_table(path, table, how)


def write_table(
  path: pathlib.Path, table: EncodingTable, how: Mapping[str, Any]
) -> Encodings:
  """Makes a new store from a checked table; `how` says how the table was made."""
  rows = table.encodings
  how = {**how, "storage": rows.dtype.name, "samples": len(rows)}
  if table.classes is not None:
    how["classes"] = list(table.classes)
  shape = (rows.shape[0], rows.shape[1])
  writer = write.start(path, how, shape, rows.dtype.name)
  if writer is None:  # the same call has made it before
    return open_store(path)
  writer = write.put(writer, rows[writer.rows :])
  return write.finish(writer, table.ids, table.labels, table.split)
