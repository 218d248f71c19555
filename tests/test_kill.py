"""Killed at any step, a run finishes what it accepted, once, and ends in a refit.

At each named step the folders are copied as they are on disk: what a process that is
killed there leaves behind. Each copy is then brought back and opened. A few processes
are really killed as well; `experiments/kill.py` kills at every step and at 100 random
moments.
"""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from run_world import (
  ENCODINGS,
  IDS,
  LABELS,
  NEW_IDS,
  completions,
  do,
  learn,
  make_run,
  refit_digest,
  snapshot,
  traces,
  unlearn,
)

from legonet_jax.runs import journal, requests as requests_lib, run as run_lib, service

ALWAYS = [
  "requested",
  "accepted",
  "rows landed",
  "arrays written",
  "checkpoint written",
  "checkpoint saved",
  "shredding a checkpoint",
  "checkpoints deleted",
  "requests removed",
  "complete",
]
ERASING = ["trained", "encoding overwritten", "id overwritten", "erased"]
GONE = IDS[5:7]
# LEGONET_STRIDE=1 looks at a kill before every single system call.
STRIDE = int(os.environ.get("LEGONET_STRIDE", 9))

# What is done before, what is killed, its steps, and the ids that are retained then.
WITH_NEW = [*IDS, *NEW_IDS]
SCENARIOS = {
  "unlearn": ([], lambda: unlearn(GONE), ALWAYS + ERASING, np.setdiff1d(IDS, GONE)),
  "defer": (
    [],
    lambda: unlearn(GONE, defer=True),
    ALWAYS + ERASING,
    np.setdiff1d(IDS, GONE),
  ),
  "learn": ([], learn, [*ALWAYS, "trained"], WITH_NEW),
  "heal": (
    [lambda: unlearn(GONE, defer=True)],
    lambda: requests_lib.make("heal"),
    [*ALWAYS, "trained"],
    np.setdiff1d(IDS, GONE),
  ),
  "compact": (
    [learn, lambda: unlearn(NEW_IDS[:1])],
    lambda: requests_lib.make("compact"),
    ALWAYS,
    [*IDS, *NEW_IDS[1:]],
  ),
}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
  folder = tmp_path_factory.mktemp("fresh")
  make_run(folder / "world")
  snapshot(folder / "world", folder / "first")
  return folder


@pytest.mark.parametrize("kind", SCENARIOS)
def test_a_kill_at_any_step_loses_nothing(fresh, kind):
  before, request, steps, retained = SCENARIOS[kind]
  world, path = fresh / "world", fresh / "world" / "run"
  snapshot(fresh / "first", world)
  for earlier in before:
    do(path, earlier())
  done_before = len(completions(path))
  seen = []

  def copy(name):
    seen.append(name)
    snapshot(world, fresh / "kills" / f"{len(seen):02d}")

  _, receipt = do(path, request(), copy)
  assert set(steps) <= set(seen)
  expected = refit_digest(retained)
  for number, name in enumerate(seen, 1):
    snapshot(fresh / "kills" / f"{number:02d}", world)
    run, _ = do(path)
    if name == "opened":  # nothing was asked for yet
      assert receipt.name not in completions(path)
      continue
    assert completions(path)[receipt.name] == 1, name
    assert len(completions(path)) == done_before + 1
    assert not service.unfinished(path)
    if kind == "defer":
      assert run.manifest.masked
      run, _ = do(path, requests_lib.make("heal"))
    assert run.manifest.digest == expected, name
    assert lego_digest(path) == expected
    if kind in ("unlearn", "defer"):
      row = 5
      left = traces(int(IDS[row]), ENCODINGS[row], int(LABELS[row]), world)
      assert not left, name
  assert len(list((path / "checkpoints").iterdir())) == 1


def lego_digest(path):
  return run_lib.load(path).manifest.digest


CALLS = ("fsync", "rename", "replace", "unlink", "write", "mkdir", "rmdir", "ftruncate")


