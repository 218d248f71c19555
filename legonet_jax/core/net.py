"""A LegoNet as arrays: its state, what a call reports, and what training reads.

Everything is a pytree of arrays of at most 32 bits, with the settings as static
metadata, so that states can be stacked, sharded, scanned over and saved.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from legonet_jax.core import keys as keys_lib
from legonet_jax.core.config import LegoConfig, for_prediction
from legonet_jax.core.data import NO_ID
from legonet_jax.core.model import Model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class State:
  """A LegoNet on N rows. Rows that stand for no sample are N, adapters for none are n.

  Attributes:
    cfg: the settings, static; their seed is 0, because `seed` is an array.
    seed: uint32.
    options: settings of the solver that are traced, by name.
    order: [N] int32, all rows in hash order.
    retained: [N] bool.
    anchors: [n] int32, rows of x*_j in hash order; N without an anchor.
    names: [n, 2] uint32, the stable id of each adapter: its anchor's, or its index.
    keys: K [n, d] int8, in code units.
    routes: [N, k] int32, nearest first; n in rows that are not retained.
    sizes: [n] int32, |D_aj|.
    live: [n] bool; False for an adapter without members, or that waits for training.
    solutions: W [n, C, d], undecided [n], and statistics [n, ...] if they are kept.
  """

  cfg: LegoConfig = dataclasses.field(metadata={"static": True})
  seed: jax.Array
  options: dict[str, jax.Array]
  order: jax.Array
  retained: jax.Array
  anchors: jax.Array
  names: jax.Array
  keys: jax.Array
  routes: jax.Array
  sizes: jax.Array
  live: jax.Array
  solutions: Any  # `Solution`, or None where the host keeps them apart

  def __repr__(self) -> str:
    n, dim = self.keys.shape[-2:]
    solver = type(self.cfg.solver).__name__
    return f"State({solver}, {n} adapters, {self.routes.shape[-2]} rows, width {dim})"

  @property
  def weights(self) -> jax.Array:
    """W [n, C, d], `solutions.weights`."""
    weights: jax.Array = self.solutions.weights
    return weights

  @property
  def model(self) -> Model:
    """What predictions need."""
    cfg = for_prediction(self.cfg)
    return Model(cfg, self.keys, self.weights, self.live)


class Info(NamedTuple):
  """What one call did; a status, never an exception.

  Attributes:
    adapters_retrained: how many adapters were trained or solved anew.
    samples_retrained: Σ |D_aj| over them.
    anchors_replaced: adapters whose key now belongs to another sample.
    undecided: entries of weights that are left to `finish`.
    overflow: adapters whose sums do not fit in 32 bits, or whose weights are not finite
      numbers; they take part in nothing.
    exact: whether the result is exact: all n adapters have keys, all scores with them
      are exact, nothing overflows, and the policy is not `keep`.
  """

  adapters_retrained: jax.Array
  samples_retrained: jax.Array
  anchors_replaced: jax.Array
  undecided: jax.Array
  overflow: jax.Array
  exact: jax.Array


class Change(NamedTuple):
  """How the state of one set of samples differs from that of another.

  Attributes:
    lost: [N, k] int32, adapters that each row left; n for none.
    won: [N, k] int32, adapters that each row joined; n for none.
    source: [n] int32, where each adapter stood, or -1 for a new one.
    touched: [n] int32: 0 if no member changed, 1 if some did, 2 if one left that the
      table no longer has.
    moved: bool, whether any anchor did.
    replaced: [n] bool, adapters whose key now belongs to another sample.
  """

  lost: jax.Array
  won: jax.Array
  source: jax.Array
  touched: jax.Array
  moved: jax.Array
  replaced: jax.Array


def specs(state: State, axis_name: str) -> State:
  """For `shard_map` over adapters: a PartitionSpec for each array of a state."""
  whole: Any = PartitionSpec()  # type: ignore[no-untyped-call]
  split: Any = PartitionSpec(axis_name)  # type: ignore[no-untyped-call]
  everywhere: State = jax.tree.map(lambda _: whole, state)
  solutions = jax.tree.map(lambda _: split, state.solutions)
  return dataclasses.replace(everywhere, live=split, solutions=solutions)


def own(state: State, axis_name: str | None) -> tuple[jax.Array, jax.Array]:
  """The first of this device's adapters, and all of them [m]."""
  m = len(state.live)
  index = jnp.int32(0) if axis_name is None else jax.lax.axis_index(axis_name)
  first = index.astype(jnp.int32) * m
  return first, first + jnp.arange(m, dtype=jnp.int32)


def report(
  state: State,
  retrained: jax.Array,
  replaced: jax.Array,
  mine: jax.Array,
  axis_name: str | None,
) -> Info:
  """The report of a call that led to `state`.

  Args:
    state: the new state.
    retrained: [m] bool, of this device's adapters.
    replaced: [n] bool.
    mine: [m] this device's adapters.
    axis_name: as for `update`.
  """
  undecided = state.solutions.undecided
  counts = jnp.stack(
    [
      jnp.sum(retrained, dtype=jnp.int32),
      jnp.sum(jnp.where(retrained, state.sizes[mine], 0)),
      jnp.sum(jnp.maximum(undecided, 0)),
      jnp.sum(undecided < 0, dtype=jnp.int32),
    ]
  )
  if axis_name is not None:
    counts = jax.lax.psum(counts, axis_name)  # type: ignore[no-untyped-call]
  exact = keys_lib.are_exact(state.keys) & (state.cfg.key_policy != "keep")
  complete = jnp.all(state.names[:, 0] != NO_ID) | ~jnp.any(state.retained)
  return Info(
    adapters_retrained=counts[0],
    samples_retrained=counts[1],
    anchors_replaced=jnp.sum(replaced, dtype=jnp.int32),
    undecided=counts[2],
    overflow=counts[3],
    exact=exact & complete & (counts[3] == 0),
  )
