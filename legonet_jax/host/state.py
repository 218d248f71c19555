"""The state of a model: a fit returns it, and later requests start from it.

It is a state of `functional`, with what a host adds: which sample each row is, and one
solution per adapter, which old and new states share. So a request copies none of the
adapters that it does not change.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from legonet_jax import errors
from legonet_jax.core import ids as ids_lib, keys as keys_lib, routing
from legonet_jax.core.config import LegoConfig, fingerprint, for_prediction, for_routes
from legonet_jax.core.data import NO_ID
from legonet_jax.core.ids import Ids
from legonet_jax.core.model import Model
from legonet_jax.core.net import State
from legonet_jax.core.solver import LargeArray, Solution
from legonet_jax.runtime import machine

NO_ANCHOR = -1


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
  """Which samples a state holds, in the order of its rows; it knows no others.

  Attributes:
    ids: [m] int64, increasing: of the retained rows.
    prints: [m, 16] uint8, their fingerprints.
    table: the `Samples.table` that the rows are those of, or None.
  """

  ids: Ids
  prints: NDArray[np.uint8]
  table: object = None


@functools.partial(
  jax.tree_util.register_dataclass,
  data_fields=["net", "solutions"],
  meta_fields=["cfg", "rows"],
)
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LegoState:
  """The result of a fit, and the start of later requests; it never changes.

  Attributes:
    cfg: the settings of the fit.
    rows: which samples the retained rows of `net` are.
    net: anchors, keys, routes and sizes, on the device; its `solutions` are None.
    solutions: weights, and statistics or None, of each adapter. Statistics are not part
      of the digest: without them a request takes longer, but gives the same bits.
  """

  cfg: LegoConfig
  rows: Rows
  net: State
  solutions: tuple[Solution, ...]

  def __repr__(self) -> str:
    n, dim = self.net.keys.shape
    solver = type(self.cfg.solver).__name__
    return (
      f"LegoState({solver}, {n} adapters, {len(self.rows.ids)} samples, width {dim})"
    )

  @functools.cached_property
  def order(self) -> NDArray[np.intp]:
    """Which of the retained rows [m] comes first in hash order, second, ..."""
    return ids_lib.hash_order(self.cfg.seed, self.rows.ids)

  @property
  def ids(self) -> Ids:
    """[m] int64, the retained set, in hash order."""
    return self.rows.ids[self.order]

  @property
  def routes(self) -> NDArray[np.int32]:
    """[m, k] int32, the adapters that each sample activates, nearest first."""
    held = np.flatnonzero(self.net.retained)
    return np.asarray(self.net.routes)[held[self.order]]

  @property
  def prints(self) -> NDArray[np.uint8]:
    """[m, 16] uint8, the fingerprints of the samples."""
    return self.rows.prints[self.order]

  @functools.cached_property
  def anchors(self) -> Ids:
    """[n] int64, the stable id of each adapter: its anchor's, or its index; or -1."""
    words = np.asarray(self.net.names)
    return np.where(words[:, 0] == NO_ID, NO_ANCHOR, ids_lib.from_words(words))

  @property
  def sizes(self) -> NDArray[np.int32]:
    """|D_aj| [n]."""
    return np.asarray(self.net.sizes)

  @property
  def live(self) -> NDArray[np.bool_]:
    """[n], False for an adapter without members, or that waits for its training."""
    return np.asarray(self.net.live)

  @property
  def weights(self) -> NDArray[Any]:
    """W [n, C, d], a copy."""
    return np.stack([np.asarray(s.weights) for s in self.solutions])

  @functools.cached_property
  def model(self) -> Model:
    """What predictions need; put together when it is first asked for."""
    each = [s.weights for s in self.solutions]
    traced = isinstance(each[0], jax.core.Tracer)
    weights = jnp.stack(each) if traced else jnp.asarray(np.stack(each))
    return Model(for_prediction(self.cfg), self.net.keys, weights, self.net.live)

  @property
  def settings(self) -> NDArray[np.uint8]:
    """[32] uint8, the fingerprint of the settings."""
    return fingerprint(self.cfg)


def require_state(state: Any) -> None:
  """Raises ConfigError if `state` is none of the host API."""
  if isinstance(state, State):
    raise errors.ConfigError(
      "this is a state of functional; lego.to_host makes it one of the host API"
    )
  if not isinstance(state, LegoState):
    raise errors.ConfigError(
      f"a {type(state).__name__} is not a state; give what `fit` returns first"
    )


