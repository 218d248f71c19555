"""W [n, C, d] as n arrays that states share: a request copies none of the others.

At n = 1000 and C = 100 all weights take 200 MB, and a request changes ten of a thousand
adapters. So the integer weights of a state are a list of arrays [C, d] on the host. JAX
sees one array [n, C, d], which is put together when it is first needed.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray


@jax.tree_util.register_pytree_node_class
class Weights:
  """Integer weights W [n, C, d] of n adapters; never changes.

  A tree with one leaf, the whole array. It is made once and kept, and so are the rows
  of an array that came from JAX.
  """

  def __init__(self, rows: Iterable[NDArray[np.int32]]):
    self._rows: tuple[NDArray[np.int32], ...] | None = tuple(rows)
    self._whole: Any = None

  @classmethod
  def of(cls, array: Any) -> "Weights":
    """The weights of an array [n, C, d]: its rows on the host, or itself if of JAX."""
    if isinstance(array, jax.Array):
      return cls.tree_unflatten(None, (array,))
    return cls(array)

  @property
  def rows(self) -> Sequence[NDArray[np.int32]]:
    """W_j [C, d] int32 of each adapter, on the host."""
    if self._rows is None:
      self._rows = tuple(np.asarray(self._whole))
    return self._rows

  @property
  def whole(self) -> Any:
    """W [n, C, d], an array of JAX (or what JAX put in its place, in a transform)."""
    if self._whole is None:
      self._whole = jnp.asarray(np.stack(self.rows))
    return self._whole

  @property
  def whole_or_none(self) -> Any:
    """`whole` if it exists already."""
    return self._whole

  @property
  def shape(self) -> tuple[int, ...]:
    """(n, C, d)."""
    if self._rows is None:
      return tuple(self._whole.shape)
    return (len(self._rows), *self._rows[0].shape)

  @property
  def dtype(self) -> Any:
    """int32."""
    return np.dtype(np.int32) if self._rows is not None else self._whole.dtype

  def __len__(self) -> int:
    return self.shape[0]

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
    whole = np.asarray(self._whole) if self._rows is None else np.stack(self._rows)
    return whole if dtype is None else whole.astype(dtype)

  def block_until_ready(self) -> "Weights":
    """Returns itself; the rows are ready."""
    return self

  def tree_flatten(self) -> tuple[tuple[Any], None]:
    """The one leaf, for JAX."""
    return (self.whole,), None

  @classmethod
  def tree_unflatten(cls, _: None, children: tuple[Any]) -> "Weights":
    """Weights around the leaf, for JAX."""
    made = cls.__new__(cls)
    made._rows, made._whole = None, children[0]
    return made


def zeros(n: int, classes: int, dim: int) -> Weights:
  """n adapters without weights; all share one array."""
  blank = np.zeros((classes, dim), np.int32)
  blank.setflags(write=False)
  return Weights([blank] * n)


def exchange(
  weights: Weights, source: NDArray[np.intp], keep: NDArray[np.bool_]
) -> Weights:
  """The weights of adapters `source` [n] where `keep` [n], and zeros elsewhere."""
  blank = zeros(1, *weights.shape[1:]).rows[0]
  pairs = zip(source.tolist(), keep.tolist(), strict=True)
  return Weights([weights.rows[s] if kept else blank for s, kept in pairs])


def replace(weights: Weights, new: dict[int, NDArray[np.int32]]) -> Weights:
  """The weights with W_j [C, d] of some adapters replaced."""
  rows = list(weights.rows)
  for adapter, w in new.items():
    w.setflags(write=False)
    rows[adapter] = w
  return Weights(rows)
