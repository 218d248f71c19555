"""Rows of encoding stores in memory: reading, renumbering, writing, merging.

Labels are matched by class name: 1 may be "dog" in one store and "cat" in another, so
labels are translated into the numbers of the run that reads them.
"""

from collections.abc import Sequence
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core.ids import Ids
from legonet_jax.io import durable
from legonet_jax.store import write
from legonet_jax.store.read import Classes, open_store


class StoreRows(NamedTuple):
  """Rows as a store has them: encodings [m, d]; labels, ids and split [m]."""

  encodings: NDArray[np.floating]
  labels: NDArray[np.int32]
  ids: Ids
  split: NDArray[np.uint8]


def read(
  path: pathlib.Path, ids: Ids | None = None, classes: Classes = None
) -> StoreRows:
  """All rows of a store that are not erased, or only the rows with `ids`.

  Args:
    path: the store.
    ids: which rows, if the store has them; all if not given.
    classes: the names that labels shall index; the store's own if not given.
  """
  store = open_store(path)
  at = np.arange(len(store.ids))
  if ids is not None:
    at = np.flatnonzero(np.isin(store.ids, ids))
  columns = (store.encodings, store.labels, store.ids, store.split)
  if len(at) == len(store.ids):
    rows = StoreRows(*(np.asarray(c) for c in columns))
  else:
    rows = StoreRows(*(np.asarray(c[at]) for c in columns))
  names = store.meta.get("classes")
  if classes is None or names is None:
    return rows
  return rows._replace(labels=renumber(rows.labels, tuple(names), classes, str(path)))


def renumber(
  labels: NDArray[Any], names: tuple[str, ...], classes: tuple[str, ...], where: str
) -> NDArray[np.int32]:
  """Turns labels [m], which index `names`, into labels that index `classes`.

  Raises:
    SampleError: if a label's name is not in `classes`.
  """
  if names == classes:
    return np.asarray(labels, np.int32)
  known = {name: number for number, name in enumerate(classes)}
  for label in np.unique(labels).tolist():
    if names[label] not in known:
      raise errors.SampleError(
        f"{where} has samples of class '{names[label]}', which is none of the run's"
        f" classes ({', '.join(classes[:8])}{', ...' if len(classes) > 8 else ''});"
        " leave them out with --ids, or fit a new run on all classes"
      )
  numbers = np.asarray([known.get(name, -1) for name in names], np.int32)
  return np.asarray(numbers[labels], np.int32)


def land(
  path: pathlib.Path,
  rows: StoreRows,
  encoder: str,
  classes: Classes = None,
  sources: Sequence[str] = (),
) -> None:
  """Writes rows to a new store, durable when this returns; may be repeated."""
  durable.shred_tree(path)
  order = np.argsort(rows.ids)
  how: dict[str, Any] = {
    "encoder": encoder,
    "samples": len(rows.ids),
    "learned": True,
  }
  if classes is not None:
    how["classes"] = list(classes)
  if sources:
    how["sources"] = list(sources)
  durable.make_folder(path.parent)
  shape = (rows.encodings.shape[0], rows.encodings.shape[1])
  writer = write.start(path, how, shape, rows.encodings.dtype.name)
  assert writer is not None
  write.put(writer, rows.encodings[order])
  write.finish(
    writer,
    rows.ids[order].astype(np.int64),
    rows.labels[order].astype(np.int32),
    rows.split[order].astype(np.uint8),
  )
  durable.sync_tree(path)
  durable.sync_folder(path.parent)


def merge(parts: list[StoreRows]) -> StoreRows:
  """Concatenates the rows of several stores, in the widest of their types."""
  kind = np.result_type(*(p.encodings.dtype for p in parts))
  return StoreRows(
    np.concatenate([p.encodings.astype(kind) for p in parts]),
    np.concatenate([p.labels for p in parts]),
    np.concatenate([p.ids for p in parts]),
    np.concatenate([p.split for p in parts]),
  )
