"""The order of requests, deferred ones, lost keys and damaged stores."""

import json

from conftest import CONFIG
import numpy as np
import pytest
from queue_world import (
  StopError,
  made,  # noqa: F401 (a fixture)
  new_store,
  path,  # noqa: F401 (a fixture)
  queue,
  reasons,
  run_cli,
  sound,
  stop_at,
)
from run_world import (
  ENCODINGS,
  IDS,
  LABELS,
  NEW,
  NEW_IDS,
  do,
  learn,
  refit_digest,
  traces,
  unlearn,
)

from legonet_jax.core.ids import hash_ids
from legonet_jax.runs import (
  journal,
  requests as requests_lib,
  run as run_lib,
)
from legonet_jax.store import read as store_read


def test_requests_are_taken_in_the_order_of_their_numbers_whatever_the_clock(
  path, monkeypatch
):
  """Learn, then forget, with a clock that goes back in between."""
  times = iter([2 * 10**18, 10**18, 5])
  with monkeypatch.context() as patch:
    patch.setattr("time.time_ns", lambda: next(times))
    for request in (learn(), unlearn(NEW_IDS[:1]), unlearn(IDS[:1])):
      queue(path, request)
  run, _ = do(path)
  assert run.manifest.digest == refit_digest([*IDS[1:], *NEW_IDS[1:]])
  assert not reasons(path)
  names = [e["request"] for e in journal.read(path / "journal.jsonl") if "request" in e]
  assert [int(name.partition("-")[0]) for name in names] == [1, 2, 3]
  do(path, unlearn(IDS[1:2]))
  last = journal.read(path / "journal.jsonl")[-1]["requests"][0]
  assert int(last.partition("-")[0]) == 4  # numbers go on when the queue was empty


def test_a_request_that_costs_too_much_is_masked_and_trained_later(path, capsys):
  """The limit of `--defer-over`: forgotten at once, healed when there is time."""
  anchor = int(IDS[np.argmin(hash_ids(CONFIG.seed, IDS))])
  assert run_cli("unlearn", path, "--ids", IDS[5], "--defer-over", 3, "--json") == 0
  done = json.loads(capsys.readouterr().out)
  assert 0 < done["adapters"] <= 3
  assert done["masked"] == 0
  args = ["unlearn", path, "--ids", anchor, "--defer-over", done["adapters"]]
  assert run_cli(*args, "--json") == 0
  done = json.loads(capsys.readouterr().out)
  assert done["adapters"] == 0
  assert done["masked"] > 3
  row = int(np.flatnonzero(anchor == IDS)[0])
  assert not traces(anchor, ENCODINGS[row], int(LABELS[row]), path.parent / "run")
  assert run_cli("heal", path) == 0
  kept = np.setdiff1d(IDS, [anchor, IDS[5]])
  assert run_lib.load(path).manifest.digest == refit_digest(kept)
  assert sound(path)


def test_a_store_that_joins_a_run_loses_the_rows_that_the_run_has_forgotten(
  path, tmp_path
):
  store = new_store(tmp_path / "new", [10**15 + 1, int(IDS[5])])
  do(path, unlearn(IDS[5:6]))
  both = requests_lib.make("learn", np.asarray([10**15 + 1, IDS[5]]), store=store)
  with pytest.raises(run_lib.errors.RelearnError):
    do(path, both)
  wanted = np.asarray([10**15 + 1])
  run, _ = do(path, requests_lib.make("learn", wanted, store=store))
  assert 10**15 + 1 in run.state.ids
  assert store_read.read_ids(tmp_path / "new").tolist() == wanted.tolist()
  assert sound(path)


@pytest.mark.parametrize("when", ["idle", "midway"])
@pytest.mark.parametrize("how", ["lost", "another"])
def test_a_run_goes_on_without_its_key_after_a_repair(path, how, when, capsys):
  """The sums in the journal and the older checkpoint tell which rows to erase."""
  if when == "midway":
    with pytest.raises(StopError):
      do(path, unlearn(IDS[5:7]), stop_at("checkpoint saved"))
    next((path / "requests").glob("*.npz")).unlink()
  else:
    do(path, unlearn(IDS[5:7]))
  key = path / "forgotten.key"
  key.unlink() if how == "lost" else key.write_text("cd" * 32)
  assert run_cli("unlearn", path, "--ids", IDS[8]) == 2
  assert "legonet repair" in capsys.readouterr().err
  assert run_cli("verify", path) == 1
  assert run_cli("repair", path) == 0
  run, _ = do(path, unlearn(IDS[8:9]))
  assert run.manifest.digest == refit_digest(np.delete(IDS, [5, 6, 8]))
  assert not set(store_read.read_ids(path.parent / "store")) & set(IDS[[5, 6, 8]])
  assert sound(path)


def test_one_damaged_store_is_an_obstacle_and_no_rejection(path):
  file = path.parent / "store" / "encodings.npy"
  data = file.read_bytes()
  file.write_bytes(data[:-1] + bytes([data[-1] ^ 0x80]))
  with pytest.raises(run_lib.errors.RunError, match="the request is kept"):
    do(path, unlearn([np.sort(IDS)[0]]))
  file.write_bytes(data)
  run, _ = do(path)
  assert np.sort(IDS)[0] not in run.state.ids
  assert not reasons(path)


def test_a_learn_of_the_same_file_every_night_brings_nobody_back(
  path, tmp_path, capsys
):
  rows, y = NEW
  np.savez(tmp_path / "night.npz", encodings=rows, labels=y, ids=NEW_IDS)
  learn_it = ["learn", path, "--encodings", tmp_path / "night.npz"]
  assert run_cli(*learn_it) == 0
  assert run_cli("unlearn", path, "--ids", NEW_IDS[0], IDS[4]) == 0
  capsys.readouterr()
  before = run_lib.load(path).manifest.digest
  assert run_cli(*learn_it) == 2
  err = capsys.readouterr().err
  assert "1 of 1 samples were forgotten" in err
  assert "--allow-relearn" in err
  assert run_lib.load(path).manifest.digest == before
  text = (path / "journal.jsonl").read_text() + (path / "forgotten.key").read_text()
  assert str(NEW_IDS[0]) not in text
  assert np.int64(NEW_IDS[0]).tobytes().hex() not in text
  queue(path, requests_lib.make("learn", NEW_IDS[:1], encodings=rows[:1], labels=y[:1]))
  do(path)
  assert reasons(path) == ["RelearnError"]

  assert run_cli(*learn_it, "--allow-relearn") == 0
  assert NEW_IDS[0] in run_lib.load(path).state.ids
  assert sound(path)
  assert run_cli("unlearn", path, "--ids", NEW_IDS[0]) == 0  # and again
  capsys.readouterr()
  assert run_cli(*learn_it) == 2
  assert sound(path)
