"""The rows of a run: which stores hold them, and the table of samples they make.

A run does not copy the store that it is fitted on, nor one that it learns from: they
become the run's stores, are read where they are, and requests erase rows in them. Rows
learned from an `.npz` are copied to a store of the run's own, under `learned/`. No id
may be in two stores of a run.

Labels are matched by the names of their classes: 1 may be "dog" in one store and "cat"
in another, and what counts are the run's own numbers.
"""

import os
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import samples as samples_lib
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.ids import Ids
from legonet_jax.core.samples import Samples
from legonet_jax.io import durable
from legonet_jax.store import erase, store as store_lib

TRAIN, TEST = 0, 1
Classes = tuple[str, ...] | None


class Rows(NamedTuple):
  """Rows as a store keeps them: encodings [m, d], labels [m], ids [m], split [m]."""

  encodings: NDArray[np.floating]
  labels: NDArray[np.int32]
  ids: Ids
  split: NDArray[np.uint8]


class Source(NamedTuple):
  """Where a run's rows are.

  Attributes:
    root: the run's folder.
    stores: its stores; relative names are of its own, in the folder.
    classes: the run's names of labels 0 ... C-1, if it has any.
  """

  root: pathlib.Path
  stores: list[str]
  classes: Classes = None


def encoder_of(path: pathlib.Path) -> str:
  """What made the encodings of a store, see `store.identity`."""
  return store_lib.identity(store_lib.open_store(path).meta)


def classes_of(path: pathlib.Path) -> Classes:
  """The names of a store's labels, if it knows them."""
  names = store_lib.open_store(path).meta.get("classes")
  return None if names is None else tuple(names)


def resolve(root: pathlib.Path, store: str) -> pathlib.Path:
  """The folder of one of a run's stores; its own are named relative to the run."""
  path = locate(root, store)
  erase.require_store(path)
  return path


def locate(root: pathlib.Path, store: str) -> pathlib.Path:
  """As `resolve`, whether the store is there or not."""
  path = root / store
  if not os.path.isabs(store) and (
    path.parent != root / "learned" or path.name in (".", "..")
  ):
    raise errors.RunError(
      f"the run names a store outside of its folder: {store}; restore the run from a"
      " copy"
    )
  return path


def read(path: pathlib.Path, ids: Ids | None = None, classes: Classes = None) -> Rows:
  """All rows of a store that are not erased, or those of `ids` that it holds.

  Args:
    path: the store.
    ids: which rows; all if not given.
    classes: names whose numbers the labels shall be; the store's own if not given.
  """
  store = store_lib.open_store(path)
  at = np.arange(len(store.ids))
  if ids is not None:
    at = np.flatnonzero(np.isin(store.ids, ids))
  columns = (store.encodings, store.labels, store.ids, store.split)
  if len(at) == len(store.ids):
    rows = Rows(*(np.asarray(c) for c in columns))
  else:
    rows = Rows(*(np.asarray(c[at]) for c in columns))
  names = store.meta.get("classes")
  if classes is None or names is None:
    return rows
  return rows._replace(labels=renumber(rows.labels, tuple(names), classes, str(path)))


def renumber(
  labels: NDArray[Any], names: tuple[str, ...], classes: tuple[str, ...], where: str
) -> NDArray[np.int32]:
  """Labels [m] that number `names`, as numbers of `classes`.

  Raises:
    SampleError: if a label's name is none of the classes.
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


def table(cfg: LegoConfig, source: Source, ids: Ids) -> Samples:
  """The samples `ids` from the run's stores.

  Raises:
    StoreError: if a store is gone or damaged, or a row was erased by another run.
  """
  found = None
  seen = np.zeros(0, np.int64)
  for store in source.stores:
    rows = read(resolve(source.root, store), ids, source.classes)
    if not len(rows.ids):
      continue
    part = samples_lib.make_samples(cfg, rows.encodings, rows.labels, rows.ids)
    found = part if found is None else samples_lib.append(found, part)
    seen = found.ids
  gone = np.setdiff1d(ids, seen)
  if len(gone) or found is None:
    raise errors.StoreError(
      f"{len(gone)} of {len(ids)} retained samples are no longer in"
      f" {', '.join(source.stores)}: another run or a person has erased them; let this"
      " run forget them too: `legonet unlearn RUN --erased`"
    )
  return found


def labels_of(source: Source, ids: Ids) -> tuple[Ids, NDArray[np.int32]]:
  """Those of `ids` that the stores hold, ascending, and their labels."""
  parts = [
    read(resolve(source.root, store), ids, source.classes) for store in source.stores
  ]
  found = np.concatenate([part.ids for part in parts])
  labels = np.concatenate([part.labels for part in parts])
  order = np.argsort(found)
  return found[order], labels[order]


def lost(source: Source, ids: Ids) -> Ids:
  """Those of `ids` that are in none of the stores any more."""
  held = [read_ids(resolve(source.root, store)) for store in source.stores]
  return np.setdiff1d(ids, np.concatenate([np.zeros(0, np.int64), *held]))


def read_ids(path: pathlib.Path) -> Ids:
  """The ids in a store that are not erased."""
  return store_lib.read_ids(path)


def land(path: pathlib.Path, rows: Rows, encoder: str, classes: Classes = None) -> None:
  """Writes rows to a store of their own, durable when this returns; repeatable."""
  durable.shred_tree(path)
  order = np.argsort(rows.ids)
  how: dict[str, Any] = {
    "encoder": encoder,
    "samples": len(rows.ids),
    "learned": True,
  }
  if classes is not None:
    how["classes"] = list(classes)
  durable.make_folder(path.parent)
  shape = (rows.encodings.shape[0], rows.encodings.shape[1])
  writer = store_lib.start(path, how, shape, rows.encodings.dtype.name)
  assert writer is not None
  store_lib.put(writer, rows.encodings[order])
  store_lib.finish(
    writer,
    rows.ids[order].astype(np.int64),
    rows.labels[order].astype(np.int32),
    rows.split[order].astype(np.uint8),
  )
  durable.sync_tree(path)
  durable.sync_folder(path.parent)


def merge(parts: list[Rows]) -> Rows:
  """The rows of several stores as one, in the widest of their types."""
  kind = np.result_type(*(p.encodings.dtype for p in parts))
  return Rows(
    np.concatenate([p.encodings.astype(kind) for p in parts]),
    np.concatenate([p.labels for p in parts]),
    np.concatenate([p.ids for p in parts]),
    np.concatenate([p.split for p in parts]),
  )
