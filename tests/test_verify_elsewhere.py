"""`verify` and `repair` on read-only disks, beside others, and killed; odd homes."""

import contextlib
import json
import stat
import subprocess
import sys

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
  snapshot,
  unlearn,
)

from legonet_jax import errors
from legonet_jax.cli import main as cli
from legonet_jax.io import lock
from legonet_jax.runs import (
  journal,
  repair as repair_lib,
  requests as requests_lib,
  run as run_lib,
  verify as verify_lib,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.runtime import compile_cache


def test_verify_gives_its_verdict_on_a_read_only_disk(tmp_path, capsys):
  from test_run_disks import small_disk

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


@pytest.mark.parametrize(
  "name",
  [
    ".certificate.json",  # of a killed `verify --full`
    ".head.json",  # of a killed `unlearn --sign-key`
    f"requests/.{7:020d}-0123456789abcdef.npz",  # of a killed `unlearn`
  ],
)
def test_verify_removes_what_a_killed_command_left_half_written(path, capsys, name):
  left = path / f"{name}.0123456789ab"
  left.write_bytes(b'{"checks": [{"det')
  assert cli.main(["verify", str(path), "--full"]) == 0
  assert not capsys.readouterr().err
  assert not left.exists()


def test_half_written_files_that_verify_may_not_remove_are_named_with_the_cure(path):
  left = path / ".certificate.json.0123456789ab"
  left.write_bytes(b"")
  (check,) = [c for c in verify_lib.verify(path).checks if not c.passed]
  assert check.name == "leftovers"
  assert str(left) in check.detail
  assert "half-written" in check.detail
  assert "`legonet verify" in check.detail
  assert left.exists()


def test_half_written_files_of_a_process_at_work_are_left_to_it(path, capsys):
  left = path / ".head.json.0123456789ab"
  left.write_bytes(b"{")
  with lock.hold(path):
    assert cli.main(["verify", str(path)]) == 0
    assert left.exists()
  assert cli.main(["verify", str(path)]) == 0
  assert not left.exists()


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
