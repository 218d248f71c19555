"""The files of a run folder, and the settings that the run was made with.

run.json          settings, names of classes, the first store; never changes
keys.npy          the keys, under the policy `given`
journal.jsonl     what happened (see `journal`)
forgotten.key     tells which samples were forgotten (see `tombstones`); owner only
checkpoints/N/    the state: one folder, or two while a request is carried out
learned/NAME/     encoding stores with the rows of `learn` requests
requests/*.npz    requests that are not complete yet
certificate.json  of the last `verify`, until the state changes
head.json         a signed head of the journal (see `signing`), with `--sign-key`
lock              held by the process that works on the run
queue.lock        held for a moment while a request is added
"""

import io
import pathlib
import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig, describe
from legonet_jax.data import names
from legonet_jax.data.encodings import read_given_keys
from legonet_jax.io import durable, hashing, lock, untrusted
from legonet_jax.solvers.settings import check_round_trip, parse_config

VERSION = 1


class Layout(NamedTuple):
  """The paths of a run."""

  root: pathlib.Path

  @property
  def settings(self) -> pathlib.Path:
    """`run.json`."""
    return self.root / "run.json"

  @property
  def keys(self) -> pathlib.Path:
    """`keys.npy`."""
    return self.root / "keys.npy"

  @property
  def journal(self) -> pathlib.Path:
    """`journal.jsonl`; a run without it is not complete."""
    return self.root / "journal.jsonl"

  @property
  def forgotten_key(self) -> pathlib.Path:
    """`forgotten.key`."""
    return self.root / "forgotten.key"

  @property
  def head(self) -> pathlib.Path:
    """`head.json`."""
    return self.root / "head.json"

  @property
  def checkpoints(self) -> pathlib.Path:
    """The folder of checkpoints."""
    return self.root / "checkpoints"

  @property
  def learned(self) -> pathlib.Path:
    """The folder of stores that the run owns."""
    return self.root / "learned"

  @property
  def requests(self) -> pathlib.Path:
    """The folder of requests that wait."""
    return self.root / "requests"

  @property
  def certificate(self) -> pathlib.Path:
    """`certificate.json`."""
    return self.root / "certificate.json"


_FILES = (
  "run.json", "keys.npy", "journal.jsonl", "forgotten.key", "certificate.json",
  "head.json",
)  # fmt: skip
_NAMES = "|".join([*map(re.escape, _FILES), r"\d{20}-[0-9a-f]{16}\.npz"])
_TEMPORARY = re.compile(rf"\.({_NAMES})\.\w{{8,}}")
# Files that an interrupted fit may leave in its folder.
_BEGUN = {"run.json", "keys.npy", "forgotten.key", "checkpoints", lock.WORK}


def temporaries(root: pathlib.Path) -> list[pathlib.Path]:
  """Half-written files that a killed process has left."""
  folders = [folder for folder in (root, Layout(root).requests) if folder.is_dir()]
  found = [path for folder in folders for path in folder.iterdir()]
  return sorted(p for p in found if _TEMPORARY.fullmatch(p.name))


def may_begin(root: pathlib.Path) -> bool:
  """Whether a folder is new, empty, or holds only files of an interrupted fit."""
  if not root.exists():
    return True
  if not root.is_dir():
    return False
  names = {p.name for p in root.iterdir()}
  names -= {p.name for p in temporaries(root)}
  return not names or (lock.WORK in names and names <= _BEGUN)


def check_config(cfg: LegoConfig) -> None:
  """Raises if a run cannot keep its promises with these settings."""
  if cfg.key_policy == "keep":
    raise errors.ConfigError(
      "key_policy 'keep' leaves a deleted anchor's encoding in the model, which a run"
      " promises to erase; use 'replace' or 'given'"
    )
  check_round_trip(cfg)


class RunSettings(NamedTuple):
  """The contents of `run.json`: settings, first stores, names of classes 0 ... C-1."""

  cfg: LegoConfig
  stores: list[str]
  classes: tuple[str, ...] | None


def write_settings(
  layout: Layout, settings: RunSettings, keys: NDArray[Any] | None
) -> None:
  """Writes `run.json` (and `keys.npy`), durable when this returns."""
  if keys is not None:
    buffer = io.BytesIO()
    np.save(buffer, keys, allow_pickle=False)
    durable.write(layout.keys, buffer.getvalue())
  value = {
    "version": VERSION,
    "config": describe(settings.cfg),
    "stores": settings.stores,
    "classes": None if settings.classes is None else list(settings.classes),
  }
  durable.write(layout.settings, hashing.to_text(value))


def read_settings(layout: Layout) -> RunSettings:
  """The settings of a run.

  Raises:
    RunError: if there is no run, or it cannot be read.
  """
  if not layout.settings.is_file():
    raise errors.RunError(f"{layout.root} is not a run; make one with `legonet fit`")
  durable.require_plain(layout.root)
  try:
    value = untrusted.read_json(layout.settings, follow=False)
  except errors.DataError as e:
    raise errors.RunError(f"{e}; restore it from a copy") from None
  try:
    settings = _parse_settings(value)
  except errors.UnknownSolverError as e:
    raise errors.RunError(f"{layout.settings} cannot be read here: {e}") from None
  except (errors.LegoError, KeyError, TypeError) as e:
    why = f"no {e}" if isinstance(e, KeyError) else str(e)
    raise errors.RunError(
      f"{layout.settings} is damaged ({why}); restore it from a copy"
    ) from None
  if not layout.journal.is_file():
    raise errors.RunError(
      f"{layout.root} is unfinished: its fit was interrupted; run the same `legonet"
      " fit` again"
    )
  return settings


def _parse_settings(value: dict[str, Any]) -> RunSettings:
  if value["version"] != VERSION:
    raise errors.RunError(f"version {errors.brief(value['version'])}, not {VERSION}")
  cfg, stores = parse_config(value["config"]), _strings(value["stores"])
  if value.get("classes") is None:
    return RunSettings(cfg, stores, None)
  classes = names.check_classes("classes", _strings(value["classes"]), cfg.num_classes)
  if len(classes) > cfg.num_classes:
    raise errors.RunError(f"{len(classes)} names for {cfg.num_classes} classes")
  return RunSettings(cfg, stores, classes)


def read_keys(layout: Layout, cfg: LegoConfig) -> NDArray[Any] | None:
  """The given keys K [n, d], or None under any other key policy."""
  if cfg.key_policy != "given":
    return None
  try:
    return read_given_keys(layout.keys, follow=False)
  except errors.LegoError as e:
    raise errors.RunError(f"the given keys cannot be read ({e})") from None


def _strings(values: Any) -> list[str]:
  if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
    raise TypeError("not a list of strings")
  return values
