"""Runs: what they learn from, what others do to it, and settings."""

import dataclasses
import itertools
import json

from conftest import CONFIG, SGD
import numpy as np
import optax
import pytest
from run_world import (
  ENCODINGS,
  IDS,
  LABELS,
  NEW,
  NEW_IDS,
  do,
  drop,
  files_below,
  learn,
  make_run,
  refit_digest,
  traces,
  unlearn,
)
from runs_world import (
  made,  # noqa: F401 (a fixture)
  path,  # noqa: F401 (a fixture)
)

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.io import lock
from legonet_jax.runs import (
  applying,
  checkpoint,
  journal,
  requests as requests_lib,
  run as run_lib,
  service,
  verify as verify_lib,
)
from legonet_jax.solvers import settings
from legonet_jax.store import rows as store_rows

BAD = {
  "unknown": (lambda: unlearn([12345]), errors.UnknownIdError),
  "none": (lambda: unlearn([]), errors.EmptyRequestError),
  "twice": (lambda: unlearn([IDS[0], IDS[0]]), errors.DuplicateIdError),
  "too many": (lambda: unlearn(IDS[: len(IDS) - 7]), errors.TooFewSamplesError),
  "known": (
    lambda: requests_lib.make(
      "learn", IDS[:1], encodings=ENCODINGS[:1], labels=LABELS[:1]
    ),
    errors.DuplicateIdError,
  ),
  "width": (
    lambda: requests_lib.make("learn", NEW_IDS, encodings=NEW[0][:, :3], labels=NEW[1]),
    errors.SampleError,
  ),
  "label": (
    lambda: requests_lib.make("learn", NEW_IDS, encodings=NEW[0], labels=NEW[1] + 1),
    errors.SampleError,
  ),
  "no such row": (lambda: requests_lib.make("learn", NEW_IDS), errors.UnknownIdError),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_changes_nothing(path, name):
  before = {p: p.read_bytes() for p in files_below(path.parent) if p.name != "lock"}
  request, error = BAD[name]
  with pytest.raises(error):
    do(path, request())
  after = {p: p.read_bytes() for p in files_below(path.parent) if p.name != "lock"}
  assert after == before


def test_learning_from_a_store_makes_it_one_of_the_runs(path):

  split = np.zeros(3, np.uint8)
  other = path.parent / "other"
  store_rows.land(other, store_rows.StoreRows(*NEW, NEW_IDS, split), CONFIG.encoder)
  run, _ = do(path, requests_lib.make("learn", NEW_IDS[:2], store=str(other)))
  assert run.manifest.digest == refit_digest([*IDS, *NEW_IDS[:2]])
  run, _ = do(path, unlearn(NEW_IDS[:1]))
  assert not traces(int(NEW_IDS[0]), NEW[0][0], int(NEW[1][0]), path.parent)
  run, _ = do(path, requests_lib.make("learn", NEW_IDS[2:]))  # a row it has by now
  assert run.manifest.digest == refit_digest([*IDS, *NEW_IDS[1:]])


def test_a_request_that_cannot_be_trained_is_rejected_and_the_next_one_goes_on(
  path, monkeypatch
):
  """As one that brings an adapter more members than exact sums can hold."""
  real = applying.requests.update

  def too_many(state, samples, left, joined, *rest, **kwargs):
    if len(joined):
      raise errors.ConfigError("an adapter has too many members for exact sums")
    return real(state, samples, left, joined, *rest, **kwargs)

  monkeypatch.setattr(applying.requests, "update", too_many)
  drop(path, learn())
  run, _ = do(path, unlearn(IDS[:1]))
  assert run.manifest.digest == refit_digest(IDS[1:])
  rejected = [
    e for e in journal.read(path / "journal.jsonl") if e["event"] == "rejected"
  ]
  assert [e["reason"] for e in rejected] == ["ConfigError"]
  assert not service.unfinished(path)


def test_the_journal_grows_by_what_changed_and_not_by_all_stores(path):
  """Each learned `.npz` is a store of its own."""
  sizes = []
  for i in range(12):
    row = requests_lib.make(
      "learn", [10**16 + i], encodings=NEW[0][:1] + i, labels=NEW[1][:1]
    )
    do(path, row)
    sizes.append((path / "journal.jsonl").stat().st_size)
  grown = np.diff(sizes)
  assert grown.max() <= grown[0] + 50
  entries = journal.read(path / "journal.jsonl")
  run = run_lib.load(path)
  assert journal.records(entries) == run_lib.records(run)
  do(path, requests_lib.make("compact"))
  entries = journal.read(path / "journal.jsonl")
  assert journal.records(entries) == run_lib.records(run_lib.load(path))
  assert len(entries[-1]["gone"]) == 12
  assert not [c for c in verify_lib.verify(path).checks if not c.passed]


def test_a_row_that_changed_on_disk_is_noticed_before_it_is_trained_on(path):
  file = path.parent / "store" / "encodings.npy"
  data = bytearray(file.read_bytes())
  data[-1] ^= 0x80
  file.write_bytes(data)
  with pytest.raises(errors.RunError, match="other encodings or labels"):
    do(path, unlearn([np.sort(IDS)[0]]))


def test_on_another_environment_everything_is_trained_anew(path, monkeypatch):
  here = lego.environment()
  other = {**here, "jaxlib": "9.9"}
  for place in ("runtime.environment", "runs.applying"):
    monkeypatch.setattr(f"legonet_jax.{place}.environment", lambda: other)
  run = run_lib.load(path)
  assert run_lib.foreign(run) == {"jaxlib": (here["jaxlib"], "9.9")}
  run, _ = do(path, unlearn(IDS[20:21]))
  assert journal.read(path / "journal.jsonl")[-1]["adapters"] == CONFIG.num_adapters
  assert not run_lib.foreign(run)
  assert run.manifest.digest == refit_digest(np.delete(IDS, 20))


def test_a_run_of_ridge_moves_to_another_environment_without_training(
  tmp_path, monkeypatch
):
  cfg = dataclasses.replace(CONFIG, solver=lego.Ridge())
  path = make_run(tmp_path, cfg)
  other = {**lego.environment(), "jaxlib": "9.9", "processor": "another"}
  for place in ("runtime.environment", "runs.applying"):
    monkeypatch.setattr(f"legonet_jax.{place}.environment", lambda: other)
  assert not run_lib.foreign(run_lib.load(path))
  run, _ = do(path, unlearn(IDS[-1:]))
  assert journal.read(path / "journal.jsonl")[-1]["adapters"] < CONFIG.num_adapters
  assert run.manifest.digest == refit_digest(IDS[:-1], cfg)


def test_given_keys_live_with_the_run(tmp_path):
  cfg = dataclasses.replace(CONFIG, key_policy="given")
  keys = ENCODINGS[:8] + 0.5
  path = make_run(tmp_path, cfg, keys=keys)
  run, _ = do(path, unlearn(IDS[8:12], defer=True))
  run, _ = do(path, requests_lib.make("heal"))
  assert run.manifest.digest == refit_digest(np.delete(IDS, np.s_[8:12]), cfg, keys)


def test_ridge_lives_in_a_run_as_well(tmp_path):
  """Its sums are not saved: a restart makes them again, to the same bits."""
  cfg = dataclasses.replace(CONFIG, solver=lego.Ridge())
  path = make_run(tmp_path, cfg)
  do(path, unlearn(IDS[:2]))
  do(path, unlearn([IDS[7], IDS[8]], defer=True))
  do(path, learn())
  drop(path, unlearn(NEW_IDS[:1]))
  run, _ = do(path, unlearn(IDS[20:22]))
  held = [*np.delete(IDS, [0, 1, 7, 8, 20, 21]), *NEW_IDS[1:]]
  assert run.manifest.digest == refit_digest(held, cfg)
  assert not traces(int(IDS[7]), ENCODINGS[7], int(LABELS[7]), tmp_path, cfg=cfg)


UNFIT = {
  "keep": dataclasses.replace(CONFIG, key_policy="keep"),
  "a function": dataclasses.replace(
    CONFIG, solver=dataclasses.replace(SGD, optimizer=optax.sgd)
  ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_settings_that_break_the_promise_make_no_run(tmp_path, name):
  with pytest.raises(errors.ConfigError):
    make_run(tmp_path, UNFIT[name])
  assert not (tmp_path / "run").exists()


def test_settings_are_read_as_they_were_written():
  again = settings.parse_config(
    json.loads(json.dumps(lego.core.config.describe(CONFIG)))
  )
  assert again == CONFIG
  for bad in ({"type": "Path"}, {"type": "LegoConfig", "x": 1}, 3):
    with pytest.raises(errors.ConfigError):
      settings.parse_config(bad)


def test_one_process_at_a_time(path):
  with lock.hold(path), pytest.raises(errors.RunBusyError, match="--queue"):
    do(path, unlearn(IDS[:1]))
  do(path, unlearn(IDS[:1]))


def test_checkpoint_numbers_and_stray_names(tmp_path):
  for name in ("00000003", "00000010", ".making-00000011", "notes"):
    (tmp_path / name).mkdir()
  assert checkpoint.numbers(tmp_path) == [10, 3]


def test_readers_need_no_lock_and_see_one_whole_state(path):
  seen = set()

  def look(_):
    seen.add(run_lib.load(path).manifest.digest)

  before = run_lib.load(path).manifest.digest
  run, _ = do(path, unlearn(IDS[:1]), look)
  assert seen == {before, run.manifest.digest}
  assert all(len(pair) == 2 for pair in itertools.combinations(seen, 2))


def test_paths_may_be_text(tmp_path):
  store = lego.make_store(str(tmp_path / "s"), ENCODINGS, LABELS, IDS, encoder="e")
  assert len(lego.open_store(str(tmp_path / "s")).ids) == len(store.ids)
  cfg = dataclasses.replace(CONFIG, encoder="e")
  run = lego.runs.create.create(str(tmp_path / "r"), cfg, str(tmp_path / "s"))
  path = str(tmp_path / "r")
  session, _ = service.carry_out(path, unlearn(IDS[3:4]))
  assert run_lib.load(path).manifest.digest == session.run.manifest.digest
  assert service.unfinished(path) == []
  assert all(c.passed for c in lego.runs.verify.verify(path).checks)
  assert len(run.state.ids) == len(session.run.state.ids) + 1
