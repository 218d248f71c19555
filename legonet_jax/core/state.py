"""The state of a model: a fit returns it, and later requests start from it."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from legonet_jax import errors
from legonet_jax.core import (
  keys as keys_lib,
  membership,
  retained as retained_lib,
  routing,
  weights as weights_lib,
)
from legonet_jax.core.config import LegoConfig, fingerprint, is_portable
from legonet_jax.core.ids import Ids
from legonet_jax.core.model import Model, settings_of
from legonet_jax.core.retained import Retained, RetainedRows
from legonet_jax.core.solver import LargeArray
from legonet_jax.core.weights import Weights
from legonet_jax.runtime import machine

NO_ANCHOR = -1
_OF_MODEL = ("keys", "weights", "live")


class LegoState(NamedTuple):
  """The result of a fit, and the start of later requests.

  Attributes:
    model: keys, weights and live adapters, on the device.
    anchors: [n] int64, the stable id of each adapter: the id of its anchor, or its
      index under the policy `given`.
    retained: the retained set in hash order, with routes and fingerprints, in chunks.
    sizes: [n] int64, |D_aj|.
    settings: [32] uint8, the fingerprint of the settings.
    notes: [n] data that the solver keeps for each adapter to be faster, or None. Not
      part of the digest: without them a request takes longer, but gives the same bits.
  """

  model: Model
  anchors: Ids
  retained: Retained
  sizes: NDArray[np.int64]
  settings: NDArray[np.uint8]
  notes: tuple[Any, ...]

  @property
  def ids(self) -> Ids:
    """[N] int64, the retained set, in hash order."""
    return retained_lib.column(self.retained, "ids")

  @property
  def routes(self) -> NDArray[np.int32]:
    """[N, k] int32, the adapters that each sample activates, nearest first."""
    return retained_lib.column(self.retained, "routes")

  @property
  def prints(self) -> NDArray[np.uint8]:
    """[N, 16] uint8, the fingerprints of the samples."""
    return retained_lib.column(self.retained, "prints")


def untrained(cfg: LegoConfig, dim: int, keys: ArrayLike | None) -> LegoState:
  """The state of the empty set; `keys` only under the policy `given`."""
  _check_memory(cfg, dim)
  n = cfg.num_adapters
  points, anchors = np.zeros((n, dim), np.int8), np.full(n, NO_ANCHOR, np.int64)
  if keys is not None:
    points, anchors = keys_lib.keys_given(cfg, keys, dim), np.arange(n, dtype=np.int64)
  return LegoState(
    model=Model(
      keys=jnp.asarray(points),
      weights=_blank(cfg, dim),
      live=jnp.zeros(n, bool),
      settings=settings_of(cfg),
    ),
    anchors=anchors,
    retained=retained_lib.empty(cfg.top_k),
    sizes=np.zeros(n, np.int64),
    settings=fingerprint(cfg),
    notes=(None,) * n,
  )


def _blank(cfg: LegoConfig, dim: int) -> Any:
  """Weights that nothing reads, and that take no memory."""
  if is_portable(cfg):
    return weights_lib.zeros(cfg.num_adapters, cfg.num_classes, dim)
  return np.broadcast_to(np.float32(0), (cfg.num_adapters, cfg.num_classes, dim))


def to_arrays(state: LegoState) -> dict[str, NDArray[Any]]:
  """The whole state as plain arrays by name, without `notes`."""
  return {
    **{name: np.asarray(getattr(state.model, name)) for name in _OF_MODEL},
    "anchors": state.anchors,
    **retained_lib.join(state.retained)._asdict(),
    "chunks": retained_lib.counts(state.retained),
    "settings": state.settings,
  }


def from_arrays(
  arrays: dict[str, NDArray[Any]], cfg: LegoConfig | None = None
) -> LegoState:
  """The state that `to_arrays` was given; the first requests may take longer.

  Args:
    arrays: what `to_arrays` returned.
    cfg: the settings of the fit, which `predict` then requires (see `Model.settings`);
      if not given, `predict` takes any settings.
  """
  rows = RetainedRows(arrays["ids"], arrays["routes"], arrays["prints"])
  n = len(arrays["anchors"])
  keys, live = jnp.asarray(arrays["keys"]), jnp.asarray(arrays["live"])
  weights: Any = arrays["weights"]
  whole = weights.dtype.kind == "i"
  weights = Weights.of(weights) if whole else jnp.asarray(weights)
  return LegoState(
    model=Model(keys, weights, live, None if cfg is None else settings_of(cfg)),
    anchors=arrays["anchors"],
    retained=retained_lib.split(rows, arrays["chunks"]),
    sizes=membership.sizes_of(rows.routes, n),
    settings=arrays["settings"],
    notes=(None,) * n,
  )


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
