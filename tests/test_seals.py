"""No row of a store changes unseen, also after rows were erased by whoever it was."""

import json

from conftest import CONFIG
import numpy as np
import pytest
from run_world import ENCODINGS, IDS, LABELS, do, erase, refit_digest, snapshot, unlearn

from legonet_jax import errors
from legonet_jax.io import hashing, untrusted
from legonet_jax.runs import create as create_lib, verify as verify_lib
from legonet_jax.store import read as store_read, rows as store_rows, seals

TRAINED = 50  # the other rows of the store are for tests


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp("seals") / "world"
  split = (np.arange(len(IDS)) >= TRAINED).astype(np.uint8)
  rows = store_rows.StoreRows(ENCODINGS, LABELS, IDS, split)
  store_rows.land(folder / "store", rows, CONFIG.encoder)
  create_lib.create(folder / "run", CONFIG, folder / "store", ids=IDS[:TRAINED])
  do(folder / "run", unlearn(IDS[:2]))
  snapshot(folder, folder.parent / "kept")
  return folder


@pytest.fixture
def store(made):
  snapshot(made.parent / "kept", made)
  return made / "store"


def failed(store):
  report = verify_lib.verify(store.parent / "run", full=True)
  return {check.name: check.detail for check in report.checks if not check.passed}


def row_of(store, wanted):
  return int(np.flatnonzero(np.load(store / "ids.npy") == wanted)[0])


def first_erased(store):
  return np.flatnonzero(np.load(store / "ids.npy") < 0)[0]


def change(store, name, row, value):
  array = np.load(store / f"{name}.npy")
  array[row] = value
  np.save(store / f"{name}.npy", array)


def write_meta(store, edit):
  meta = json.loads((store / "meta.json").read_text())
  edit(meta["sha256"])
  (store / "meta.json").write_bytes(hashing.to_text(meta))


def sum_up(store):
  """What `erase` writes, or an attacker: sums of the files as they are."""
  write_meta(
    store,
    lambda sums: sums.update(
      {name: untrusted.sha256_of(store / f"{name}.npy") for name in sums}
    ),
  )


def seal_again(store):
  """All seals made anew, by somebody who can write the store."""
  names = ("encodings", "ids", "labels", "split")
  columns = tuple(np.load(store / f"{name}.npy") for name in names)
  np.save(store / "seals.npy", seals.compute(np.load(store / "salts.npy"), columns))


def take_seals_away(store):
  for name in ("seals", "salts"):
    (store / f"{name}.npy").unlink()
  write_meta(store, lambda sums: sums.pop("seals"))


ATTACKS = {
  "labels of the test set": lambda store: change(
    store, "labels", np.isin(np.load(store / "ids.npy"), IDS[TRAINED:-1]), 0
  ),
  "an encoding of the test set": lambda store: change(
    store, "encodings", row_of(store, IDS[-2]), 1
  ),
  "a test row that becomes one for training": lambda store: change(
    store, "split", row_of(store, IDS[-2]), 0
  ),
  "a salt": lambda store: change(store, "salts", row_of(store, IDS[-2]), 7),
  "a forgotten encoding in its old place": lambda store: change(
    store, "encodings", first_erased(store), ENCODINGS[0]
  ),
  "a forgotten label in its old place": lambda store: change(
    store, "labels", first_erased(store), 1
  ),
}


@pytest.mark.parametrize("then", [lambda store: None, seal_again])
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_changes_before_an_erasure_is_found_after_it(store, attack, then):
  assert not failed(store)
  ATTACKS[attack](store)
  then(store)
  erase(store, IDS[-1:])  # an unused row: counts are right again
  sum_up(store)
  assert failed(store).keys() == {"stores"}


def test_seals_cannot_be_taken_away(store):
  take_seals_away(store)
  change(store, "labels", row_of(store, IDS[-2]), 0)
  erase(store, IDS[-1:])
  sum_up(store)
  assert "does not match the journal" in failed(store)["stores"]


def test_an_erasure_by_another_run_passes(store):
  erase(store, IDS[-3:])
  assert not failed(store)
  do(store.parent / "run", unlearn(IDS[2:3]))
  assert not failed(store)


def test_the_seal_of_an_erased_row_has_no_salt(store):
  """With the salt it would tell whoever guesses a row that the guess is right."""
  row, salts = row_of(store, IDS[5]), np.load(store / "salts.npy")
  columns = ENCODINGS[5:6], IDS[5:6], LABELS[5:6], np.zeros(1, np.uint8)
  guess = seals.compute(salts[row : row + 1], columns)
  np.testing.assert_array_equal(guess[0], np.load(store / "seals.npy")[row])
  erase(store, IDS[5:6])
  assert not np.load(store / "salts.npy")[row].any()
  found = b"".join(path.read_bytes() for path in store.iterdir())
  assert salts[row].tobytes() not in found


def test_a_store_without_seals_still_works(store):
  """One of version 0.3."""
  take_seals_away(store)
  assert len(store_read.open_store(store, verify=True).ids) == len(IDS) - 2
  run = store.parent / "old"
  create_lib.create(run, CONFIG, store, ids=IDS[2:TRAINED])
  erase(store, IDS[-1:])
  done, _ = do(run, unlearn(IDS[2:3]))
  assert done.manifest.digest == refit_digest(IDS[3:TRAINED])
  assert verify_lib.verify(run).passed


@pytest.mark.parametrize("name", ["seals", "salts"])
def test_seals_of_another_shape_are_damage(store, name):
  np.save(store / f"{name}.npy", np.load(store / f"{name}.npy")[:, :8])
  with pytest.raises(errors.StoreError, match=rf"{name}\.npy is uint8\[60, 8\]"):
    store_read.open_store(store)
