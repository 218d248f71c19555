"""Whether arrays from a disk are those of a state: kinds, ranges, order, consistency.

Files are hostile until checked. A state of arrays that pass can be served and updated
without surprises; whether it is the right one, only its digest and the samples tell.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import features, ids as ids_lib
from legonet_jax.core.config import LegoConfig, fingerprint

LARGEST_WEIGHT = 2**30  # see `rounding.choose_grid`


def validate(arrays: Mapping[str, Any], cfg: LegoConfig, old: bool = False) -> None:
  """Raises DataError with the first thing that is wrong.

  Args:
    arrays: what `state.to_arrays` returned.
    cfg: the settings of the fit.
    old: whether they are of an earlier version, whose weights were other numbers.
  """
  found = {name: np.asarray(array) for name, array in arrays.items()}
  chunks = found.pop("chunks", None)  # of version 0.3, which nothing reads
  for wrong in _faults(found, cfg, old):
    raise errors.DataError(f"the arrays are not those of a state: {wrong}")
  if chunks is not None and not old and not _are_chunks(chunks, cfg, found["ids"]):
    raise errors.DataError("the arrays are not those of a state: other chunks")


def _are_chunks(chunks: NDArray[Any], cfg: LegoConfig, ids: NDArray[Any]) -> bool:
  """Whether these are the sizes of the 256 chunks into which version 0.3 cut a set."""
  first = (ids_lib.hash_ids(cfg.seed, ids) >> np.uint64(56)).astype(np.intp)
  wanted = np.bincount(first, minlength=256).astype(np.int64)
  return chunks.dtype == wanted.dtype and np.array_equal(chunks, wanted)


def shapes(cfg: LegoConfig, dim: int, count: int) -> dict[str, tuple[Any, ...]]:
  """By name, the shape and type of each array of a state of `count` samples."""
  n = cfg.num_adapters
  return {
    "keys": ((n, dim), "int8"),
    "weights": ((n, cfg.num_classes, dim), "int32" if _portable(cfg) else "float32"),
    "live": ((n,), "bool"),
    "anchors": ((n,), "int64"),
    "ids": ((count,), "int64"),
    "routes": ((count, cfg.top_k), "int32"),
    "prints": ((count, 16), "uint8"),
    "settings": ((32,), "uint8"),
  }


def _faults(
  found: dict[str, NDArray[Any]], cfg: LegoConfig, old: bool
) -> Iterator[str]:
  dim = found["keys"].shape[-1] if "keys" in found else 0
  wanted = shapes(cfg, dim, found["ids"].shape[0] if "ids" in found else 0)
  there = {name: (a.shape, a.dtype.name) for name, a in found.items()}
  if old and "weights" in there:
    wanted["weights"] = (wanted["weights"][0], there["weights"][1])
  if there != wanted:
    other = [k for k in {**there, **wanted} if there.get(k) != wanted.get(k)]
    yield f"{other[0]} has another shape or type, or is missing"
    return
  if not old and not np.array_equal(found["settings"], fingerprint(cfg)):
    yield "other settings"
  ids, anchors, routes = found["ids"], found["anchors"], found["routes"]
  n, live = cfg.num_adapters, found["live"]
  if (ids < 0).any():
    yield "an id is negative"
  if not np.array_equal(ids, ids[ids_lib.hash_order(cfg.seed, ids)]):
    yield "ids are not in the order of their hashes"
  if len(np.unique(ids)) != len(ids):
    yield "an id occurs twice"
  first = {"replace": ids[:n], "given": np.arange(n)}.get(cfg.key_policy, anchors)
  if not np.array_equal(anchors, first) or (anchors < 0).any():
    yield "the anchors are not the first samples"
  if len(np.unique(anchors)) != n:
    yield "a sample is an anchor twice"
  if (np.abs(found["keys"].astype(int)) > features.levels(cfg, dim)).any():
    yield "a key has a code that is too large"
  if (routes < 0).any() or (routes >= n).any():
    yield "a route leads to an adapter that is not there"
    return
  ordered = np.sort(routes, axis=1)
  if (ordered[:, 1:] == ordered[:, :-1]).any():
    yield "a sample activates an adapter twice"
  weights, empty = found["weights"], np.bincount(routes.ravel(), minlength=n) == 0
  if live[empty].any():
    yield "an adapter without members is live"
  if weights[~live].any():
    yield "an adapter that is not live has weights"
  if _portable(cfg) and not old:
    if (weights > LARGEST_WEIGHT).any() or (weights < -LARGEST_WEIGHT).any():
      yield "a weight is too large"
  elif not np.isfinite(weights).all():
    yield "a weight is not a finite number"


def _portable(cfg: LegoConfig) -> bool:
  return bool(cfg.solver.portable)
