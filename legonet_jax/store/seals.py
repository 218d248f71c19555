"""A seal for each row of a store, so that no row can change unseen.

    seal_i = SHA-256(salt_i, encoding_i, id_i, label_i, split_i)

    seals.npy    [N, 32] uint8, written once; its sha256 is in every record of the store
    salts.npy    [N, 16] uint8, random; the salt of a row goes when the row is erased

Sums of whole files tell nothing once a row was erased: they change with every erasure,
and whoever erases can write new ones. Seals stay as they were, so a run that has noted
their sha256 can tell rows that were erased from rows that were changed, whoever did it.
Without its salt the seal of an erased row tells nothing about what was in it.

Stores of version 0.3 and earlier have no seals.
"""

from collections.abc import Mapping
import hashlib
import math
import pathlib
import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legonet_jax.store import format

SALT, SEAL = 16, 32  # bytes
_BLOCK = 4096  # rows that are copied at a time


def make(
  columns: tuple[NDArray[Any], ...],
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
  """Salts [N, 16] and seals [N, 32] of the columns `format.ARRAYS` of N rows."""
  count = len(columns[0])
  salts = np.frombuffer(secrets.token_bytes(SALT * count), np.uint8)
  salts = salts.reshape(count, SALT)
  return salts, compute(salts, columns)


def compute(
  salts: NDArray[np.uint8], columns: tuple[NDArray[Any], ...]
) -> NDArray[np.uint8]:
  """The seals [N, 32] of rows with these salts; `columns` as for `make`."""
  parts = [np.ascontiguousarray(column) for column in (salts, *columns)]
  rows = [
    part.view(np.uint8).reshape(len(part), part.itemsize * math.prod(part.shape[1:]))
    for part in parts
  ]
  found = bytearray()
  for start in range(0, len(salts), _BLOCK):
    block = np.concatenate([row[start : start + _BLOCK] for row in rows], axis=1)
    found += b"".join(hashlib.sha256(row).digest() for row in block)
  return np.frombuffer(found, np.uint8).reshape(len(salts), SEAL)


def find_changed(
  path: pathlib.Path, arrays: Mapping[str, NDArray[Any]], live: NDArray[np.bool_]
) -> str:
  """What is wrong with the rows of a store, or "".

  Args:
    path: the store.
    arrays: its arrays, with erased rows.
    live: [N], which rows are not erased.
  """
  gone = np.asarray(arrays["ids"]) == format.ERASED
  blank = {"encodings": 0, "labels": format.ERASED, "split": 0, "salts": 0}
  for name in blank.keys() & arrays.keys():
    if (arrays[name][gone] != blank[name]).any():
      return f"an erased row still has something in {path / name}.npy"
  if "seals" not in arrays:
    return ""
  columns = tuple(arrays[name][live] for name in format.ARRAYS)
  found = compute(arrays["salts"][live], columns)
  wrong = (found != arrays["seals"][live]).any(axis=1)
  if wrong.any():
    ids = arrays["ids"][live][wrong]
    return f"{len(ids)} rows in {path} have changed, such as that of id {ids[0]}"
  return ""
