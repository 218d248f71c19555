"""Cells of the reproduction: run once, and none is lost by a kill."""

import json
import math
import pathlib
import re
import subprocess
import sys
import time

import pytest
from reproduce_world import names

from experiments.reproduce import cells, jobs as parallel
from experiments.reproduce.cells import Cell, Tally, is_done, run_cells
from legonet_jax import errors

NULL = subprocess.DEVNULL


def jobs(ran, count=4, fail=None, error=KeyboardInterrupt, **settings):
  """Cells that note when they run; number `fail` raises."""

  def run(i):
    if i == fail:
      raise error
    ran.append(i)
    return {"value": i / 3}

  return [
    Cell(f"cell{i}", "accuracy", {"seed": i, **settings}, lambda i=i: run(i))
    for i in range(count)
  ]


def go(folder, todo, minutes=None):
  return run_cells(folder, todo, "a command", minutes)


def test_a_killed_run_loses_only_the_running_cell(tmp_path):
  ran = []
  with pytest.raises(KeyboardInterrupt):
    go(tmp_path, jobs(ran, fail=2))
  assert names(tmp_path) == ["cell0.json", "cell1.json"]
  saved = {name: (tmp_path / "cells" / name).read_bytes() for name in names(tmp_path)}
  assert go(tmp_path, jobs(ran)) == Tally(found=2, ran=2, left=0)
  assert ran == [0, 1, 2, 3]
  for name, content in saved.items():
    assert (tmp_path / "cells" / name).read_bytes() == content
  assert go(tmp_path, jobs(ran)) == Tally(4, 0, 0)


def test_a_kill_while_a_result_is_written_leaves_no_half_file(tmp_path, monkeypatch):
  ran = []
  go(tmp_path, jobs(ran, count=1))

  def kill(handle):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(cells.files.os, "fsync", kill)
    with pytest.raises(KeyboardInterrupt):
      go(tmp_path, jobs(ran, count=2))
  assert names(tmp_path) == ["cell0.json"]
  assert go(tmp_path, jobs(ran, count=2)) == Tally(1, 1, 0)
  assert ran == [0, 1, 1]


def test_a_result_says_what_it_was_made_by_and_on(tmp_path):
  (cell,) = jobs([], count=1, n=5)
  go(tmp_path, [cell])
  saved = json.loads((tmp_path / "cells" / "cell0.json").read_text())
  assert saved["result"] == {"value": 0.0}
  assert saved["settings"] == {"seed": 0, "n": 5}
  assert (saved["name"], saved["kind"]) == ("cell0", "accuracy")
  assert saved["identity"] == cells.identify("accuracy", {"seed": 0, "n": 5})
  assert saved["command"] == "a command"
  assert saved["seconds"] >= 0
  assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\+00:00", saved["finished"])
  assert {"jax", "numpy", "python", "processor", "cores"} <= set(saved["environment"])


def test_cells_with_other_settings_or_of_another_kind_are_run_again(tmp_path):
  ran = []
  go(tmp_path, jobs(ran, n=1))
  assert go(tmp_path, jobs(ran, n=2)) == Tally(0, 4, 0)
  other = [cell._replace(kind="tasks") for cell in jobs(ran, n=2)]
  assert go(tmp_path, other) == Tally(0, 4, 0)
  assert go(tmp_path, other) == Tally(4, 0, 0)


@pytest.mark.parametrize(
  "content", [b"", b'{"kind": "accu', b"\xff\xfe", b"{}", b"[]", b"null"]
)
def test_a_damaged_result_is_run_again(tmp_path, content):
  ran = []
  go(tmp_path, jobs(ran, count=2))
  (tmp_path / "cells" / "cell1.json").write_bytes(content)
  assert not is_done(tmp_path, jobs(ran)[1])
  assert go(tmp_path, jobs(ran, count=2)) == Tally(1, 1, 0)
  assert is_done(tmp_path, jobs(ran)[1])


def test_no_cell_is_begun_when_the_time_is_up(tmp_path, monkeypatch):
  ran, clock = [], [0.0]

  def slow(cell):
    def run():
      clock[0] += 50
      return cell.run()

    return cell._replace(run=run)

  monkeypatch.setattr(cells.time, "monotonic", lambda: clock[0])
  todo = [slow(cell) for cell in jobs(ran)]
  assert go(tmp_path, todo, minutes=1.5) == Tally(found=0, ran=2, left=2)
  assert names(tmp_path) == ["cell0.json", "cell1.json"]
  assert go(tmp_path, todo, minutes=1.5) == Tally(2, 2, 0)


def test_several_processes_are_not_started_for_what_is_done(tmp_path, monkeypatch):
  ran = []
  todo = jobs(ran)
  go(tmp_path, todo)
  alone = Cell("timed", "time", {"seed": 0}, lambda: ran.append("alone") or {})
  monkeypatch.setattr(parallel.subprocess, "Popen", None)
  args = (tmp_path, [*todo, alone], "a command", None, [], 2)
  assert parallel.run_jobs(*args) == Tally(4, 1, 0)
  assert ran == [0, 1, 2, 3, "alone"]


def test_a_process_that_fails_is_an_error_that_says_how_to_go_on(tmp_path, monkeypatch):
  class Failed:
    def __init__(self, line, stdin):
      self.line = line

    def wait(self):
      return -9

    def terminate(self):
      pass

  monkeypatch.setattr(parallel.subprocess, "Popen", Failed)
  with pytest.raises(errors.RunError, match="goes on with the cells that are left"):
    parallel.run_jobs(tmp_path, jobs([]), "a command", None, [], 2)


def test_processes_share_the_cells_and_run_each_once(tmp_path):
  ran = []
  first, second = jobs(ran), jobs(ran)[::-1]
  for todo in (first, second):
    run_cells(tmp_path / "other", todo[:1], "a command", shared=True)
  assert ran == [0, 3]
  (tmp_path / "other" / "cells" / "cell0.json").unlink()
  run_cells(tmp_path / "other", first, "a command", shared=True)
  assert ran == [0, 3, 1, 2]


def is_running(process):
  try:
    return pathlib.Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
  except OSError:
    return False


@pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_killed_run_takes_its_processes_along_and_loses_only_running_cells(tmp_path):
  only = [
    "--only",
    "encodings-(linear|fixsisa)-",
    "--jobs",
    "2",
    "--out",
    str(tmp_path),
  ]
  line = [sys.executable, "-m", "experiments.reproduce", "hyperparameters", *only]
  folder = tmp_path / "cifar10_smoke"
  with subprocess.Popen(line, stdout=NULL, stderr=NULL, start_new_session=True) as run:
    while not list(folder.glob("cells/*.json")):
      assert run.poll() is None
      time.sleep(0.05)
    children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text()
    run.kill()
  assert len(children.split()) >= 2
  end = time.monotonic() + 30
  while any(map(is_running, children.split())):
    assert time.monotonic() < end
    time.sleep(0.05)
  saved = {path: path.read_bytes() for path in folder.glob("cells/*.json")}
  done = subprocess.run(line, check=True, capture_output=True, text=True)
  assert f"{len(saved)} cells found, {4 - len(saved)} run, 0 left" in done.stdout
  assert all(path.read_bytes() == content for path, content in saved.items())


def test_what_cannot_be_written_as_json_leaves_no_file(tmp_path):
  (cell,) = jobs([], count=1)
  with pytest.raises(ValueError, match="JSON"):
    go(tmp_path, [cell._replace(run=lambda: {"value": math.nan})])
  assert not (tmp_path / "cells" / "cell0.json").exists()
