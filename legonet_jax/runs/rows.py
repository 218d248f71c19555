"""The rows of a run: which stores hold them, and the table of samples they make.

A run does not copy the store that it is fitted on, nor a store that it learns from:
these become the run's stores, are read where they are, and requests erase rows in them.
Rows learned from an `.npz` are copied to a store of the run's own, under `learned/`. No
id may be in two stores of a run.

Labels are matched by class names: 1 may be "dog" in one store and "cat" in another.
They are translated to the run's own numbers.
"""

import os
import pathlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import samples as samples_lib
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.ids import Ids
from legonet_jax.core.samples import Samples
from legonet_jax.store import read as store_read
from legonet_jax.store.read import Classes, read_ids
from legonet_jax.store.rows import read


class Source(NamedTuple):
  """The stores that hold a run's rows.

  Attributes:
    root: the run's folder.
    stores: paths of its stores; relative ones are inside the run's folder.
    classes: the run's names of labels 0 ... C-1, if it has any.
  """

  root: pathlib.Path
  stores: list[str]
  classes: Classes = None


def resolve(root: pathlib.Path, store: str) -> pathlib.Path:
  """The folder of one of the run's stores; StoreError if it holds no store."""
  path = locate(root, store)
  store_read.require_store(path)
  return path


def locate(root: pathlib.Path, store: str) -> pathlib.Path:
  """As `resolve`, without checking that the store exists."""
  path = root / store
  if not os.path.isabs(store) and (
    path.parent != root / "learned" or path.name in (".", "..")
  ):
    raise errors.RunError(
      f"the run names a store outside of its folder: {store}; restore the run from a"
      " copy"
    )
  return path


def table(cfg: LegoConfig, source: Source, ids: Ids) -> Samples:
  """The samples `ids` from the run's stores.

  Raises:
    StoreError: if a store is missing or damaged, or another run has erased a row.
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
  """The subset of `ids` that the stores hold, ascending, and their labels."""
  parts = [
    read(resolve(source.root, store), ids, source.classes) for store in source.stores
  ]
  found = np.concatenate([part.ids for part in parts])
  labels = np.concatenate([part.labels for part in parts])
  order = np.argsort(found)
  return found[order], labels[order]


def lost(source: Source, ids: Ids) -> Ids:
  """The subset of `ids` that none of the stores holds."""
  held = [read_ids(resolve(source.root, store)) for store in source.stores]
  return np.setdiff1d(ids, np.concatenate([np.zeros(0, np.int64), *held]))
