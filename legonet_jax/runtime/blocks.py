"""Host arrays in blocks of one fixed shape, so that one executable handles them all.

A jitted function compiles anew for every shape, and the last bit of a result may depend
on the shape of its computation. So rows are processed in blocks [size, ...], and the
last block is padded with zeros.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Out = TypeVar("Out", bound=NDArray[Any])


def pad(rows: NDArray[Any], size: int, dtype: Any = None) -> NDArray[Any]:
  """A new array [size, ...] of zeros with `rows` [m, ...] at its start, m <= size."""
  block = np.zeros((size, *rows.shape[1:]), dtype or rows.dtype)
  block[: len(rows)] = rows
  return block


def fill(
  out: Out,
  call: Callable[[NDArray[Any]], Any],
  take: Callable[[int, int], NDArray[Any]],
  size: int,
) -> Out:
  """Fills `out` [N, ...] with `call(block)` of N rows, block by block.

  Results are cut on the host: slicing a device array would compile for every length.

  Args:
    out: where the results go; returned.
    call: takes a block [size, ...] and returns a result for each of its rows.
    take: returns the rows start ... end - 1; at most one block of them is in memory.
    size: rows per block.
  """
  for start in range(0, len(out), size):
    end = min(start + size, len(out))
    out[start:end] = np.asarray(call(pad(take(start, end), size)))[: end - start]
  return out
