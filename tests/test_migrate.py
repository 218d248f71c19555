"""Runs of an earlier version: recognised by every command, and brought up to date."""

import dataclasses

from cli_world import OPTIONS, run, say  # noqa: F401 (a fixture)
from conftest import ids
import numpy as np
import pytest

from legonet_jax import errors
from legonet_jax.cli import main as cli
from legonet_jax.host.digest import OLD_VERSION, digest
from legonet_jax.host.state import from_arrays, to_arrays
from legonet_jax.runs import (
  checkpoint,
  journal,
  migrate as migrate_lib,
  run as run_lib,
)


def as_old(state):
  """The state as version 1 kept it: float weights."""
  if state.solutions[0].weights.dtype != np.int32:
    return state
  solutions = [
    s._replace(weights=s.weights.astype(np.float32) / np.float32(2**22))
    for s in state.solutions
  ]
  return dataclasses.replace(state, solutions=tuple(solutions))


def from_old(arrays, cfg):
  whole = np.rint(arrays["weights"] * 2.0**22).astype(np.int32)
  return from_arrays({**arrays, "weights": whole}, cfg)


def old_digest(state, _=None):
  return digest(as_old(state), OLD_VERSION)


@pytest.fixture
def old(run, capsys, monkeypatch):
  """A run of version 1 that has forgotten two samples."""
  path = run.parent / "old"
  with monkeypatch.context() as patch:
    for module in ("create", "applying", "checkpoint", "finishing", "certificate"):
      name = f"legonet_jax.runs.{module}.digest"
      patch.setattr(name, old_digest, raising=False)
    patch.setattr(checkpoint, "to_arrays", lambda state: to_arrays(as_old(state)))
    patch.setattr(checkpoint, "from_arrays", from_old)
    patch.setattr(checkpoint, "validate", lambda *_: None)
    say(capsys, "fit", run.parent / "store", "--out", path, *OPTIONS)
    say(capsys, "unlearn", path, "--ids", *ids()[:2])
  return path


@pytest.mark.parametrize("command", ["status", "verify", "evaluate", "repair"])
def test_every_command_says_how_to_bring_an_old_run_up_to_date(old, capsys, command):
  before = {p: p.read_bytes() for p in old.rglob("*") if p.is_file()}
  code = cli.main([command, str(old)])
  out = capsys.readouterr()
  assert code == (1 if command == "verify" else 2)
  assert "`legonet migrate` brings it up to date" in out.out + out.err
  assert {p: p.read_bytes() for p in old.rglob("*") if p.is_file()} == before


def test_a_migrated_run_is_a_fresh_fit_and_its_journal_says_what_happened(old, capsys):
  was = journal.read(old / "journal.jsonl")[-1]["after"]
  told = say(capsys, "migrate", old, "--json")
  entry = journal.read(old / "journal.jsonl")[-1]
  assert (entry["event"], entry["proved"]) == ("repaired", True)
  assert entry["migrated"] == told["migrated"] == OLD_VERSION
  assert (entry["before"], entry["after"]) == (was, told["after"])
  state = run_lib.load(old).state
  assert set(state.ids) == set(ids()[2:])
  assert digest(state) == told["after"]
  fresh = old.parent / "fresh"
  kept = [str(i) for i in ids()[2:]]
  (old.parent / "kept.txt").write_text("\n".join(kept))
  options = ("--ids-file", old.parent / "kept.txt")
  say(capsys, "fit", old.parent / "store", "--out", fresh, *OPTIONS, *options)
  assert digest(run_lib.load(fresh).state) == told["after"]
  say(capsys, "verify", old, "--full")
  say(capsys, "unlearn", old, "--ids", ids()[5])
  say(capsys, "verify", old, "--full")
  assert "migrated from legonet-jax state 1" in say(capsys, "history", old)


@pytest.mark.parametrize(
  "step",
  ["trained", "arrays written", "checkpoint written", "checkpoint saved", "erased",
   "shredding a checkpoint", "checkpoints deleted", "requests removed"],
)  # fmt: skip
def test_a_migration_that_was_killed_is_completed_by_the_same_command(
  old, capsys, step
):
  class StopError(Exception):
    pass

  def stop(name):
    if name == step:
      raise StopError

  with pytest.raises((StopError, errors.RunError)):  # saving wraps what goes wrong
    migrate_lib.migrate(old, on_step=stop)
  say(capsys, "migrate", old)
  entry = journal.read(old / "journal.jsonl")[-1]
  assert (entry["event"], entry["proved"]) == ("repaired", True)
  assert len(list((old / "checkpoints").iterdir())) == 1
  say(capsys, "verify", old, "--full")
  assert cli.main(["migrate", str(old)]) == 2
  assert "there is nothing to migrate" in capsys.readouterr().err


def test_a_run_that_is_up_to_date_is_not_migrated(run, capsys):
  assert cli.main(["migrate", str(run)]) == 2
  assert "there is nothing to migrate" in capsys.readouterr().err


def test_an_old_run_with_a_changed_store_or_checkpoint_is_not_migrated(old, capsys):
  files = sorted((old / "checkpoints").rglob("*"))
  weights = next(p for p in files if p.is_file() and "weights" in str(p))
  good = weights.read_bytes()
  weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
  assert cli.main(["migrate", str(old)]) == 2
  assert "damaged" in capsys.readouterr().err
  weights.write_bytes(good)
  store = old.parent / "store" / "encodings.npy"
  rows = store.read_bytes()
  store.write_bytes(rows[:-1] + bytes([rows[-1] ^ 1]))
  assert cli.main(["migrate", str(old)]) == 2
  assert "restore" in capsys.readouterr().err
  store.write_bytes(rows)
  with pytest.raises(errors.OldRunError):
    run_lib.load(old)
  say(capsys, "migrate", old)
