"""Who may read what, who can hold a lock, and what can be verified by whom."""

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
import pytest
from run_world import (
  IDS,
  do,
  learn,
  make_run,
  refit_digest,
  snapshot,
  unlearn,
)

from legonet_jax import errors
from legonet_jax.cli import main as cli
from legonet_jax.io import lock
from legonet_jax.runs import (
  checkpoint,
  journal,
  repair as repair_lib,
  requests as requests_lib,
  run as run_lib,
  service,
  verify as verify_lib,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.runtime import callbacks, compile_cache
from legonet_jax.store import erase


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp("permissions")
  path = make_run(folder / "world")
  do(path, unlearn(IDS[:2]))
  snapshot(folder / "world", folder / "first")
  return folder


@pytest.fixture
def path(made):
  snapshot(made / "first", made / "world")
  return made / "world" / "run"


@contextlib.contextmanager
def umask(mask):
  before = os.umask(mask)
  try:
    yield
  finally:
    os.umask(before)


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
  assert any("nobody else" in note for note in session.notes)
  monkeypatch.undo()
  run, _ = do(path)
  assert IDS[5] not in run.state.ids


def test_orbax_errors_are_one_line(path, monkeypatch, capsys):
  class Broken:
    def restore(self, *_):
      raise ValueError("first line\nsecond line\n" + "x" * 5000)

  monkeypatch.setattr(checkpoint, "_checkpointer", Broken)
  assert cli.main(["status", str(path)]) == 2
  err = capsys.readouterr().err
  assert err.count("\n") == 1
  assert len(err) < 600


def test_verify_gives_its_verdict_on_a_read_only_disk(tmp_path, capsys):
  from test_run_damage import small_disk

  with small_disk(tmp_path / "small", "4m") as folder:
    path = make_run(folder)
    requests_lib.drop(Layout(path), unlearn(IDS[:1]))
    do(path)
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    assert cli.main(["verify", str(path), "--full"]) == 0
    out = capsys.readouterr()
    assert "FAIL" not in out.out
    assert "could not be written" in out.err
    assert cli.main(["verify", str(path), "--full", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"]
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


def test_verify_gives_its_verdict_beside_a_process_at_work(path, capsys):
  """At every step of a request: never a false alarm."""
  verdicts = []

  def look(name):
    report = verify_lib.verify(path)
    verdicts.append((name, [c for c in report.checks if not c.passed]))

  do(path, unlearn(IDS[5:7]), look)
  do(path, learn(), look)
  assert len(verdicts) > 20
  assert not [v for v in verdicts if v[1]]


def test_verify_beside_a_process_at_work_still_sees_a_cheat(path):
  store = path.parent / "store" / "encodings.npy"
  data = store.read_bytes()
  with lock.hold(path):
    store.write_bytes(data[:-1] + bytes([data[-1] ^ 0x80]))
    assert not verify_lib.verify(path).passed


def damage(path):
  """Damages the weights and the list of retained ids of the only checkpoint."""
  (folder,) = (path / "checkpoints").iterdir()
  next(iter((folder / "state" / "weights").rglob("0.0.0"))).write_bytes(b"")
  (folder / "retained.npy").unlink()


def test_repair_trains_on_no_sample_that_the_journal_does_not_count(tmp_path):
  """Fitted on a part of the store: the others were never learned."""
  path = make_run(tmp_path, ids=IDS[:40])
  do(path, unlearn(IDS[:2], defer=True))  # masked: the digest cannot prove anything
  damage(path)
  with pytest.raises(errors.RunError, match="names just the 38 samples"):
    repair_lib.repair(path)


def test_repair_of_another_environment_is_proved_by_the_set_of_samples(
  path, monkeypatch
):
  damage(path)
  monkeypatch.setattr(repair_lib, "differences", lambda _: {"jaxlib": ("1", "2")})
  run, _ = repair_lib.repair(path)
  assert set(run.state.ids) == set(IDS[2:])
  assert all(c.passed for c in verify_lib.verify(path, full=True).checks)


def test_repair_survives_being_killed_at_any_step(path):
  class StopError(BaseException):
    pass

  good = run_lib.load(path).manifest.digest
  for step in ("trained", "arrays written", "checkpoint written", "checkpoint saved",
               "erased", "shredding a checkpoint", "checkpoints deleted",
               "requests removed", "repaired"):  # fmt: skip
    snapshot(path.parent.parent / "first", path.parent)
    damage(path)

    def stop(name, step=step):
      if name == step:
        raise StopError

    with pytest.raises(StopError):
      repair_lib.repair(path, on_step=stop)
    with contextlib.suppress(errors.RunError):  # sound already
      repair_lib.repair(path)
    run, _ = do(path, unlearn(IDS[5:6]))
    assert run.manifest.digest == refit_digest(np.delete(IDS, [0, 1, 5]))
    entries = journal.read(path / "journal.jsonl")
    assert [e["event"] for e in entries].count("repaired") == 1
    assert next(e for e in entries if e["event"] == "repaired")["after"] == good
    assert all(c.passed for c in verify_lib.verify(path, full=True).checks)


def test_compiled_programs_are_taken_from_no_folder_that_others_can_write(
  tmp_path, monkeypatch
):
  """Whoever can write the cache could have us run a program of his."""
  used = []
  monkeypatch.setattr(compile_cache.jax.config, "update", lambda *a: used.append(a))
  monkeypatch.setattr(
    type(compile_cache.jax.config), "jax_compilation_cache_dir", None, raising=False
  )
  monkeypatch.setenv("LEGONET_CACHE", str(tmp_path / "cache"))
  with umask(0o022):
    compile_cache.use_compile_cache()
  folder = next((tmp_path / "cache" / "xla").iterdir())
  assert stat.S_IMODE(folder.stat().st_mode) == 0o700
  assert used[0] == ("jax_compilation_cache_dir", str(folder))
  for place, mode in ((folder, 0o777), (folder, 0o770), (folder.parent, 0o777)):
    used.clear()
    before = place.stat().st_mode
    place.chmod(mode)
    compile_cache.use_compile_cache()
    assert not used
    place.chmod(before)
  compile_cache.use_compile_cache()
  assert used


def test_a_closed_pipe_is_no_error(path):
  code = (
    "import sys; from legonet_jax.cli.main import main;"
    f" sys.exit(main(['predict', {str(path)!r}, '--encodings',"
    f" {str(path.parent / 'store')!r}]))"
  )
  pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
  with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0
