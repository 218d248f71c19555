"""Full disks, read-only folders, two processes, and requests that are damaged."""

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
from run_damage_world import (
  fails,
  made,  # noqa: F401 (a fixture)
  path,  # noqa: F401 (a fixture)
  run_cli,
)
from run_world import (
  ENCODINGS,
  IDS,
  LABELS,
  NEW,
  NEW_IDS,
  do,
  drop,
  erase,
  files_below,
  make_run,
  refit_digest,
  unlearn,
)

import legonet_jax as lego
from legonet_jax.host.digest import digest
from legonet_jax.host.state import from_arrays, to_arrays
from legonet_jax.io import lock
from legonet_jax.runs import (
  certificate as certificate_lib,
  checkpoint,
  journal,
  rows as rows_lib,
  run as run_lib,
  service,
)
from legonet_jax.runtime import callbacks
from legonet_jax.store import rows as store_rows


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


def test_a_certificate_of_a_run_that_has_learned_is_checked_from_its_stores(
  path, tmp_path, capsys
):
  """They stay several: the fit's store, and one below learned/ for each .npz."""
  do(path, unlearn(NEW_IDS[:1]))
  cert = tmp_path / "certificate.json"
  assert run_cli(capsys, "verify", path, "--full", "--out", cert)[0] == 0
  run = run_lib.load(path)
  first, own = (rows_lib.resolve(path, store) for store in run.manifest.stores)
  assert own.parent == path / "learned"
  check = ["verify", "--full", "--certificate", cert, "--encodings", first]
  for more in ([own], ["--encodings", own]):
    code, out, _ = run_cli(capsys, *check, *more)
    assert code == 0
    assert "FAIL" not in out
  code, out, _ = run_cli(capsys, *check)
  assert code == 1
  assert "not the retained samples" in out
  (tmp_path / "ids.txt").write_text("\n".join(map(str, run.state.ids)))
  assert run_cli(capsys, *check, own, "--ids-file", tmp_path / "ids.txt")[0] == 0


def test_stores_of_one_certificate_are_matched_by_their_class_names(tmp_path, capsys):
  """Each store has its own numbers of the classes, and the run has others."""
  rows = {"encodings": ENCODINGS, "labels": LABELS, "ids": IDS}
  np.savez(tmp_path / "first.npz", **rows, classes=["cat", "dog", "owl"])
  lego.make_store(
    tmp_path / "new", NEW[0], NEW[1], NEW_IDS, classes=["owl", "cat", "dog"]
  )
  store, path, cert = (tmp_path / name for name in ("store", "run", "c.json"))
  for words in (
    ["import-encodings", tmp_path / "first.npz", "--out", store],
    ["fit", store, "--out", path, "--adapters", 8, "--top-k", 2],
    ["learn", path, "--encodings", tmp_path / "new"],
    ["verify", path, "--full", "--out", cert],
    ["verify", "--certificate", cert, "--full", "--encodings", store, tmp_path / "new"],
  ):
    assert run_cli(capsys, *words)[0] == 0, words


def test_a_certificate_in_the_run_goes_with_the_state_it_is_about(path, capsys):
  assert run_cli(capsys, "verify", path, "--adapters", "2")[0] == 0
  assert (path / "certificate.json").is_file()
  do(path, unlearn(IDS[5:6]))
  assert not (path / "certificate.json").exists()


def test_all_masked_is_said_and_not_answered(path, capsys):
  run = run_lib.load(path)
  arrays = to_arrays(run.state)
  blank = {name: np.zeros_like(arrays[name]) for name in ("live", "weights")}
  state = from_arrays({**arrays, **blank}, run.cfg)
  assert lego.predict(state, jnp.ones((1, 7))).shape == (1, 3)
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
