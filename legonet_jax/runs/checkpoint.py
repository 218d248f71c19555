"""Checkpoints: everything that future states depend on; every file has a sha256.

    checkpoints/00000007/state/         orbax: the arrays of `rebuild.to_arrays`
    checkpoints/00000007/retained.npy   the retained ids once more, for `repair`
    checkpoints/00000007/manifest.json  sha256 of each file, digest of the state,
                                        stores, environment, requests, own sha256

A checkpoint is written under a temporary name and renamed once all of it is on disk.
The manifest lists the requests that it includes, so none is ever applied twice.
"""

from collections.abc import Mapping
import io
import os
import pathlib
import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig, fingerprint
from legonet_jax.core.ids import Ids
from legonet_jax.host.digest import OLD_VERSION, VERSION, digest
from legonet_jax.host.state import LegoState, from_arrays, to_arrays
from legonet_jax.host.validate import validate
from legonet_jax.io import arrays as arrays_lib, durable, hashing, untrusted
from legonet_jax.runs import journal
from legonet_jax.runtime.callbacks import OnStep

MANIFEST, STATE, RETAINED = "manifest.json", "state", "retained.npy"
_MAKING = ".making"
_BLOCK = 4096
_NUMBER = re.compile(r"[0-9]{8}")
# As in `untrusted.is_a`.
_KINDS: Mapping[str, Any] = {
  "number": int, "digest": str, "stores": list, "environment": {...: str},
  "requests": list, "report": dict, "head": str, "masked": int, "event": str,
  "records": journal.RECORDS, "files": {...: str},
}  # fmt: skip


class Manifest(NamedTuple):
  """The description of a checkpoint.

  Attributes:
    number: counts the checkpoints of a run.
    digest: of the state.
    stores: paths of the stores that hold the retained rows; relative paths are in the
      run folder.
    environment: on which its weights were trained.
    requests: names of the requests applied since the previous checkpoint.
    report: the values of the journal entry about this checkpoint.
    head: hash of the last journal entry when the checkpoint was made.
    masked: number of adapters that wait for `heal`.
    event: the event of the journal entry about this checkpoint.
    records: by store, its sums, rows and erased rows when the checkpoint was made.
  """

  number: int
  digest: str
  stores: list[str]
  environment: dict[str, str]
  requests: list[str]
  report: dict[str, Any]
  head: str
  masked: int
  event: str = "complete"
  records: dict[str, Any] = {}  # noqa: RUF012 (never changed; older files lack it)


def numbers(folder: pathlib.Path) -> list[int]:
  """The checkpoints in `folder`, newest first."""
  if not folder.is_dir():
    return []
  names = [p.name for p in folder.iterdir() if _NUMBER.fullmatch(p.name)]
  return sorted(map(int, names))[::-1]


def path_of(folder: pathlib.Path, number: int) -> pathlib.Path:
  """The folder of checkpoint `number`."""
  return folder / f"{number:08d}"


def save(
  folder: pathlib.Path, state: LegoState, manifest: Manifest, on_step: OnStep
) -> None:
  """Saves a checkpoint: whole and durable when this returns, absent before.

  Raises:
    RunError: if it cannot be saved, such as on a full disk; the parts are removed.
  """
  making = folder / f"{_MAKING}-{manifest.number:08d}"
  final = path_of(folder, manifest.number)
  durable.make_folder(folder)
  durable.shred_tree(making)
  durable.shred_tree(final)  # a damaged checkpoint that recovery has skipped
  arrays = to_arrays(state)
  try:
    making.mkdir()
    _require_room(making, arrays)
    arrays_lib.save(making / STATE, arrays)
    on_step("arrays written")
    buffer = io.BytesIO()
    np.save(buffer, state.ids, allow_pickle=False)
    (making / RETAINED).write_bytes(buffer.getvalue())
    value = {**manifest._asdict(), "files": durable.hashes_of(making)}
    sealed = {**value, "sha256": hashing.sha256_of_json(value)}
    (making / MANIFEST).write_bytes(hashing.to_text(sealed))
    durable.sync_tree(making)
  except Exception as e:  # orbax wraps system errors in many types
    durable.shred_tree(making)
    raise errors.RunError(
      f"cannot save a checkpoint in {folder} ({arrays_lib.reason(e)}); the state before"
      " it is untouched; make room, or mend the disk, and run any command"
    ) from e
  on_step("checkpoint written")
  making.rename(final)
  durable.sync_folder(folder)


def read_manifest(path: pathlib.Path) -> Manifest:
  """The manifest of the checkpoint in `path`, its own sha256 checked."""
  return Manifest(**{k: v for k, v in _read(path).items() if k in Manifest._fields})


