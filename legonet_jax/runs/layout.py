"""Where things are in a run folder, and the settings it was made with.

run.json          settings, the first store, how to read this folder; never changes
keys.npy          the keys, under the policy `given`
journal.jsonl     what happened (see `journal`)
checkpoints/N/    the state: one folder, or two while a request is carried out
learned/NAME/     encoding stores with the rows of `learn` requests
requests/*.npz    requests that are not complete yet
certificate.json  of the last `verify`, until the state changes
lock              held by the process that works on the run
"""

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.config import LegoConfig, describe
from legonet_jax.runs import durable
from legonet_jax.solvers import Ridge, Sgd

VERSION = 1
_TYPES = {"LegoConfig": LegoConfig, "Sgd": Sgd, "Ridge": Ridge}


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


def check_config(cfg: LegoConfig) -> None:
  """Raises if a run cannot keep its promises with these settings."""
  if cfg.key_policy == "keep":
    raise errors.ConfigError(
      "key_policy 'keep' leaves a deleted anchor's encoding in the model, which a run"
      " promises to erase; use 'replace' or 'given'"
    )
  try:
    same = parse_config(json.loads(json.dumps(describe(cfg)))) == cfg
  except errors.LegoError:
    same = False
  if not same:
    raise errors.ConfigError(
      "these settings cannot be written down and read again; use the solver Sgd or"
      " Ridge, name the optimiser of optax and give plain numbers as its options"
    )


def parse_config(value: Any) -> LegoConfig:
  """The settings that `describe` has written down."""
  config = _parse(value)
  if not isinstance(config, LegoConfig):
    raise errors.RunError("these are not the settings of a LegoNet")
  return config


def write_settings(
  layout: Layout, cfg: LegoConfig, stores: list[str], keys: NDArray[Any] | None
) -> None:
  """Writes `run.json` (and `keys.npy`), durable when this returns."""
  if keys is not None:
    np.save(layout.keys, keys, allow_pickle=False)
    durable.sync_tree(layout.root)
  value = {"version": VERSION, "config": describe(cfg), "stores": stores}
  text = json.dumps(value, indent=1, sort_keys=True) + "\n"
  durable.write(layout.settings, text.encode())


def read_settings(layout: Layout) -> tuple[LegoConfig, list[str]]:
  """The settings and the first stores of a run.

  Raises:
    RunError: if there is no run, or none that can be read here.
  """
  if not layout.settings.is_file():
    raise errors.RunError(f"{layout.root} is not a run; make one with `legonet fit`")
  try:
    value = json.loads(layout.settings.read_text())
    version, config = value["version"], value["config"]
    stores = [str(path) for path in value["stores"]]
  except (ValueError, KeyError, TypeError):
    raise errors.RunError(
      f"{layout.settings} is damaged; restore it from a copy"
    ) from None
  if version != VERSION:
    raise errors.RunError(f"{layout.settings} is of version {version}, not {VERSION}")
  if not layout.journal.is_file():
    raise errors.RunError(
      f"{layout.root} is unfinished: its fit was interrupted; run the same `legonet"
      " fit` again"
    )
  return parse_config(config), stores


def _parse(value: Any) -> Any:
  if isinstance(value, list):
    return tuple(_parse(v) for v in value)
  if not isinstance(value, dict):
    return value
  kind: Any = _TYPES.get(str(value.get("type")))
  if kind is None:
    raise errors.RunError(f"unknown settings {value.get('type')!r}")
  fields = {k: _parse(v) for k, v in value.items() if k != "type"}
  try:
    return kind(**fields)
  except TypeError as e:
    raise errors.RunError(f"settings of another version: {e}") from None
