"""A model on disk: `save(path, state)` and `load(path)`, through orbax.

Orbax writes a folder, completely or not at all, with the settings and the digest of the
state in its metadata. `load` returns the same state, bit for bit; it checks the digest.

A run (`legonet fit`) does more: it also journals requests and erases what they forget.
If a sample is forgotten, you must delete the models that you saved before.
"""

from collections.abc import Iterator, Mapping
import contextlib
import math
import os
import pathlib
from typing import Any
import warnings

import numpy as np

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig, describe
from legonet_jax.host.digest import digest
from legonet_jax.host.state import LegoState, from_arrays, require_state, to_arrays
from legonet_jax.host.validate import shapes, validate
from legonet_jax.io.files import PathLike
from legonet_jax.runtime import flags
from legonet_jax.solvers.settings import check_round_trip, parse_config

_FORMAT = "legonet-jax model 2"


@flags.host_only()
def save(path: PathLike, state: LegoState, overwrite: bool = False) -> None:
  """Saves a state, with its settings, in a new folder.

  Args:
    path: the folder.
    state: the state to save, without its statistics, which can be computed again.
    overwrite: replace an existing model.

  Raises:
    ConfigError: if the settings hold a function.
    StoreError: if the folder exists already, or cannot be written.
  """
  require_state(state)
  check_round_trip(state.cfg)
  path = pathlib.Path(path).absolute()
  if path.exists() and not (overwrite and _is_model(path)):
    cure = "overwrite=True replaces a model" if _is_model(path) else "name a new folder"
    raise errors.StoreError(f"{path} exists already; {cure}")
  about = {"format": _FORMAT, "config": describe(state.cfg), "digest": digest(state)}
  try:
    with _orbax() as ocp:
      ocp.save(
        path,
        to_arrays(state),
        overwrite=overwrite,
        custom_metadata=about,
      )
  except (OSError, ValueError) as e:  # from the system, or from tensorstore
    raise errors.StoreError(f"cannot save a model in {path} ({_line(e)})") from e


def load(path: PathLike) -> LegoState:
  """The state that `save` was given.

  Args:
    path: the folder.

  Raises:
    StoreError: if it is not a saved model, or damaged, or if the module of its solver
      is not imported.
  """
  path = pathlib.Path(path).absolute()
  if not path.is_dir():
    raise errors.StoreError(f"there is no folder {path}; check the path")
  if (path / "run.json").exists():
    raise errors.StoreError(f"{path} is a run; open it with legonet_jax.runs.run.load")
  try:
    with _orbax() as ocp:
      found = ocp.metadata(path)
      cfg, wanted = _read_about(path, found.custom_metadata)
      tree = {name: _abstract(leaf) for name, leaf in found.metadata.items()}
      _check_shapes(path, cfg, tree)
      arrays = ocp.load(path, tree)
      validate(arrays, cfg)
      state = from_arrays(arrays, cfg)
  except (errors.ConfigError, errors.StoreError):
    raise
  except Exception as e:  # orbax raises many types, some with several lines
    raise errors.StoreError(
      f"{path} is not a saved model, or damaged ({_line(e)}); restore it from a copy"
    ) from e
  if digest(state) != wanted:
    raise errors.StoreError(
      f"{path} holds a different state than was saved; restore it from a copy"
    )
  return state


def _read_about(path: pathlib.Path, about: Any) -> tuple[LegoConfig, str]:
  """Settings and digest from the metadata."""
  if not isinstance(about, dict) or about.get("format") != _FORMAT:
    raise errors.StoreError(
      f"{path} is not a model of this version of legonet-jax; fit it"
      " again, or open it with the version that saved it"
    )
  try:
    return parse_config(about["config"]), str(about["digest"])
  except (errors.LegoError, KeyError, TypeError) as e:
    raise errors.StoreError(f"the settings in {path} cannot be read ({e})") from None


def _abstract(leaf: Any) -> np.ndarray[Any, Any]:
  """Tells orbax to restore a leaf as a host array; takes no memory yet."""
  zero: np.ndarray[Any, Any] = np.zeros((), leaf.dtype)
  return np.broadcast_to(zero, leaf.shape)


def _check_shapes(path: pathlib.Path, cfg: LegoConfig, tree: Mapping[str, Any]) -> None:
  """Raises StoreError if the arrays are not a state's, before memory is allocated."""
  wanted = shapes(cfg, tree["keys"].shape[-1], tree["ids"].shape[0])
  if "chunks" in tree:  # of version 0.3, which nothing reads
    wanted["chunks"] = ((math.prod(tree["chunks"].shape),), "int64")
  there = {name: (leaf.shape, leaf.dtype.name) for name, leaf in tree.items()}
  if there != wanted:
    raise errors.StoreError(f"the arrays in {path} are not those of a state")
  # Arrays are not compressed, so they cannot be larger than their files.
  needed = sum(a.dtype.itemsize * math.prod(a.shape) for a in tree.values())
  size = sum(
    os.lstat(os.path.join(folder, name)).st_size
    for folder, _, names in os.walk(path)
    for name in names
  )
  if needed > size:
    raise errors.StoreError(
      f"{path} is damaged: arrays of {needed} bytes in files of {size}; restore it from"
      " a copy"
    )


def _is_model(path: pathlib.Path) -> bool:
  try:
    with _orbax() as ocp:
      about = ocp.metadata(path).custom_metadata
  except Exception:  # orbax raises many types if the folder is not its own
    return False
  return isinstance(about, dict) and about.get("format") == _FORMAT


@contextlib.contextmanager
def _orbax() -> Iterator[Any]:
  """Orbax's current API, set to store arrays uncompressed."""
  # Imported here: it takes half a second, which only saving and loading need.
  from orbax.checkpoint import v1 as ocp

  context = ocp.Context()
  context.array.saving.use_compression = False
  with warnings.catch_warnings(), context:
    # Orbax warns about int64 host arrays, but keeps them unchanged.
    warnings.simplefilter("ignore")
    yield ocp


def _line(e: BaseException) -> str:
  return " ".join(str(e).split())[:200]