def load(
  path: pathlib.Path, cfg: LegoConfig, old: bool = False
) -> tuple[LegoState, Manifest]:
  """The checkpoint in `path`, every byte of it checked.

  Args:
    path: its folder.
    cfg: the run's settings, which the model keeps.
    old: whether it is one of an earlier version, to migrate it.

  Raises:
    OldRunError: if it is one of an earlier version, and `old` is False.
    RunError: if a file is missing, cut off, changed or added.
  """
  value = _read(path)
  if path != path_of(path.parent, value["number"]):
    raise errors.RunError(
      f"checkpoint {path} has the number of another one in its manifest; remove it"
    )
  found = durable.hashes_of(path)
  del found[MANIFEST]
  for name in sorted({*found, *value["files"]}):
    if found.get(name) != value["files"].get(name):
      what = "is missing" if name not in found else "has changed"
      raise errors.RunError(
        f"checkpoint {path} is damaged: {name} {what}; `legonet repair` makes it again"
        " from the encoding stores"
      )
  try:
    arrays = arrays_lib.load(path / STATE)
    same = np.array_equal(arrays["settings"], fingerprint(cfg))
    state = from_arrays(arrays, cfg)
  except Exception as e:  # orbax raises many types, some with messages of many lines
    raise errors.RunError(
      f"checkpoint {path} cannot be read ({arrays_lib.reason(e)}); `legonet repair`"
      " makes it again from the encoding stores"
    ) from e
  if not same:
    raise errors.RunError(
      f"{path.parent.parent / 'run.json'} and the checkpoint are of different settings;"
      " restore run.json from a copy"
    )
  if digest(state, OLD_VERSION if old else VERSION) != value["digest"]:
    if not old and digest(state, OLD_VERSION) == value["digest"]:
      raise errors.OldRunError(
        f"{path.parent.parent} was made by an earlier version, which defines numbers"
        " otherwise; `legonet migrate` brings it up to date"
      )
    raise errors.RunError(
      f"checkpoint {path} holds a state with another digest than its manifest says;"
      " `legonet repair` makes it again from the encoding stores"
    )
  try:
    validate(arrays, cfg, old)
  except errors.DataError as e:
    raise errors.RunError(
      f"checkpoint {path} is damaged: {e}; `legonet repair` makes it again from the"
      " encoding stores"
    ) from None
  return state, read_manifest(path)


def read_retained(path: pathlib.Path) -> Ids | None:
  """The retained ids of a checkpoint that may be damaged; None if they are unusable."""
  try:
    ids = untrusted.read_npy(path / RETAINED, follow=False)
  except (OSError, errors.LegoError):
    return None
  sound = ids.ndim == 1 and ids.dtype == np.int64
  return ids if sound and len(np.unique(ids)) == len(ids) else None


def remove_others(folder: pathlib.Path, number: int, on_step: OnStep) -> None:
  """Shreds all checkpoints but `number`, also half-made ones."""
  for path in sorted(folder.iterdir()):
    if path.name != path_of(folder, number).name:
      on_step("shredding a checkpoint")
      durable.shred_tree(path)


def _read(path: pathlib.Path) -> dict[str, Any]:
  try:
    value = untrusted.read_json(path / MANIFEST, follow=False)
    sound = value.pop("sha256") == hashing.sha256_of_json(value)
    older = {*Manifest._field_defaults} - value.keys()
    wanted = {name: kind for name, kind in _KINDS.items() if name not in older}
    sound = sound and untrusted.is_a(value, wanted) and _has_reports(value)
  except (OSError, ValueError, KeyError):
    sound = False
  if not sound:
    raise errors.RunError(
      f"checkpoint {path} is damaged: {MANIFEST} is missing or has changed; `legonet"
      " repair` makes it again from the encoding stores"
    )
  return dict(value)


def _has_reports(value: dict[str, Any]) -> bool:
  """Whether a manifest has all values for the journal entry about its checkpoint."""
  report, requests = value["report"], value["requests"]
  sound = journal.fits(report, {})
  if requests:
    sound = sound and journal.is_report("complete", {**report, "requests": requests})
  if value.get("event") == "repaired":
    sound = sound and journal.is_report("repaired", report.get("repair"))
  return sound


def _require_room(folder: pathlib.Path, arrays: dict[str, NDArray[Any]]) -> None:
  """Raises if the disk is too full, so that orbax's threads need not all report it."""
  size = sum(a.nbytes for a in arrays.values()) + arrays["ids"].nbytes
  size += (3 * len(arrays) + 8) * _BLOCK  # two files and a folder for each array
  if hasattr(os, "posix_fallocate"):
    with (folder / "room").open("wb") as file:
      os.posix_fallocate(file.fileno(), 0, size)
    (folder / "room").unlink()
