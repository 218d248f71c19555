"""A tiny run on a tiny store, at places that stay the same for every cut."""

from collections.abc import Collection
import functools
import pathlib
import shutil
from typing import Any, NamedTuple

import numpy as np

import legonet_jax as lego
from legonet_jax.core import ids as ids_lib
from legonet_jax.core.ids import Ids
from legonet_jax.runs import (
  create as create_lib,
  requests as requests_lib,
)
from legonet_jax.runs.requests import Request
from legonet_jax.store import rows as store_rows

CLASSES = ("cat", "dog", "emu")
_DIM, _COUNT, _NEW = 12, 60, 3
_SOLVER = lego.Sgd(
  epochs=2,
  batch_size=4,
  lanes=3,
  tile_batches=2,
  optimizer="sgd",
  options=(("learning_rate", 0.5), ("momentum", 0.9)),
)
CONFIG = lego.LegoConfig(
  num_classes=len(CLASSES),
  num_adapters=8,
  top_k=2,
  seed=3,
  encoder="faults",
  solver=_SOLVER,
)
_RNG = np.random.default_rng(0)
_TOTAL = _COUNT + _NEW
ENCODINGS = _RNG.normal(size=(_TOTAL, _DIM)).astype(np.float32)
LABELS = _RNG.integers(0, len(CLASSES), _TOTAL).astype(np.int32)
# Of 62 random bits, so that finding one in a file means something.
EVERYONE: Ids = _RNG.integers(2**60, 2**62, _TOTAL)
IDS, NEW_IDS = EVERYONE[:_COUNT], EVERYONE[_COUNT:]


class World(NamedTuple):
  """The folder that holds everything that a scenario touches."""

  root: pathlib.Path

  @property
  def run(self) -> pathlib.Path:
    """The run that the faults are about."""
    return self.root / "run"

  @property
  def other(self) -> pathlib.Path:
    """A second run on the same store, where there is one."""
    return self.root / "other"

  @property
  def store(self) -> pathlib.Path:
    """The store of `IDS`."""
    return self.root / "store"

  @property
  def new_store(self) -> pathlib.Path:
    """A store of `NEW_IDS`, where there is one."""
    return self.root / "new_store"

  @property
  def kept(self) -> pathlib.Path:
    """A copy of the folder as it was before the cut."""
    return self.root.with_name(f"{self.root.name}.kept")

  @property
  def tools(self) -> pathlib.Path:
    """Files that no cut concerns: keys, tables to import."""
    return self.root.with_name(f"{self.root.name}.tools")


def keep(world: World) -> None:
  """Notes the world as it is."""
  shutil.rmtree(world.kept, ignore_errors=True)
  shutil.copytree(world.root, world.kept)


def restore(world: World) -> None:
  """Makes the world what it was when it was noted."""
  shutil.rmtree(world.root, ignore_errors=True)
  shutil.copytree(world.kept, world.root)


def make_store(path: pathlib.Path, ids: Ids) -> None:
  """A store of some samples."""
  at = np.isin(EVERYONE, ids)
  split = np.zeros(int(at.sum()), np.uint8)
  rows = store_rows.StoreRows(ENCODINGS[at], LABELS[at], EVERYONE[at], split)
  store_rows.land(path, rows, CONFIG.encoder, CLASSES)


def make_run(world: World) -> None:
  """The store and a run on it."""
  make_store(world.store, IDS)
  create_lib.create(world.run, CONFIG, world.store)


def unlearn(ids: Any, **kwargs: Any) -> Request:
  """A request to forget."""
  return requests_lib.make("unlearn", np.asarray(ids, np.int64), **kwargs)


def learn(ids: Ids, **kwargs: Any) -> Request:
  """A request to learn rows that come with it."""
  at = np.isin(EVERYONE, ids)
  rows = {"encodings": ENCODINGS[at], "labels": LABELS[at]}
  return requests_lib.make("learn", EVERYONE[at], **rows, **kwargs)


@functools.cache
def _first_state() -> lego.LegoState:
  return lego.fit(CONFIG, _samples(frozenset(IDS.tolist())))[0]


def anchors() -> Ids:
  """Samples that are anchors of the first state, which move keys when they leave."""
  return IDS[ids_lib.hash_order(CONFIG.seed, IDS)][: CONFIG.num_adapters]


@functools.cache
def refit_digest(retained: frozenset[int]) -> str:
  """The digest of a fresh fit on these samples."""
  return lego.digest(lego.fit(CONFIG, _samples(retained))[0])


def _samples(ids: Collection[int]) -> lego.Samples:
  at = np.isin(EVERYONE, list(ids))
  return lego.make_samples(CONFIG, ENCODINGS[at], LABELS[at], EVERYONE[at])


def traces(ids: Collection[int], root: pathlib.Path) -> list[str]:
  """Files below `root` that hold anything of these samples, in any form it ever has."""
  needles = [needle for i in ids for needle in _needles(i)]
  found = []
  for path in sorted(p for p in root.rglob("*") if p.is_file()):
    data = path.read_bytes()
    if any(needle in data for needle in needles):
      found.append(str(path.relative_to(root)))
  return found


@functools.cache
def _needles(sample: int) -> list[bytes]:
  row = ENCODINGS[np.flatnonzero(np.equal(EVERYONE, sample))[0]]
  table = _samples([sample])
  first = _first_state()
  keys = np.asarray(first.model.keys)[first.anchors == sample]
  return [
    row.tobytes(),
    row.astype(np.float64).tobytes(),
    row.astype(np.float16).tobytes(),
    table.codes.tobytes(),
    table.prints.tobytes(),
    table.prints.tobytes().hex().encode(),
    np.int64(sample).tobytes(),
    np.int64(sample).byteswap().tobytes(),
    str(sample).encode(),
    f"{sample:x}".encode(),
    *(key.tobytes() for key in keys),
  ]
