"""Stores that a run learns from: damaged or changed ones wait, or are refused."""

import os

import numpy as np
import pytest
from run_world import (
  IDS,
  NEW,
  NEW_IDS,
  do,
  drop,
  refit_digest,
  snapshot,
  unlearn,
)
from runs_world import (
  made,  # noqa: F401 (a fixture)
  path,  # noqa: F401 (a fixture)
)

from legonet_jax import errors
from legonet_jax.runs import requests as requests_lib, run as run_lib, service
from legonet_jax.store import rows as store_rows


def truncated(store):
  file = store / "encodings.npy"
  file.write_bytes(file.read_bytes()[:-5])


def fifo(store):
  (store / "ids.npy").unlink()
  os.mkfifo(store / "ids.npy")


def linked(store):
  store.rename(store.with_name("elsewhere"))
  store.symlink_to(store.with_name("elsewhere"))


DAMAGE = {
  "away": lambda store: store.rename(store.with_name("away")),
  "a file cut off": truncated,
  "no labels": lambda store: (store / "labels.npy").unlink(),
  "no JSON": lambda store: (store / "meta.json").write_text("{"),
  "another version": lambda store: (store / "meta.json").write_text('{"version": 9}'),
  "ids in 2-d": lambda store: np.save(store / "ids.npy", NEW_IDS[None]),
  "a link": linked,
  "a FIFO": fifo,
  "an empty file": lambda store: (store / "split.npy").write_bytes(b""),
}


def test_rows_that_changed_in_a_store_are_not_learned(path, tmp_path):
  other = tmp_path / "other"
  store_rows.land(other, store_rows.StoreRows(*NEW, NEW_IDS, np.zeros(3, np.uint8)), "")
  labels = np.load(other / "labels.npy")
  labels[0] = 2
  np.save(other / "labels.npy", labels)
  with pytest.raises(errors.StoreError, match="has changed since it was made"):
    do(path, requests_lib.make("learn", NEW_IDS, store=str(other)))
  assert run_lib.load(path).manifest.digest == refit_digest(IDS)


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_learn_whose_store_was_damaged_waits_and_does_not_hold_up_others(
  path, tmp_path, kind
):
  other, kept = tmp_path / "other", tmp_path / "kept"
  store_rows.land(other, store_rows.StoreRows(*NEW, NEW_IDS, np.zeros(3, np.uint8)), "")
  snapshot(other, kept)
  drop(path, requests_lib.make("learn", NEW_IDS, store=str(other)))

  class StopError(Exception):
    pass

  def stop(name):
    if name == "accepted":
      raise StopError

  with pytest.raises(StopError):
    do(path, None, stop)
  DAMAGE[kind](other)
  session, _ = service.carry_out(path, unlearn(IDS[:1]))
  assert session.run.manifest.digest == refit_digest(IDS[1:])
  assert len(service.unfinished(path)) == len(session.notes) == 1
  other.unlink() if other.is_symlink() else None
  snapshot(kept, other)
  run, _ = do(path)
  assert run.manifest.digest == refit_digest([*IDS[1:], *NEW_IDS])
  assert not service.unfinished(path)
