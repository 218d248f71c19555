"""The retained set, in hash order, in chunks that old and new states share.

The cost of a request should not grow with the samples that it does not touch. So the
set is cut into 256 chunks by the first byte of hash(seed, id): a request replaces the
chunks of its own samples and reuses the others. The position of a sample still depends
only on the set. A chunk that loses a sample becomes a new array, which holds nothing of
that sample.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax.core import ids as ids_lib
from legonet_jax.core.ids import Ids

_CHUNKS = 256
_SHIFT = np.uint64(64 - 8)


class RetainedRows(NamedTuple):
  """Retained samples, in hash order.

  Attributes:
    ids: [m] int64.
    routes: [m, k] int32, the adapters that each sample activates, nearest first.
    prints: [m, 16] uint8, their fingerprints.
  """

  ids: Ids
  routes: NDArray[np.int32]
  prints: NDArray[np.uint8]


Retained = tuple[RetainedRows, ...]


def empty(top_k: int) -> Retained:
  """The empty set."""
  nothing = RetainedRows(
    np.zeros(0, np.int64), np.zeros((0, top_k), np.int32), np.zeros((0, 16), np.uint8)
  )
  return (_freeze(nothing),) * _CHUNKS


def count(retained: Retained) -> int:
  """N, the number of samples."""
  return sum(len(rows.ids) for rows in retained)


def column(retained: Retained, name: str) -> NDArray[Any]:
  """One column of the whole set [N, ...], as a copy."""
  return np.concatenate([getattr(rows, name) for rows in retained])


def take(rows: RetainedRows, index: Any) -> RetainedRows:
  """The rows at `index`: positions, a mask or a slice."""
  return RetainedRows(rows.ids[index], rows.routes[index], rows.prints[index])


def join(parts: Iterable[RetainedRows]) -> RetainedRows:
  """The rows of all `parts`, one after the other, as a copy."""
  ids, routes, prints = zip(*parts, strict=True)
  return RetainedRows(
    np.concatenate(ids), np.concatenate(routes), np.concatenate(prints)
  )


def split(rows: RetainedRows, counts: NDArray[np.int64]) -> Retained:
  """Cuts the set `rows` [N] into chunks of `counts` [256] rows."""
  ends = np.cumsum(counts)
  # Copies: a view would keep the whole old set in memory, with forgotten samples.
  spans = zip(counts.tolist(), ends.tolist(), strict=True)
  return tuple(_freeze(take(rows, np.arange(end - m, end))) for m, end in spans)


def counts(retained: Retained) -> NDArray[np.int64]:
  """The sizes [256] of the chunks, as `split` takes them."""
  return np.array([len(rows.ids) for rows in retained], np.int64)


def first(retained: Retained, number: int) -> Ids:
  """The first `number` ids in hash order, or all there are."""
  found, chunks = 0, []
  for rows in retained:
    if found >= number:
      break
    chunks.append(rows.ids)
    found += len(rows.ids)
  return np.concatenate(chunks)[:number]


def look_up(
  seed: int, retained: Retained, wanted: Ids
) -> tuple[NDArray[np.bool_], RetainedRows]:
  """Which of `wanted` [m] are in the set, and their rows, in the order of `wanted`."""
  hashes = ids_lib.hash_ids(seed, wanted)
  held = np.zeros(len(wanted), bool)
  parts, order = [take(retained[0], slice(0))], [np.zeros(0, np.intp)]
  for chunk, mine in _by_chunk(hashes):
    rows = retained[chunk]
    at = np.searchsorted(ids_lib.hash_ids(seed, rows.ids), hashes[mine])
    hit = at < len(rows.ids)
    hit[hit] = rows.ids[at[hit]] == wanted[mine[hit]]
    held[mine] = hit
    parts.append(take(rows, at[hit]))
    order.append(mine[hit])
  return held, take(join(parts), np.argsort(np.concatenate(order)))


def exchange(
  seed: int, retained: Retained, removed: Ids, added: RetainedRows
) -> Retained:
  """The set less the ids `removed` plus the rows `added`, both given in any order."""
  chunks = list(retained)
  for chunk, mine in _by_chunk(ids_lib.hash_ids(seed, removed)):
    keep = ~np.isin(chunks[chunk].ids, removed[mine])
    chunks[chunk] = take(chunks[chunk], keep)
  for chunk, mine in _by_chunk(ids_lib.hash_ids(seed, added.ids)):
    rows = join([chunks[chunk], take(added, mine)])
    chunks[chunk] = take(rows, ids_lib.hash_order(seed, rows.ids))
  return tuple(_freeze(rows) for rows in chunks)


def _by_chunk(hashes: NDArray[np.uint64]) -> list[tuple[int, NDArray[np.intp]]]:
  """The chunks that `hashes` [m] belong to, each with the positions of its hashes."""
  chunk = (hashes >> _SHIFT).astype(np.intp)
  order = np.argsort(chunk, kind="stable")
  unique, start = np.unique(chunk[order], return_index=True)
  return list(zip(unique.tolist(), np.split(order, start)[1:], strict=True))


def _freeze(rows: RetainedRows) -> RetainedRows:
  for array in rows:
    array.setflags(write=False)
  return rows
