"""Permissions honour the umask; locks, salts and other users."""

import contextlib
import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
import time

import numpy as np
from permissions_world import (
  made,  # noqa: F401 (a fixture)
  path,  # noqa: F401 (a fixture)
  umask,
)
import pytest
from run_world import (
  IDS,
  do,
  learn,
  make_run,
  refit_digest,
  unlearn,
)

from legonet_jax import errors
from legonet_jax.cli import main as cli
from legonet_jax.io import arrays, lock
from legonet_jax.runs import (
  requests as requests_lib,
  run as run_lib,
  service,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.runtime import callbacks
from legonet_jax.store import erase


def modes(folder):
  return {
    p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.rglob("*") if p.is_file()
  }


SECRET = {"forgotten.key", "lock", "queue.lock"}


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077, 0o002])
def test_files_honour_the_umask_and_secrets_are_the_owners(tmp_path, mask, capsys):
  with umask(mask):
    path = make_run(tmp_path)
    do(path, learn())
    requests_lib.drop(Layout(path), unlearn(IDS[:1]))
    assert cli.main(["verify", str(path), "--full", "--out", str(tmp_path / "c")]) == 0
    requests_lib.drop(Layout(path), unlearn(IDS[1:2]))
  for name, mode in modes(tmp_path).items():
    if name == "forgotten.key" or name.endswith(".npz"):
      assert mode == 0o600, name
    elif name in SECRET:
      assert not mode & ~0o666 & 0o777
      # Who may not write a lock may not read it either, and so cannot hold it.
      assert not mode & 0o004 or mode & 0o002, name
      assert not mode & 0o040 or mode & 0o020, name
    elif "checkpoints" not in name:
      assert mode & 0o666 & mask == 0, name
      if name in ("run.json", "journal.jsonl", "meta.json", "ids.npy", "c"):
        assert mode == 0o666 & ~mask, name


def test_a_lock_of_an_older_version_is_closed_to_others(path):
  (path / "lock").chmod(0o644)
  with lock.hold(path):
    assert stat.S_IMODE((path / "lock").stat().st_mode) == 0o600


def test_another_users_flock_holds_up_nobody(path):
  """Who can read folders and files of the run, but not write them."""
  handles = [path, path / "requests", path.parent / "store", path / "checkpoints"]
  opened = [os.open(p, os.O_RDONLY) for p in handles if p.exists()]
  opened += [
    os.open(p, os.O_RDONLY)
    for p in [*path.rglob("*"), *path.parent.rglob("*")]
    if p.is_file() and p.stat().st_mode & 0o004
  ]
  try:
    for handle in opened:
      with contextlib.suppress(BlockingIOError):  # the same file, opened twice
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    run, _ = do(path, unlearn(IDS[5:6]))
  finally:
    for handle in opened:
      os.close(handle)
  assert run.manifest.digest == refit_digest(np.delete(IDS, [0, 1, 5]))


def test_waiting_for_a_lock_is_bounded_and_says_who_holds_it(path):
  with lock.hold(path):
    start = time.monotonic()
    with pytest.raises(errors.RunBusyError, match=rf"process {os.getpid()} works on"):
      service.carry_out(path, unlearn(IDS[5:6]), wait=0.3)
    assert 0.3 <= time.monotonic() - start < 5
  with (
    lock.hold(path.parent / "store"),
    pytest.raises(errors.RunBusyError, match=rf"process {os.getpid()} .*waited 0.2 s"),
  ):
    erase.erase(path.parent / "store", lambda ids: ids < 0, callbacks.no_step, wait=0.2)


def test_a_command_waits_as_long_as_it_is_told(path, capsys):
  holding, done = threading.Event(), threading.Event()

  def hold():
    with lock.hold(path):
      holding.set()
      done.wait(1.0)

  thread = threading.Thread(target=hold)
  thread.start()
  holding.wait()
  args = ["unlearn", str(path), "--ids", str(IDS[5]), "--wait", "30"]
  assert cli.main(args) == 0
  thread.join()
  assert IDS[5] not in run_lib.load(path).state.ids


def test_the_salt_is_shown_before_the_work_and_again_while_it_waits(path, capsys):
  seen = []

  def fail(*args, **kwargs):
    seen.append(capsys.readouterr().err)
    raise errors.RunError("the disk is full")

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr("legonet_jax.runs.checkpoint.save", fail)
    assert cli.main(["unlearn", str(path), "--ids", str(IDS[5])]) == 2
    salt = seen[0].split("its salt is ")[1].strip()
    capsys.readouterr()
    assert cli.main(["status", str(path), "--salts", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["salts"]
    assert list(shown.values()) == [salt]
    assert cli.main(["status", str(path), "--salts"]) == 0
    assert salt in capsys.readouterr().out
  do(path)
  args = ["history", str(path), "--salt", salt, "--ids", str(IDS[5]), "--json"]
  assert cli.main(args) == 0


def test_a_request_of_another_user_waits_for_him_and_holds_up_nobody(path, monkeypatch):
  name = requests_lib.drop(Layout(path), unlearn(IDS[5:6]))
  read = requests_lib.read

  def refuse(folder, wanted):
    if wanted == name:
      raise PermissionError(13, "Permission denied")
    return read(folder, wanted)

  monkeypatch.setattr(requests_lib, "read", refuse)
  session, _ = service.carry_out(path, unlearn(IDS[6:7]))
  assert IDS[6] not in session.run.state.ids
  assert any("only the user who made it" in note for note in session.notes)
  monkeypatch.undo()
  run, _ = do(path)
  assert IDS[5] not in run.state.ids


def test_orbax_errors_are_one_line(path, monkeypatch, capsys):
  class Broken:
    def restore(self, *_):
      raise ValueError("first line\nsecond line\n" + "x" * 5000)

  monkeypatch.setattr(arrays, "_checkpointer", Broken)
  assert cli.main(["status", str(path)]) == 2
  err = capsys.readouterr().err
  assert err.count("\n") == 1
  assert len(err) < 600


SHORT_OF_ROOM = """
import resource, sys
from legonet_jax.cli import main
from legonet_jax.runs import checkpoint

def limit(*_):
  most = int(sys.argv[1])
  resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

checkpoint._require_room = limit
sys.exit(main.main(sys.argv[2:]))
"""


@pytest.mark.parametrize("most", [0, 500, 1000])  # metadata fits into the last two
def test_a_disk_that_fails_under_orbax_is_one_line(path, most):
  """Each of its threads, and each of its writes, told of the failure at length."""
  requests_lib.drop(Layout(path), unlearn(IDS[5:6]))
  command = [sys.executable, "-c", SHORT_OF_ROOM, str(most), "heal", str(path)]
  quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
  done = subprocess.run(command, capture_output=True, text=True, env=quiet)
  assert done.returncode == 2
  assert done.stderr.count("\n") == 1
  assert "cannot save a checkpoint" in done.stderr
  assert "(File too large)" in done.stderr
  run, _ = do(path)
  assert IDS[5] not in run.state.ids