@pytest.mark.parametrize("kind", ["unlearn", "learn"])
def test_a_kill_between_any_two_system_calls_loses_nothing(fresh, kind, monkeypatch):
  """As above, with a copy before every call that changes files; a few are looked at."""
  _, request, _, retained = SCENARIOS[kind]
  world, path = fresh / "world", fresh / "world" / "run"
  snapshot(fresh / "first", world)
  copies, asked = [], []

  def copying(name, call):
    def wrapped(*args, **kwargs):
      if not copying_now and threading.current_thread() is threading.main_thread():
        copying_now.append(name)
        folder = fresh / "calls" / f"{len(copies):03d}"
        snapshot(world, folder)
        copies.append((folder, bool(asked)))
        copying_now.clear()
      return call(*args, **kwargs)

    return wrapped

  copying_now = []
  with monkeypatch.context() as patch:
    patch.setattr(
      "legonet_jax.io.durable.for_all", lambda f, paths: [f(p) for p in paths]
    )
    for name in CALLS:
      patch.setattr(os, name, copying(name, getattr(os, name)))
    do(
      path, request(), lambda name: asked.append(name) if name == "requested" else None
    )
  assert len(copies) > 60
  expected = refit_digest(retained), refit_digest(IDS)
  for number in range(0, len(copies), STRIDE):
    folder, acknowledged = copies[number]
    snapshot(folder, world)
    run, _ = do(path)
    assert not service.unfinished(path)
    done = list(completions(path).values())
    assert done in ([[1]] if acknowledged else [[], [1]]), number
    assert run.manifest.digest == expected[0 if done else 1], number
    if done and kind == "unlearn":
      assert not traces(int(IDS[5]), ENCODINGS[5], int(LABELS[5]), world), number


def test_a_kill_during_recovery_is_recovered_from(fresh):
  """Twice in a row, at every pair of late steps."""
  world, path = fresh / "world", fresh / "world" / "run"
  snapshot(fresh / "first", world)
  late = ("checkpoint saved", "encoding overwritten", "shredding a checkpoint")

  class Stop(BaseException):
    pass

  def stop_at(step):
    def stop(name):
      if name == step:
        raise Stop

    return stop

  with pytest.raises(Stop):
    do(path, unlearn(GONE), stop_at(late[0]))
  for step in (*late[1:], "checkpoints deleted", "requests removed"):
    with pytest.raises(Stop):
      do(path, None, stop_at(step))
  run, _ = do(path)
  assert run.manifest.digest == refit_digest(np.setdiff1d(IDS, GONE))
  assert list(completions(path).values()) == [1]


def test_a_torn_journal_line_and_half_written_files_are_cleared(fresh):
  world, path = fresh / "world", fresh / "world" / "run"
  snapshot(fresh / "first", world)
  with (path / "journal.jsonl").open("ab") as file:
    file.write(b'{"seq": 1, "event": "acc')
  (path / "requests").mkdir(exist_ok=True)
  (path / "requests" / ".half.npz.x1y2").write_bytes(IDS[0].tobytes())
  making = path / "checkpoints" / ".making-00000001"
  making.mkdir()
  (making / "x").write_bytes(b"half")
  run, _ = do(path, unlearn(GONE))
  assert run.manifest.digest == refit_digest(np.setdiff1d(IDS, GONE))
  assert len(journal.read(path / "journal.jsonl")) == 3
  assert not list((path / "requests").iterdir())
  assert len(list((path / "checkpoints").iterdir())) == 1


VICTIM = """
import os, pathlib, signal, sys
sys.path.insert(0, {tests!r})
import numpy as np
from legonet_jax.runs import requests, service

def on_step(name):
  print(name, flush=True)
  if name == {step!r}:
    os.kill(os.getpid(), signal.SIGKILL)

ids = np.array({ids}, np.int64)
service.carry_out(
  pathlib.Path({path!r}), requests.make("unlearn", ids), on_step=on_step)
"""


@pytest.mark.parametrize("step", ["arrays written", "encoding overwritten"])
def test_a_process_that_is_really_killed(fresh, step):
  world, path = fresh / "world", fresh / "world" / "run"
  snapshot(fresh / "first", world)
  code = VICTIM.format(
    tests=str(pathlib.Path(__file__).parent),
    step=step,
    ids=GONE.tolist(),
    path=str(path),
  )
  env = {**os.environ, "JAX_PLATFORMS": "cpu"}
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env)
  assert done.returncode == -signal.SIGKILL, done.stderr
  assert done.stdout.split(b"\n")[-2].decode() == step
  assert len(service.unfinished(path)) == 1
  run, _ = do(path)
  assert run.manifest.digest == refit_digest(np.setdiff1d(IDS, GONE))
  assert list(completions(path).values()) == [1]
  assert not traces(int(GONE[0]), ENCODINGS[5], int(LABELS[5]), world)
