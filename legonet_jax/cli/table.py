"""Rows for a command, from an encoding store or an `.npz` file, all of them checked."""

from __future__ import annotations

import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import legonet_jax as lego
from legonet_jax import errors


class InputTable(NamedTuple):
  """Rows, and the names of their labels if they are known."""

  rows: lego.store.rows.StoreRows
  classes: lego.store.read.Classes


def read_table(path: pathlib.Path, labels: bool = True) -> InputTable:
  """Rows of a store or of an `.npz` with encodings, labels, ids, split and classes.

  Args:
    path: the folder or the file.
    labels: whether an `.npz` needs labels.

  Raises:
    DataError: if it is neither, or a column is wrong.
  """
  if lego.store.read.is_store(path):
    found = lego.store.rows.read(path)
    lego.data.encodings.check_numbers(path, found.encodings)
    return InputTable(found, lego.store.read.classes_of(path))
  if path.is_dir() or not path.exists():
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
  """The rows of `ids` [m]; UnknownIdError if one is not there."""
  unknown = np.setdiff1d(ids, rows.ids)
  if len(unknown):
    raise errors.UnknownIdError(
      f"{where} has no sample with id {unknown[0]}; check the ids"
    )
  return take(rows, np.isin(rows.ids, ids))


def match_labels(
  table: InputTable,
  classes: lego.store.read.Classes,
  where: pathlib.Path,
  numbers: bool,
) -> lego.store.rows.StoreRows:
  """The rows with labels as numbers of a run's classes.

  Args:
    table: what was read.
    classes: the run's names of labels 0 ... C-1, if it has any.
    where: what was read, for messages.
    numbers: the caller says that labels are the run's numbers already.

  Raises:
    SamplesMismatchError: if only one of the two has names.
    SampleError: if a label's name is none of the classes.
  """
  if numbers or (table.classes is None and classes is None):
    return table.rows
  if table.classes is None:
    raise errors.SamplesMismatchError(
      f"{where} does not name its classes, and the run does; add an array `classes` to"
      " it, or say that its labels are the run's numbers with --label-numbers"
    )
  if classes is None:
    raise errors.SamplesMismatchError(
      f"{where} names its classes, and the run does not; if its labels are the run's"
      " numbers all the same, say so with --label-numbers"
    )
  labels = lego.store.rows.renumber(
    table.rows.labels, table.classes, classes, str(where)
  )
  return table.rows._replace(labels=labels)
