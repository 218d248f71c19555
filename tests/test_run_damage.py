"""Damage, cheats and obstacles: found, said in one line, and the good state stays."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys

from conftest import CONFIG
import jax.numpy as jnp
import numpy as np
import pytest
from run_world import (
  IDS,
  do,
  drop,
  erase,
  files_below,
  learn,
  make_run,
  rechain,
  refit_digest,
  snapshot,
  unlearn,
)

import legonet_jax as lego
from legonet_jax.cli import main as cli
from legonet_jax.core.digest import digest
from legonet_jax.core.state import from_arrays, to_arrays
from legonet_jax.io import lock
from legonet_jax.runs import (
  certificate as certificate_lib,
  checkpoint,
  journal,
  repair as repair_lib,
  rows as rows_lib,
  run as run_lib,
  service,
  verify as verify_lib,
)
from legonet_jax.runtime import callbacks
from legonet_jax.store import read as store_read, rows as store_rows


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp("made")
  path = make_run(folder)
  do(path, unlearn(IDS[:2]))
  do(path, learn())
  return folder


@pytest.fixture
def path(made, tmp_path_factory):
  keep = tmp_path_factory.mktemp("keep") / "copy"
  snapshot(made, keep)
  yield made / "run"
  snapshot(keep, made)


def fails(path, **kwargs):
  """Names of the checks that fail."""
  report = verify_lib.verify(path, **kwargs)
  return [check.name for check in report.checks if not check.passed]


def run_cli(capsys, *args):
  code = cli.main([str(a) for a in args])
  out = capsys.readouterr()
  if code == 2:
    *notes, line = out.err.splitlines()
    assert line.startswith("legonet: error: ")
    assert all(note.startswith("legonet: note: ") for note in notes)
    assert not out.out
  return code, out.out, out.err


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
    assert np.any(np.asarray(state.model.weights) != np.asarray(old.model.weights))
    return state._replace(model=state.model._replace(weights=old.model.weights))

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
    return from_arrays({**arrays, "routes": routes})

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


@contextlib.contextmanager
def small_disk(folder, size):
  """A tmpfs of `size` bytes; skips where one may not mount."""
  folder.mkdir()
  command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
  if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
    pytest.skip("mounting a small tmpfs needs root")
  try:
    yield folder
  finally:
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder):
  """Uses up all that is free, and gives it back."""
  with contextlib.suppress(OSError), (folder / "filler").open("wb", 0) as file:
    while file.write(bytes(4096)):
      pass


def test_a_full_disk_is_one_line_and_the_request_is_finished_later(tmp_path, capsys):
  with small_disk(tmp_path / "small", "2m") as folder:
    path = make_run(folder)
    before = run_lib.load(path).manifest.digest
    # Room for the request and its line, and not for a checkpoint.
    (folder / "spare").write_bytes(bytes(16384))
    fill(folder)
    (folder / "spare").unlink()
    code, _, err = run_cli(capsys, "unlearn", path, "--ids", IDS[5])
    assert code == 2
    assert "space" in err
    assert "the request is kept" in err
    assert run_lib.load(path).manifest.digest == before
    assert not list((path / "checkpoints").glob(".making*"))
    fill(folder)  # not even room for a request
    code, _, err = run_cli(capsys, "unlearn", path, "--ids", IDS[6])
    assert code == 2
    assert run_lib.load(path).manifest.digest == before
    (folder / "filler").unlink()
    run, _ = do(path)
    assert run.manifest.digest == refit_digest(np.delete(IDS, 5))
    journal.read(path / "journal.jsonl")


def test_a_full_disk_while_the_journal_is_written_takes_the_line_back(
  path, monkeypatch
):
  """The same as above where nobody may mount, at the most delicate place."""
  write, sizes = os.write, []

  def full(handle, data):
    if b'"event": "accepted"' in bytes(data):
      sizes.append(write(handle, bytes(data)[:10]))
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return write(handle, data)

  before = (path / "journal.jsonl").read_bytes()
  with monkeypatch.context() as patch:
    patch.setattr(os, "write", full)
    with pytest.raises(run_lib.errors.RunError, match="space"):
      do(path, unlearn(IDS[5:6]))
  assert sizes == [10]
  assert (path / "journal.jsonl").read_bytes() == before
  run, _ = do(path)
  assert IDS[5] not in run.state.ids
  assert not fails(path, full=True)


def test_a_read_only_folder_still_answers_and_says_why_it_cannot_forget(
  tmp_path, capsys
):
  with small_disk(tmp_path / "small", "4m") as folder:
    path = make_run(folder)
    remount = ["mount", "-o", "remount,ro", str(folder)]
    subprocess.run(remount, check=True)
    code, _, err = run_cli(capsys, "unlearn", path, "--ids", IDS[5])
    assert code == 2
    assert "Read-only" in err
    code, out, _ = run_cli(capsys, "evaluate", path, "--json")
    assert code == 0
    assert json.loads(out)["retained_samples"] == len(IDS)
    assert run_cli(capsys, "verify", path)[0] == 0
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


def test_two_processes_at_once(path, capsys):
  with lock.hold(path):
    code, _, err = run_cli(capsys, "unlearn", path, "--ids", IDS[5])
    assert code == 2
    assert f"process {os.getpid()} works on" in err
    code, out, _ = run_cli(
      capsys, "unlearn", path, "--ids", IDS[5], "--queue", "--json"
    )
    assert code == 0
    assert json.loads(out)["status"] == "queued"
    assert run_cli(capsys, "evaluate", path)[0] == 0  # readers are not stopped
  run, _ = do(path)
  assert IDS[5] not in run.state.ids
  assert not fails(path, full=True)


def test_a_second_process_is_told_so(path):
  code = f"from legonet_jax.cli.main import main; main(['heal', {str(path)!r}])"
  with lock.hold(path):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
  assert done.stderr.startswith(f"legonet: error: process {os.getpid()} works on")
  assert done.stderr.count("\n") == 1


def test_a_certificate_can_be_checked_without_the_run(path, tmp_path, capsys):
  cert = tmp_path / "certificate.json"
  assert run_cli(capsys, "verify", path, "--full", "--out", cert)[0] == 0
  text = cert.read_text()
  assert not any(str(i) in text for i in IDS if i > 10**6)
  store = tmp_path / "retained"
  run = run_lib.load(path)
  parts = [store_rows.read(rows_lib.resolve(path, s)) for s in run.manifest.stores]
  store_rows.land(store, store_rows.merge(parts), CONFIG.encoder)
  shutil.rmtree(path)
  check = ["verify", "--certificate", cert, "--encodings", store]
  for more in ([], ["--adapters", "3"], ["--full"]):
    assert run_cli(capsys, *check, *more)[0] == 0
  value = json.loads(text)
  wrong = value["weights"][3].translate(str.maketrans("0123456789", "1234567890"))
  value["weights"][3] = wrong
  cert.write_text(json.dumps(value))
  assert "was changed" in run_cli(capsys, *check)[2]
  cert.write_bytes(certificate_lib.seal(value))
  assert run_cli(capsys, *check, "--full")[0] == 1
  erase(store, run.state.ids[:1])
  code, out, _ = run_cli(capsys, *check)
  assert code == 1
  assert "not the retained samples" in out


def test_a_certificate_in_the_run_goes_with_the_state_it_is_about(path, capsys):
  assert run_cli(capsys, "verify", path, "--adapters", "2")[0] == 0
  assert (path / "certificate.json").is_file()
  do(path, unlearn(IDS[5:6]))
  assert not (path / "certificate.json").exists()


def test_all_masked_is_said_and_not_answered(path, capsys):
  run = run_lib.load(path)
  model = run.state.model._replace(live=jnp.zeros(CONFIG.num_adapters, bool))
  assert lego.predict(CONFIG, model, jnp.ones((1, 7))).shape == (1, 3)
  state = run.state._replace(
    model=model._replace(weights=jnp.zeros_like(model.weights))
  )
  manifest = run.manifest._replace(digest=digest(state), number=9, masked=8)
  checkpoint.save(path / "checkpoints", state, manifest, callbacks.no_step)
  code, _, err = run_cli(capsys, "evaluate", path)
  assert code == 2
  assert "legonet heal" in err


COMMANDS = [
  "unlearn",
  "learn",
  "heal",
  "compact",
  "status",
  "history",
  "verify",
  "evaluate",
  "repair",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_is_no_run_is_left_alone(tmp_path, command, capsys):
  args = ["--ids", "1"] if command in ("unlearn", "learn") else []
  assert run_cli(capsys, command, tmp_path / "none", *args)[0] == 2
  assert not list(tmp_path.iterdir())
  (tmp_path / "thing").mkdir()
  (tmp_path / "thing" / "file").write_text("mine")
  assert run_cli(capsys, command, tmp_path / "thing", *args)[0] == 2
  assert [p.name for p in files_below(tmp_path)] == ["file"]


@pytest.mark.parametrize("how", ["cut", "gone", "empty", "other"])
@pytest.mark.parametrize("when", ["queued", "accepted"])
def test_a_damaged_request_is_rejected_and_holds_up_nobody(path, how, when):
  class StopError(Exception):
    pass

  def stop(name):
    if name == when:
      raise StopError

  drop(path, unlearn(IDS[5:6]))
  if when == "accepted":
    with pytest.raises(StopError):
      do(path, None, stop)
  file = next((path / "requests").iterdir())
  if how == "gone":
    if when == "queued":
      pytest.skip("a request that is gone before anybody saw it is nowhere")
    file.unlink()
  else:
    data = {"cut": file.read_bytes()[:100], "empty": b"", "other": b"PK" + bytes(90)}
    file.write_bytes(data[how])
  session, _ = service.carry_out(path, unlearn(IDS[6:7]))
  assert IDS[5] in session.run.state.ids
  assert IDS[6] not in session.run.state.ids
  entry = next(e for e in session.entries if e["event"] == "rejected")
  assert entry["reason"] == "DamagedRequestError"
  assert "make the request again" in session.notes[0]
  assert not service.unfinished(path)
  assert not fails(path, full=True)
