"""One arithmetic, whatever flags the caller's process has set.

`jax_enable_x64`, `jax_threefry_partitionable`, `jax_default_matmul_precision`,
`jax_default_prng_impl` and the like belong to the caller, but a state made under one
setting and unlearned under another would be neither of two refits. So states and
encodings are made under settings of their own. PRNG keys name their implementation (see
`ids.fold_in_id`): the generator `rbg` is not independent of its place under `vmap`.
"""

from collections.abc import Iterator
import contextlib

import jax


@contextlib.contextmanager
def pinned() -> Iterator[None]:
  """A context, or a decorator, in which all states and encodings are made."""
  with (
    jax.enable_x64(False),
    jax.threefry_partitionable(True),
    jax.default_matmul_precision("highest"),
    jax.numpy_dtype_promotion("standard"),  # optax's Adam needs it
  ):
    yield
