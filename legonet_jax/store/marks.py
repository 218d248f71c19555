"""Which samples a store has erased: keyed marks, in a file of the store.

    erased.marks    a random key of 32 bytes; how many rows were erased before there
                    were marks, 8 bytes; then 16 bytes for each erased id

    mark(id) = first 128 bits of HMAC-SHA256(key, id)

A store may serve several runs. What one of them erases is gone for all, and the others
must tell an erased row from one that somebody has lost. So the store itself says which
ids it has erased: whoever knows an id can look it up. A mark is on disk before its row
is overwritten, so every row that was ever erased has one. A write that a crash has cut
off leaves less than a mark at the end, which counts for nothing.
"""

from collections.abc import Iterable
import hmac
import os
import pathlib
import secrets

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core.ids import Ids
from legonet_jax.io import durable, files, untrusted

FILE = "erased.marks"
_KEY, _HEAD, _MARK = 32, 40, 16


def mark(key: bytes, ids: Ids) -> list[str]:
  """The marks of `ids` [m] in hexadecimal, in their order."""
  raw = np.ascontiguousarray(ids, "<i8").tobytes()
  parts = (raw[i : i + 8] for i in range(0, len(raw), 8))
  return [hmac.digest(key, part, "sha256")[:_MARK].hex() for part in parts]


def find_marked(key: bytes, marks: Iterable[str], ids: Ids) -> NDArray[np.bool_]:
  """Which of `ids` [m] are marked."""
  known = frozenset(marks)
  if not known:
    return np.zeros(len(ids), bool)
  return np.asarray([m in known for m in mark(key, ids)], bool)


def find_erased(path: pathlib.Path, ids: Ids) -> NDArray[np.bool_]:
  """Which of `ids` [m] the store in `path` has erased."""
  head, marks = read(path)
  return find_marked(head[:_KEY], marks, ids)


def count_unmarked(path: pathlib.Path, erased: int) -> int:
  """How many of the `erased` rows of a store have no marks: version 0.3 made none."""
  head, _ = read(path)
  return int.from_bytes(head[_KEY:], "little") if head else erased


def add(path: pathlib.Path, ids: Ids, erased: int) -> None:
  """Marks `ids` [m] as erased, durable when this returns; the caller holds the lock.

  Args:
    path: the store.
    ids: what is about to be erased.
    erased: how many rows were erased before, by the store's own count.
  """
  if not len(ids):
    return
  head, marks = read(path)
  if not head:
    head = secrets.token_bytes(_KEY) + erased.to_bytes(_HEAD - _KEY, "little")
    durable.write(path / FILE, head)
  new = [m for m in mark(head[:_KEY], ids) if m not in marks]
  flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
  handle = os.open(path / FILE, flags)
  try:
    os.lseek(handle, _HEAD + _MARK * len(marks), os.SEEK_SET)
    files.write_all(handle, bytes.fromhex("".join(new)))
    files.flush(handle)
  finally:
    os.close(handle)


def is_whole(path: pathlib.Path) -> bool:
  """Whether a store's file of marks ends with a whole mark."""
  return ((path / FILE).stat().st_size - _HEAD) % _MARK == 0


def read(path: pathlib.Path) -> tuple[bytes, dict[str, None]]:
  """The head of a store's file of marks, or b"" without one, and the marks in order.

  Raises:
    StoreError: if the file is damaged.
  """
  if not os.path.lexists(path / FILE):
    return b"", {}
  try:
    data = untrusted.read_bytes(path / FILE, follow=False, limit=1 << 32)
  except (errors.DataError, OSError) as e:
    raise errors.StoreError(f"{path / FILE} cannot be read ({e})") from None
  if len(data) < _HEAD:
    raise errors.StoreError(f"{path / FILE} is damaged; restore the store from a copy")
  ends = range(_HEAD + _MARK, len(data) + 1, _MARK)
  found = [data[end - _MARK : end].hex() for end in ends]
  marks = dict.fromkeys(found)
  if len(marks) != len(found):
    raise errors.StoreError(f"{path / FILE} names a row twice; restore it from a copy")
  return data[:_HEAD], marks
