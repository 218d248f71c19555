"""The rows of a run: which stores hold them, and the table of samples they make.

A run does not copy the store that it is fitted on, nor one that it learns from: they
become the run's stores, are read where they are, and requests erase rows in them. Rows
learned from an `.npz` are copied to a store of the run's own, under `learned/`. No id
may be in two stores of a run.
"""

import os
import pathlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors, samples as samples_lib
from legonet_jax.config import LegoConfig
from legonet_jax.encoder import store as store_lib
from legonet_jax.ids import Ids
from legonet_jax.runs import durable
from legonet_jax.samples import Samples

TRAIN, TEST = 0, 1


class Rows(NamedTuple):
  """Rows as a store keeps them: encodings [m, d], labels [m], ids [m], split [m]."""

  encodings: NDArray[np.floating]
  labels: NDArray[np.int32]
  ids: Ids
  split: NDArray[np.uint8]


def encoder_of(path: pathlib.Path) -> str:
  """What made the encodings of a store: the sha256 of its weights, or its name."""
  meta = store_lib.open_store(path).meta
  return str(meta.get("weights_sha256") or meta.get("encoder") or "")


def resolve(root: pathlib.Path, store: str) -> pathlib.Path:
  """The folder of one of a run's stores; its own are named relative to the run."""
  path = root / store
  if not os.path.isabs(store) and path.resolve().parent != (root / "learned").resolve():
    raise errors.RunError(f"the run names a store outside of its folder: {store}")
  return path


def read(path: pathlib.Path, ids: Ids | None = None) -> Rows:
  """All rows of a store that are not erased, or those of `ids` that it holds."""
  store = store_lib.open_store(path)
  at = np.arange(len(store.ids))
  if ids is not None:
    at = np.flatnonzero(np.isin(store.ids, ids))
  columns = (store.encodings, store.labels, store.ids, store.split)
  if len(at) == len(store.ids):
    return Rows(*(np.asarray(c) for c in columns))
  return Rows(*(np.asarray(c[at]) for c in columns))


def table(cfg: LegoConfig, root: pathlib.Path, stores: list[str], ids: Ids) -> Samples:
  """The samples `ids` from the run's stores.

  Raises:
    StoreError: if a store is gone or damaged, or a row was erased by another run.
  """
  found = None
  seen = np.zeros(0, np.int64)
  for store in stores:
    rows = read(resolve(root, store), ids)
    if not len(rows.ids):
      continue
    part = samples_lib.make_samples(cfg, rows.encodings, rows.labels, rows.ids)
    found = part if found is None else samples_lib.append(found, part)
    seen = found.ids
  gone = np.setdiff1d(ids, seen)
  if len(gone) or found is None:
    raise errors.StoreError(
      f"{len(gone)} of {len(ids)} retained samples are no longer in"
      f" {', '.join(stores)}: another run or a person has erased them; let this run"
      " forget them too: `legonet unlearn RUN --erased`"
    )
  return found


def labels_of(
  root: pathlib.Path, stores: list[str], ids: Ids
) -> tuple[Ids, NDArray[np.int32]]:
  """Those of `ids` that the stores hold, ascending, and their labels."""
  parts = [read(resolve(root, store), ids) for store in stores]
  found = np.concatenate([part.ids for part in parts])
  labels = np.concatenate([part.labels for part in parts])
  order = np.argsort(found)
  return found[order], labels[order]


def lost(root: pathlib.Path, stores: list[str], ids: Ids) -> Ids:
  """Those of `ids` that are in none of the stores any more."""
  held = [read_ids(resolve(root, store)) for store in stores]
  return np.setdiff1d(ids, np.concatenate(held))


def read_ids(path: pathlib.Path) -> Ids:
  """The ids in a store that are not erased."""
  return np.asarray(store_lib.open_store(path).ids, np.int64)


def land(path: pathlib.Path, rows: Rows, encoder: str) -> None:
  """Writes rows to a store of their own, durable when this returns; repeatable."""
  durable.shred_tree(path)
  order = np.argsort(rows.ids)
  how = {"encoder": encoder, "samples": len(rows.ids), "learned": True}
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
