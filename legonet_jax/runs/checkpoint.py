"""Checkpoints: all that determines the future, bit for bit, every file checked.

    checkpoints/00000007/state/         orbax: the arrays of `rebuild.to_arrays`
    checkpoints/00000007/retained.npy   the retained ids once more, for `repair`
    checkpoints/00000007/manifest.json  sha256 of each file, digest of the state,
                                        stores, environment, requests, own sha256

A checkpoint is made under another name and gets its own when all of it is on disk; the
manifest says which requests it includes, so none is ever applied twice.
"""

from collections.abc import Iterator
import contextlib
import hashlib
import json
import logging
import os
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.digests import digest
from legonet_jax.runs import durable
from legonet_jax.runs.erasure import OnStep
from legonet_jax.state import LegoState, from_arrays, to_arrays

_MANIFEST, _STATE, _RETAINED = "manifest.json", "state", "retained.npy"
_MAKING = ".making"
_BLOCK = 4096


class Manifest(NamedTuple):
  """What a checkpoint says of itself.

  Attributes:
    number: counts the checkpoints of a run.
    digest: of the state.
    stores: paths of the stores that hold the retained rows; relative ones are in the
      run folder.
    environment: on which its weights were trained.
    requests: names of the requests that it applied, beyond the checkpoint before it.
    report: what the `complete` entry of these requests will say.
    head: hash of the last journal entry at the time.
    masked: adapters that wait for `heal`.
  """

  number: int
  digest: str
  stores: list[str]
  environment: dict[str, str]
  requests: list[str]
  report: dict[str, Any]
  head: str
  masked: int


def numbers(folder: pathlib.Path) -> list[int]:
  """The checkpoints in `folder`, newest first."""
  if not folder.is_dir():
    return []
  return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit())[::-1]


def path_of(folder: pathlib.Path, number: int) -> pathlib.Path:
  """Where a checkpoint is."""
  return folder / f"{number:08d}"


def save(
  folder: pathlib.Path, state: LegoState, manifest: Manifest, on_step: OnStep
) -> None:
  """Saves a checkpoint; when this returns it is durable, before that it is not there.

  Raises:
    RunError: if there is no room; what was written of it is removed.
  """
  making = folder / f"{_MAKING}-{manifest.number:08d}"
  final = path_of(folder, manifest.number)
  durable.make_folder(folder)
  durable.shred_tree(making)
  durable.shred_tree(final)  # a damaged one that recovery has passed over
  arrays = to_arrays(state)
  try:
    making.mkdir()
    _require_room(making, arrays)
    with _quiet():
      _checkpointer().save((making / _STATE).absolute(), arrays)
    on_step("arrays written")
    np.save(making / _RETAINED, state.ids, allow_pickle=False)
    value = {**manifest._asdict(), "files": durable.hashes_of(making)}
    text = json.dumps({**value, "sha256": _hash(value)}, indent=1, sort_keys=True)
    (making / _MANIFEST).write_text(text + "\n")
    durable.sync_tree(making)
  except Exception as e:  # orbax wraps the system's error in many ways
    durable.shred_tree(making)
    why = getattr(e, "strerror", None) or " ".join(str(e).split())[:200]
    raise errors.RunError(
      f"cannot save a checkpoint in {folder} ({why}); the state before it is untouched;"
      " make room and run any command"
    ) from e
  on_step("checkpoint written")
  making.rename(final)
  durable.sync_folder(folder)


def read_manifest(path: pathlib.Path) -> Manifest:
  """The manifest of the checkpoint in `path`, its own sha256 checked."""
  return Manifest(**{k: v for k, v in _read(path).items() if k in Manifest._fields})


def load(path: pathlib.Path) -> tuple[LegoState, Manifest]:
  """The checkpoint in `path`, every byte of it checked.

  Raises:
    RunError: if a file is missing, cut off, changed or added.
  """
  value = _read(path)
  found = durable.hashes_of(path)
  del found[_MANIFEST]
  for name in sorted({*found, *value["files"]}):
    if found.get(name) != value["files"].get(name):
      what = "is missing" if name not in found else "has changed"
      raise errors.RunError(
        f"checkpoint {path} is damaged: {name} {what}; `legonet repair` makes it again"
        " from the encoding stores"
      )
  state = from_arrays(_checkpointer().restore((path / _STATE).absolute()))
  if digest(state) != value["digest"]:
    raise errors.RunError(
      f"checkpoint {path} holds another state than its manifest says; `legonet repair`"
      " makes it again from the encoding stores"
    )
  return state, read_manifest(path)


def read_retained(path: pathlib.Path) -> np.ndarray[Any, np.dtype[np.int64]]:
  """The retained ids of a checkpoint whose arrays may be damaged."""
  ids = np.load(path / _RETAINED, allow_pickle=False)
  return np.asarray(ids, np.int64)


def remove_others(folder: pathlib.Path, number: int, on_step: OnStep) -> None:
  """Shreds all checkpoints but one, whole or half-made."""
  for path in sorted(folder.iterdir()):
    if path.name != path_of(folder, number).name:
      on_step("shredding a checkpoint")
      durable.shred_tree(path)


def _read(path: pathlib.Path) -> dict[str, Any]:
  try:
    value = json.loads((path / _MANIFEST).read_text())
    sound = value.pop("sha256") == _hash(value)
    sound = sound and {*Manifest._fields, "files"} <= value.keys()
  except (OSError, ValueError, KeyError, AttributeError):
    sound = False
  if not sound:
    raise errors.RunError(
      f"checkpoint {path} is damaged: {_MANIFEST} is missing or has changed; `legonet"
      " repair` makes it again from the encoding stores"
    )
  return dict(value)


def _hash(value: dict[str, Any]) -> str:
  return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _require_room(folder: pathlib.Path, arrays: dict[str, NDArray[Any]]) -> None:
  """Raises if the disk is too full, before orbax's threads each complain of it."""
  size = sum(a.nbytes for a in arrays.values()) + arrays["ids"].nbytes
  size += (3 * len(arrays) + 8) * _BLOCK  # two files and a folder for each array
  if hasattr(os, "posix_fallocate"):
    with (folder / "room").open("wb") as file:
      os.posix_fallocate(file.fileno(), 0, size)
    (folder / "room").unlink()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Keeps orbax from warning that there is no OCDBT, which is not asked for."""
  log = logging.getLogger("absl")
  level = log.level
  log.setLevel(logging.ERROR)
  try:
    yield
  finally:
    log.setLevel(level)


def _checkpointer() -> Any:
  import orbax.checkpoint as ocp  # half a second, which other commands need not wait

  # One plain folder per array; OCDBT would add databases and takes twice the time.
  return ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False))
