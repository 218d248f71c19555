"""Several runs on one store: what one erases, the others forget, and nothing else."""

from conftest import CONFIG
import numpy as np
import pytest
from run_world import IDS, do, erase, make_store, refit_digest, snapshot, unlearn
from runs_world import (
  made,  # noqa: F401 (a fixture)
  path,  # noqa: F401 (a fixture)
)

from legonet_jax import errors
from legonet_jax.runs import create as create_lib, journal, verify as verify_lib


def test_what_another_run_has_erased_is_forgotten_with_the_next_request(path):
  other = path.parent / "second"
  create_lib.create(other, CONFIG, path.parent / "store")
  do(path, unlearn(IDS[:2]))
  run, _ = do(other, unlearn(IDS[5:6]))
  assert run.manifest.digest == refit_digest([*IDS[2:5], *IDS[6:]])
  assert journal.read(other / "journal.jsonl")[-1]["lost"] == 2
  assert not [c for c in verify_lib.verify(other, full=True).checks if not c.passed]


@pytest.mark.parametrize("step", ["opened", "trained", "checkpoint saved", "erased"])
def test_two_runs_on_one_store_never_block_each_other(path, step):
  """One erases a row while the other is about to note how the store is."""
  other = path.parent / "second"
  create_lib.create(other, CONFIG, path.parent / "store")

  def meanwhile(done):
    if done == step and journal.read(other / "journal.jsonl")[-1]["event"] == "created":
      do(other, unlearn(IDS[5:6]))

  do(path, unlearn(IDS[:1]), on_step=meanwhile)
  run, _ = do(path, unlearn(IDS[1:2]))
  assert run.manifest.digest == refit_digest([*IDS[2:5], *IDS[6:]])
  run, _ = do(other, unlearn(IDS[2:3]))
  assert run.manifest.digest == refit_digest([*IDS[3:5], *IDS[6:]])
  assert not [c for c in verify_lib.verify(other).checks if not c.passed]


def test_a_row_that_a_person_has_blanked_is_not_taken_for_erased(path):
  store = path.parent / "store"
  erase(store, IDS[:1])  # as another run would
  ids = np.load(store / "ids.npy")
  ids[np.flatnonzero(ids == IDS[7])] = -1
  np.save(store / "ids.npy", ids)
  with pytest.raises(errors.RunError, match="2 of 60"):
    do(path, unlearn(IDS[5:6]))


def test_rows_that_nobody_has_erased_are_not_taken_for_forgotten(path):
  """A store with other rows in its place: an obstacle, and the request is kept."""
  store = path.parent / "store"
  keep = path.parent.parent / "kept_store"
  snapshot(store, keep)
  make_store(store, count=40)
  with pytest.raises(errors.RunError, match=r"20 of 60 .*only 0 of them were erased"):
    do(path, unlearn(IDS[5:6]))
  snapshot(keep, store)
  run, _ = do(path)
  assert run.manifest.digest == refit_digest([*IDS[:5], *IDS[6:]])
