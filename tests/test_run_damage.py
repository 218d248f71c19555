"""Cheats and damage are found, and repaired where that can be proved."""

import dataclasses
import json
import shutil

from conftest import CONFIG
import numpy as np
import pytest
from run_damage_world import (
  fails,
  made,  # noqa: F401 (a fixture)
  path,  # noqa: F401 (a fixture)
  run_cli,
)
from run_world import (
  IDS,
  do,
  erase,
  files_below,
  rechain,
  unlearn,
)

from legonet_jax.host.digest import digest
from legonet_jax.host.state import from_arrays, to_arrays
from legonet_jax.runs import (
  checkpoint,
  journal,
  repair as repair_lib,
  run as run_lib,
)
from legonet_jax.runtime import callbacks
from legonet_jax.store import read as store_read


def test_a_sound_run_verifies_in_full(path):
  assert not fails(path)
  assert not fails(path, adapters=3)
  assert not fails(path, full=True)
  do(path, unlearn(IDS[9:12], defer=True))
  assert not fails(path, full=True)  # masked adapters are no excuse for the others


def forge(path, change):
  """A state that was not trained, with all sums and the journal put right."""
  run = run_lib.load(path)
  state = change(run.state)
  manifest = run.manifest._replace(digest=digest(state))
  shutil.rmtree(path / "checkpoints")

  def relabel(entries):
    entries[-1]["after"] = digest(state)

  rechain(path, relabel)
  head = journal.read(path / "journal.jsonl")[-2]["hash"]
  checkpoint.save(
    path / "checkpoints", state, manifest._replace(head=head), callbacks.no_step
  )


def test_verify_catches_parameters_that_were_not_retrained(path):
  """The ids go, the weights stay: what a service does that only deletes the row."""
  old = run_lib.load(path).state
  do(path, unlearn(IDS[20:21]))

  def keep_weights(state):
    assert np.any(state.weights != old.weights)
    return dataclasses.replace(state, solutions=old.solutions)

  forge(path, keep_weights)
  assert not fails(path)  # nothing but training shows it
  assert fails(path, full=True) == ["weights", "refit"]
  touched = sum(fails(path, adapters=2) == ["weights"] for _ in range(30))
  assert 0 < touched <= 30
  assert fails(path, adapters=CONFIG.num_adapters) == ["weights", "refit"]


def test_verify_catches_a_sample_that_was_only_hidden(path):
  """Routes and members follow from the samples; a false one shows without training."""

  def reroute(state):
    arrays = to_arrays(state)
    routes = arrays["routes"].copy()
    routes[0] = routes[0][::-1]
    return from_arrays({**arrays, "routes": routes}, CONFIG)

  forge(path, reroute)
  assert "members" in fails(path)


EDITS = {
  "a value": lambda lines: lines.__setitem__(
    1, lines[1].replace(b'"count": 2', b'"count": 1')
  ),
  "a line dropped": lambda lines: lines.__delitem__(2),
  "two lines swapped": lambda lines: lines.__setitem__(slice(1, 3), lines[2:0:-1]),
  "a line doubled": lambda lines: lines.insert(2, lines[2]),
  "not JSON": lambda lines: lines.__setitem__(1, b"hello\n"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_journal_is_found(path, name, capsys):
  file = path / "journal.jsonl"
  lines = file.read_bytes().splitlines(keepends=True)
  before = list(lines)
  EDITS[name](lines)
  assert lines != before
  file.write_bytes(b"".join(lines))
  assert fails(path)[0] == "journal"
  assert run_cli(capsys, "verify", path)[0] == 1
  code, _, err = run_cli(capsys, "unlearn", path, "--ids", IDS[5])
  assert code == 2
  assert "does not fit the chain" in err
  assert run_lib.load(path).manifest.digest  # the state still loads


def test_a_journal_made_anew_is_found_by_what_others_noted(path):
  head = journal.read(path / "journal.jsonl")[-1]["hash"]
  assert not fails(path, head=head)

  def shorten(entries):
    entries[1]["count"] = 1

  rechain(path, shorten)
  assert "head" in fails(path, head=head)
  assert "history" in fails(path)  # the checkpoint knows the entry it followed


def test_lines_cut_off_the_journals_end_are_found(path):
  file = path / "journal.jsonl"
  lines = file.read_bytes().splitlines(keepends=True)
  file.write_bytes(b"".join(lines[:-2]))
  assert "history" in fails(path)


def damage(path, how):
  """Changes the largest file of the checkpoint."""
  state = [p for p in files_below(path / "checkpoints") if "state" in p.parts]
  file = max(state, key=lambda p: p.stat().st_size)
  data = bytearray(file.read_bytes())
  if how == "truncated":
    file.write_bytes(data[: len(data) // 2])
  elif how == "flipped":
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
  elif how == "missing":
    file.unlink()
  elif how == "added":
    (file.parent / "more").write_bytes(b"x")
  elif how == "manifest":
    file = next(p for p in files_below(path) if p.name == "manifest.json")
    file.write_text(file.read_text().replace('"masked": 0', '"masked": 1'))


@pytest.mark.parametrize(
  "how", ["truncated", "flipped", "missing", "added", "manifest"]
)
def test_a_damaged_checkpoint_is_found_and_repaired_to_the_same_bits(path, how, capsys):
  good = run_lib.load(path).manifest.digest
  damage(path, how)
  for command in (["status"], ["unlearn", "--ids", IDS[5]], ["evaluate"], ["heal"]):
    code, _, err = run_cli(capsys, command[0], path, *command[1:])
    assert code == 2
    assert "is damaged" in err
  assert run_cli(capsys, "verify", path)[0] == 1
  code, out, _ = run_cli(capsys, "repair", path, "--json")
  assert code == 0
  assert json.loads(out) == {"digest": good, "proved": True}
  assert not fails(path, full=True)
  do(path, unlearn(IDS[5:6]))
  assert not fails(path, full=True)


def test_a_new_checkpoint_that_is_damaged_is_made_again_from_the_last_good_one(path):
  class Stop(BaseException):
    pass

  def stop(name):
    if name == "checkpoint saved":
      raise Stop

  good = run_lib.load(path).manifest
  with pytest.raises(Stop):
    do(path, unlearn(IDS[5:6]), stop)
  newest = checkpoint.path_of(
    path / "checkpoints", checkpoint.numbers(path / "checkpoints")[0]
  )
  next(iter((newest / "state" / "weights").rglob("0.0.0"))).write_bytes(b"")
  assert run_lib.load(path).manifest == good
  run, _ = do(path)
  assert IDS[5] not in run.state.ids
  assert not fails(path, full=True)


def test_repair_refuses_where_it_cannot_prove(path):
  with pytest.raises(run_lib.errors.RunError, match="sound"):
    repair_lib.repair(path)
  damage(path, "flipped")
  next(p for p in files_below(path) if p.name == "retained.npy").unlink()
  samples = store_read.read_ids(path.parent / "store")
  erase(path.parent / "store", samples[:1])
  with pytest.raises(run_lib.errors.RunError, match="does not give the state"):
    repair_lib.repair(path)
