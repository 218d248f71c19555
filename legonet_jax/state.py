"""The state of a model: what a fit returns, and what later requests build on."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from legonet_jax import keys as keys_lib, membership, retained as retained_lib
from legonet_jax.config import LegoConfig, fingerprint
from legonet_jax.ids import Ids
from legonet_jax.prediction import Model
from legonet_jax.retained import Retained, Rows

NO_ANCHOR = -1


class LegoState(NamedTuple):
  """The result of a fit, and all that later requests build on.

  Attributes:
    model: keys, weights and live adapters, on the device.
    anchors: [n] int64, the stable id of each adapter: its anchor's, or under the policy
      `given` its index.
    retained: the retained set in hash order, with routes and fingerprints, in chunks.
    sizes: [n] int64, |D_aj|.
    settings: [32] uint8, the fingerprint of the settings.
    notes: [n] what the solver keeps of each adapter to be faster, or None. They are
      not part of the digest: without them a request gives the same bits, later.
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
  n = cfg.num_adapters
  points, anchors = np.zeros((n, dim), np.int8), np.full(n, NO_ANCHOR, np.int64)
  if keys is not None:
    points, anchors = keys_lib.keys_given(cfg, keys, dim), np.arange(n, dtype=np.int64)
  return LegoState(
    model=Model(
      keys=jnp.asarray(points),
      # Nothing reads them; a view of one zero takes no memory.
      weights=np.broadcast_to(np.float32(0), (n, cfg.num_classes, dim)),  # type: ignore[arg-type]
      live=jnp.zeros(n, bool),
    ),
    anchors=anchors,
    retained=retained_lib.empty(cfg.top_k),
    sizes=np.zeros(n, np.int64),
    settings=fingerprint(cfg),
    notes=(None,) * n,
  )


def to_arrays(state: LegoState) -> dict[str, NDArray[Any]]:
  """All that a state is, as plain arrays by name; `notes` are left out."""
  return {
    **{name: np.asarray(leaf) for name, leaf in state.model._asdict().items()},
    "anchors": state.anchors,
    **retained_lib.join(state.retained)._asdict(),
    "chunks": retained_lib.counts(state.retained),
    "settings": state.settings,
  }


def from_arrays(arrays: dict[str, NDArray[Any]]) -> LegoState:
  """The state that `to_arrays` was given; the first requests may take longer."""
  rows = Rows(arrays["ids"], arrays["routes"], arrays["prints"])
  n = len(arrays["anchors"])
  return LegoState(
    model=Model(*(jnp.asarray(arrays[name]) for name in Model._fields)),
    anchors=arrays["anchors"],
    retained=retained_lib.split(rows, arrays["chunks"]),
    sizes=membership.sizes_of(rows.routes, n),
    settings=arrays["settings"],
    notes=(None,) * n,
  )
