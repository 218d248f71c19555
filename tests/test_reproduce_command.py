"""The command of the reproduction, and a smoke run."""

import dataclasses
import json
import re

import pytest
from reproduce_world import command, listed, names, run

from experiments.reproduce import cells
from experiments.reproduce.scales import SMOKE


def training(name, **changes):
  """One way to train of the smoke scale, changed."""
  ways = SMOKE.images.training
  return {"training": {**ways, name: dataclasses.replace(ways[name], **changes)}}


CHANGES = {
  "evaluate, accuracy": ("hyperparameters", "^accuracy-", {"evaluate": 7}, {}),
  "evaluate, tasks": ("main", "^tasks-encodings-", {"evaluate": 7}, {}),
  "forget": ("main", "^tasks-encodings-", {"forget": 7}, {}),
  "forget, images": ("main", "^tasks-images-", {"forget": 7}, {}),
  "penalties": (
    "hyperparameters",
    "^explain-.*-ridge",
    {"penalties": (7.0,)},
    {},
  ),
  "adapters": ("hyperparameters", "^explain-", {"adapters": (7,)}, {}),
  "retain": ("main", "^tasks-images-", {}, {"retain": 7}),
  "test": ("main", "^tasks-images-", {}, {"test": 7}),
  "rnc": ("main", "^tasks-images-rnc", {}, training("rnc", epochs=7)),
  "norm": ("main", "^tasks-images-rnc", {}, training("rnc", norm="running")),
  "shard epochs": ("main", "^tasks-images-sisa", {}, training("shard", epochs=7)),
  "tune rate": ("main", "^tasks-images-rnc", {}, training("tune", learning_rate=7.0)),
  "ngrad epochs": ("main", "^tasks-images-rnc", {}, training("ngrad", epochs=7)),
  "timed epochs": ("time", "", {}, training("shard", epochs=7)),
  "timed shards": ("time", "", {}, {"shards": (7,)}),
  "timed adapters": ("time", "", {}, {"adapters": (7,)}),
  "requests": ("time", "", {}, {"requests": 3}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_settings_say_all_of_the_scale_that_decides_a_result(name):
  """Otherwise a cell of an older scale would be taken for one of the new."""
  suite, pattern, whole, images = CHANGES[name]
  other = dataclasses.replace(SMOKE, images=SMOKE.images._replace(**images), **whole)
  before, after = (
    {c.name: identity(c) for c in listed(suite, s) if re.search(pattern, c.name)}
    for s in (SMOKE, other)
  )
  both = before.keys() & after.keys()
  assert both
  assert all(before[cell] != after[cell] for cell in both)


def identity(cell):
  return cells.identify(cell.kind, cell.settings)


BAD = {
  "regex": (["hyperparameters", "--only", "("], "no regular expression"),
  "no encodings": (["main", "--scale", "cpu"], "give --encodings"),
  "other dataset": (["privacy", "--dataset", "cifar100"], "give --encodings"),
  "no such folder": (["ablation", "--encodings", "/no/such"], "/no/such"),
  "no jobs": (["cost", "--jobs", "0"], "--jobs is 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_code_2(name, tmp_path, capsys):
  args, message = BAD[name]
  assert command.main([*args, "--out", str(tmp_path)]) == 2
  printed = capsys.readouterr()
  assert printed.err.startswith("error: ")
  assert message in printed.err
  assert printed.err.count("\n") == 1
  assert printed.out == ""
  assert list(tmp_path.iterdir()) == []


def test_an_unknown_suite_or_scale_is_exit_code_2(capsys):
  for args in (["table1"], ["main", "--scale", "huge"]):
    with pytest.raises(SystemExit) as stopped:
      command.main(args)
    assert stopped.value.code == 2
    assert "invalid choice" in capsys.readouterr().err


def test_ctrl_c_is_one_line_and_130(tmp_path, monkeypatch, capsys):
  def stop(*args):
    raise KeyboardInterrupt

  monkeypatch.setattr(command, "run_cells", stop)
  assert command.main(["hyperparameters", "--out", str(tmp_path)]) == 130
  assert capsys.readouterr().err.count("\n") == 1


def test_a_smoke_run_goes_on_where_it_stopped_and_shows_its_results(tmp_path, capsys):
  only = ("hyperparameters", "--only", "encodings-(linear|fixsisa)-sgd-.*seed0$")
  assert run(tmp_path, *only, "--list") == 0
  wanted = capsys.readouterr().out.split()
  prefix = "accuracy-encodings"
  assert wanted == [f"{prefix}-fixsisa-sgd-s4-seed0", f"{prefix}-linear-sgd-seed0"]
  assert not any(tmp_path.iterdir())
  assert run(tmp_path, *only, "--minutes", "-1") == command.LEFT
  assert f"0 run, {len(wanted)} left" in capsys.readouterr().out
  assert run(tmp_path, *only) == 0
  assert f"0 cells found, {len(wanted)} run, 0 left" in capsys.readouterr().out
  folder = tmp_path / "cifar10_smoke"
  assert names(folder) == sorted(f"{name}.json" for name in wanted)
  assert (folder / "report.html").is_file()
  for name in wanted:
    saved = json.loads((folder / "cells" / f"{name}.json").read_text())
    assert saved["command"].endswith("hyperparameters --scale smoke --dataset cifar10")
    assert saved["result"]["test"] > 40
    assert saved["result"]["train"] >= saved["result"]["test"] - 5
  assert run(tmp_path, *only, "--list") == 0
  assert capsys.readouterr().out.split() == [x for n in wanted for x in ("done", n)]


def test_tasks_on_real_encodings_are_exact(tmp_path, monkeypatch):
  monkeypatch.setattr(command, "show", lambda *folders: None)
  only = "^tasks-encodings-(lego|fixsisa)-sgd-.*seed0$"
  assert run(tmp_path, "main", "--only", only) == 0
  results = {
    path.stem: json.loads(path.read_text())["result"]
    for path in (tmp_path / "cifar10_smoke" / "cells").iterdir()
  }
  assert len(results) == 2
  for result in results.values():
    for task in result.values():
      row = task["after"]["retrain"]
      assert row["equal"] is True
      assert row["tow"] == 1
      assert 0 <= row["mia"] <= 100
    assert result["random100"]["forgotten"] == SMOKE.forget
    assert result["unclass"]["after"]["retrain"]["unlearn"] == 0
    assert result["unclass"]["before"]["unlearn"] > 50


def test_the_cost_suite_shows_figure_5_by_itself(tmp_path):
  assert run(tmp_path, "cost") == 0
  written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
  assert {"cost_parameters.md", "cost_macs.md"} <= written