def untrained(cfg: LegoConfig, dim: int, keys: ArrayLike | None) -> LegoState:
  """The state of the empty set; `keys` only under the policy `given`."""
  _check_memory(cfg, dim)
  n = cfg.num_adapters
  points, anchors = np.zeros((n, dim), np.int8), np.full(n, NO_ANCHOR)
  if keys is not None:
    points, anchors = keys_lib.keys_given(cfg, keys, dim), np.arange(n)
  state = from_arrays(
    {
      "keys": points,
      "weights": (),
      "live": np.zeros(n, bool),
      "anchors": anchors,
      "ids": np.zeros(0, np.int64),
      "routes": np.zeros((0, cfg.top_k), np.int32),
      "prints": np.zeros((0, 16), np.uint8),
    },
    cfg,
  )
  return dataclasses.replace(state, solutions=(blank(cfg, dim),) * n)


def blank(cfg: LegoConfig, dim: int) -> Solution:
  """The solution of an adapter that is not trained."""
  kind = np.int32 if cfg.solver.portable else np.float32
  weights = np.zeros((cfg.num_classes, dim), kind)
  weights.setflags(write=False)
  return Solution(weights, np.int32(0), None)


def to_arrays(state: LegoState) -> dict[str, NDArray[Any]]:
  """The whole state as plain arrays by name, without statistics."""
  return {
    "keys": np.asarray(state.net.keys),
    "weights": state.weights,
    "live": state.live,
    "anchors": state.anchors,
    "ids": state.ids,
    "routes": state.routes,
    "prints": state.prints,
    "settings": state.settings,
  }


def from_arrays(arrays: dict[str, Any], cfg: LegoConfig) -> LegoState:
  """The state that `to_arrays` was given; the first requests may take longer.

  Args:
    arrays: what `to_arrays` returned.
    cfg: the settings of the fit.
  """
  n = cfg.num_adapters
  order = np.argsort(arrays["ids"], kind="stable")
  rows = Rows(arrays["ids"][order], np.asarray(arrays["prints"])[order])
  routes, count = np.asarray(arrays["routes"])[order].astype(np.int32), len(order)
  anchors = np.asarray(arrays["anchors"])
  words = ids_lib.to_words(anchors)
  words[anchors == NO_ANCHOR] = NO_ID
  net = State(
    cfg=for_routes(cfg),
    seed=jnp.asarray(np.uint32(cfg.seed)),
    options={},
    order=jnp.asarray(np.arange(count, dtype=np.int32)),
    retained=jnp.asarray(np.ones(count, bool)),
    anchors=jnp.asarray(find_rows(cfg, rows.ids, anchors, count)),
    names=jnp.asarray(words),
    keys=jnp.asarray(arrays["keys"]),
    routes=jnp.asarray(routes),
    sizes=jnp.asarray(count_members(routes, n)),
    live=jnp.asarray(arrays["live"]),
    solutions=None,
  )
  solutions = [Solution(w, np.int32(0), None) for w in np.asarray(arrays["weights"])]
  return LegoState(cfg, rows, net, tuple(solutions))


def count_members(routes: NDArray[np.int32], n: int) -> NDArray[np.int32]:
  """|D_aj| [n] of routes [N, k]."""
  return np.bincount(routes.ravel(), minlength=n + 1)[:n].astype(np.int32)


def find_rows(
  cfg: LegoConfig, table: Ids, anchors: Ids, none: int
) -> NDArray[np.int32]:
  """The rows [n] of `anchors` [n] in a `table` [N] of ids, `none` where it has none."""
  at, there = ids_lib.locate(table, anchors)
  return np.where(there & (cfg.key_policy != "given"), at, none).astype(np.int32)


def _check_memory(cfg: LegoConfig, dim: int) -> None:
  """Raises ConfigError if a single array of a fit exceeds this machine's memory.

  A system that overcommits memory would kill the process without a message.
  """
  n, classes, block = cfg.num_adapters, cfg.num_classes, routing.LARGEST_BLOCK
  arrays = [
    LargeArray("weights [num_adapters, num_classes, width]", (n, classes, dim), 4),
    LargeArray("scores [samples, num_adapters] of one block", (block, n), 4),
  ]
  arrays += cfg.solver.largest_arrays(cfg, dim)
  memory = machine.memory_bytes()
  if memory is None:  # the system does not tell
    return
  for what, shape, size in arrays:
    needed = size * math.prod(shape)
    if needed > memory:
      raise errors.ConfigError(
        f"{what} of {list(shape)} take {needed / 1e9:,.1f} GB, and this machine has"
        f" {memory / 1e9:,.1f}; lower one of these settings"
      )
