"""Reads and checks the rows of an encoding store or an `.npz` file, for commands."""

from __future__ import annotations

from collections.abc import Sequence
import functools
import itertools
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import legonet_jax as lego
from legonet_jax import errors


class InputTable(NamedTuple):
  """Rows, and their class names if they are known."""

  rows: lego.store.rows.StoreRows
  classes: lego.store.read.Classes


def read_table(path: pathlib.Path, labels: bool = True) -> InputTable:
  """Rows of a store or of an `.npz` with encodings, labels, ids, split and classes.

  Args:
    path: the folder or the file.
    labels: whether an `.npz` needs labels.

  Raises:
    DataError: if `path` is neither, is not there, or has a wrong column.
  """
  if lego.store.read.is_store(path):
    found = lego.store.rows.read(path)
    lego.data.encodings.check_numbers(path, found.encodings)
    return InputTable(found, lego.store.read.classes_of(path))
  if not path.exists():
    raise errors.DataError(f"no file {path}; check the path")
  if path.is_dir():
    raise errors.DataError(f"{path} is neither an encoding store nor an .npz file")
  table = lego.data.encodings.read_encodings(path, labels)
  rows = lego.store.rows.StoreRows(
    table.encodings, table.labels, table.ids, table.split
  )
  return InputTable(rows, table.classes)


def take(
  rows: lego.store.rows.StoreRows, mask: NDArray[Any]
) -> lego.store.rows.StoreRows:
  """The rows where `mask` [N] holds."""
  return lego.store.rows.StoreRows(*(column[mask] for column in rows))


def take_ids(
  rows: lego.store.rows.StoreRows, ids: lego.core.ids.Ids, where: pathlib.Path
) -> lego.store.rows.StoreRows:
  """The rows of `ids` [m]; raises UnknownIdError if one is missing."""
  _require_ids(ids, rows.ids, str(where))
  return take(rows, np.isin(rows.ids, ids))


def _require_ids(ids: lego.core.ids.Ids, held: lego.core.ids.Ids, where: str) -> None:
  """Raises UnknownIdError if one of `ids` is not among those that `where` holds."""
  unknown = np.setdiff1d(ids, held)
  if len(unknown):
    raise errors.UnknownIdError(
      f"{where} has no sample with id {unknown[0]}; check the ids"
    )


def match_labels(
  table: InputTable,
  classes: lego.store.read.Classes,
  where: pathlib.Path,
  numbers: bool,
) -> lego.store.rows.StoreRows:
  """The rows, their labels translated to the run's numbers by class names.

  Args:
    table: the rows, with their own labels.
    classes: the run's names of labels 0 ... C-1, if it has any.
    where: the file or folder of the rows, for messages.
    numbers: whether the labels are the run's numbers already.

  Raises:
    SamplesMismatchError: if only one of table and run has names.
    SampleError: if the run has no class of that name.
  """
  if numbers or (table.classes is None and classes is None):
    return table.rows
  if table.classes is None:
    raise errors.SamplesMismatchError(
      f"{where} does not name its classes, but the run does; add an array `classes` to"
      " it, or give --label-numbers if its labels are the run's numbers"
    )
  if classes is None:
    raise errors.SamplesMismatchError(
      f"{where} names its classes, but the run does not; give --label-numbers if its"
      " labels are the run's numbers"
    )
  labels = lego.store.rows.renumber(
    table.rows.labels, table.classes, classes, str(where)
  )
  return table.rows._replace(labels=labels)


def read_samples(
  cfg: lego.LegoConfig,
  paths: Sequence[pathlib.Path],
  ids: lego.core.ids.Ids | None,
  classes: Sequence[str] | None,
) -> lego.Samples:
  """The samples of one model, from all stores and `.npz` files that hold some of them.

  Args:
    cfg: the model's settings.
    paths: the stores and files.
    ids: [m] which samples; all training rows if not given.
    classes: the model's names of labels 0 ... C-1, if it has any.

  Raises:
    DuplicateIdError: if an id is in two of them, or named twice.
    UnknownIdError: if one of `ids` is in none of them.
  """
  tables = [read_table(path) for path in paths]
  for i, j in itertools.combinations(range(len(paths)), 2):
    twice = np.intersect1d(tables[i].rows.ids, tables[j].rows.ids)
    if len(twice):
      raise errors.DuplicateIdError(
        f"id {twice[0]} is in {paths[i]} and in {paths[j]}; name each store once, and"
        " only stores of one run"
      )
  if ids is not None:
    held = np.concatenate([table.rows.ids for table in tables])
    _require_ids(lego.core.samples.check_ids(ids), held, ", ".join(map(str, paths)))
  parts = []
  for path, (rows, names) in zip(paths, tables, strict=True):
    train = rows.split == lego.data.dataset.TRAIN
    rows = take(rows, train if ids is None else np.isin(rows.ids, ids))
    labels = rows.labels
    if classes is not None and names is not None:
      labels = lego.store.rows.renumber(labels, names, tuple(classes), str(path))
    parts.append(lego.make_samples(cfg, rows.encodings, labels, rows.ids))
  return functools.reduce(lego.append, parts)
