"""The reproduce command: cells that survive a kill, tasks that find a cheat."""

import dataclasses
import importlib
import json
import math
import pathlib
import re
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from experiments import common
from experiments.reproduce import cells, jobs as parallel, plan
from experiments.reproduce.cells import Cell, Tally, is_done, run_cells
from experiments.reproduce.datasets import Bench, Data, draw_images
from experiments.reproduce.labels import WORDS
from experiments.reproduce.scales import CPU, PAPER, SCALES, SMOKE
from experiments.reproduce.tasks import Contender, draw_rows, run_tasks
from legonet_jax import errors

NULL = subprocess.DEVNULL
command = importlib.import_module("experiments.reproduce.__main__")


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


def names(folder):
  return sorted(path.name for path in (folder / "cells").iterdir())


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


CLASSES, COUNT = 3, 60


def world():
  """Inputs are ids; test inputs count on from the training ids."""
  rng = np.random.default_rng(0)
  ids = np.sort(rng.choice(1000, COUNT, replace=False))
  y = rng.integers(0, CLASSES, COUNT)
  test = np.arange(2000, 2000 + 40)
  return Data(ids, ids[:, None], y, test[:, None], test % CLASSES)


def contender(data, forget, digest=lambda model: repr(sorted(model))):
  """Knows by heart what it was trained on, and guesses a class from any other id."""
  known = dict(zip(data.ids.tolist(), data.labels.tolist(), strict=True))

  def predict(model, inputs):
    p = np.full((len(inputs), CLASSES), 0.1)
    for row, (i,) in enumerate(np.asarray(inputs).tolist()):
      best = known[i] if i in model else i * 7 // 2 % CLASSES
      p[row, best] = 0.8
    return p

  def fit(ids):
    return frozenset(ids.tolist())

  return Contender(data, fit, forget, predict, digest)


def exact(model, gone, retain):
  assert not set(gone.tolist()) & set(retain.tolist())
  return model - set(gone.tolist())


def cheat(model, gone, retain):
  return model


def asked(seed, evaluate=None):
  return {"seed": seed, "forget": 10, "evaluate": evaluate}


def right(data, model, ids):
  """Percent of the training samples `ids` that a model has right, one by one."""
  hits = 0
  for i in ids:
    label = data.labels[data.ids.tolist().index(i)]
    hits += i in model or i * 7 // 2 % CLASSES == label
  return 100 * hits / len(ids)


def test_tasks_find_the_exact_method_equal_and_the_cheat_not():
  data = world()
  found = run_tasks(contender(data, {"retrain": exact, "cheat": cheat}), asked(seed=3))
  assert set(found) == {"random100", "unclass"}
  label = found["unclass"]["class"]
  everything = set(data.ids.tolist())
  of_class = {i for i in everything if data.labels[data.ids.tolist().index(i)] == label}
  assert found["unclass"]["forgotten"] == len(of_class)
  assert found["random100"]["forgotten"] == 10
  assert found["random100"]["class"] is None
  for task in found.values():
    ours, theirs = task["after"]["retrain"], task["after"]["cheat"]
    assert ours["equal"] is True
    assert ours["digest"] == ours["refit_digest"]
    assert ours["tow"] == 1
    assert theirs["equal"] is False
    assert theirs["unlearn"] == 100
    slow = 1.0
    for name in ("retain", "unlearn", "test"):
      assert ours[name] == task["refit"][name]
      slow *= 1 - abs(theirs[name] - task["refit"][name]) / 100
    assert theirs["tow"] == pytest.approx(slow)
    assert slow < 0.9
    assert task["before"].keys() == {"retain", "unlearn", "test"}
    assert task["before"]["unlearn"] == task["before"]["retain"] == 100
  after = found["unclass"]["after"]["retrain"]
  assert after["unlearn"] == pytest.approx(right(data, everything - of_class, of_class))
  assert after["retain"] == 100


def test_without_a_digest_retraining_is_the_refit_itself():
  data, fits = world(), []
  ways = {"retrain": exact, "tune": cheat}
  one = contender(data, ways, digest=None)
  count = lambda ids, fit=one.fit: fits.append(len(ids)) or fit(ids)  # noqa: E731
  one = dataclasses.replace(one, fit=count)
  for task in run_tasks(one, asked(seed=0, evaluate=20)).values():
    assert task["after"]["retrain"]["tow"] is None
    assert task["after"]["tune"]["tow"] < 1
    assert {row["equal"] for row in task["after"].values()} == {None}
    assert task["refit"]["unlearn"] == task["after"]["retrain"]["unlearn"]
  assert fits == [COUNT]


def test_both_tasks_start_from_the_original_model_and_follow_the_seed():
  data, requests = world(), []

  def forget(model, gone, retain):
    requests.append((len(model), tuple(gone.tolist())))
    return exact(model, gone, retain)

  for seed in (0, 0, 1):
    run_tasks(contender(data, {"retrain": forget}), asked(seed))
  assert {size for size, _ in requests} == {COUNT}
  drawn = [gone for _, gone in requests[::2]]
  assert drawn[0] == drawn[1] != drawn[2]


def test_a_part_of_the_rows_is_sorted_distinct_and_of_the_size():
  rows = np.arange(50) * 3
  assert draw_rows(np.random.default_rng(0), rows, None) is rows
  few = draw_rows(np.random.default_rng(0), rows, 7)
  assert len(set(few.tolist())) == 7
  assert (np.diff(few) > 0).all()
  assert np.isin(few, rows).all()


def test_drawn_images_have_every_class_in_both_splits():
  drawn = draw_images(10)
  for split in (0, 1):
    assert set(drawn.labels[drawn.split == split].tolist()) == set(range(10))


class Stub(Bench):
  """Tells the size of its data and has none: cells are listed without computing."""

  encodings = (common.RawSplit(np.zeros((9, 2), np.float16), np.arange(9)),) * 2
  images = types.SimpleNamespace(split=np.arange(4000) % 2, fingerprint="images")
  pretrained = (None, "weights")


def listed(suite, scale):
  return plan.make_cells(suite, Stub(scale, "cifar10"))


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("suite", WORDS["suites"])
def test_every_cell_has_a_name_of_its_own_and_plain_settings(suite, scale):
  found = listed(suite, scale)
  assert len({cell.name for cell in found}) == len(found)
  assert found or suite == "cost"
  for cell in found:
    assert re.fullmatch(r"[\w.-]+", cell.name)
    assert json.loads(json.dumps(cell.settings)) == cell.settings
    wanted = {"dataset", "scale", "source", "method", "seed", "N"}
    assert wanted <= set(cell.settings)
    assert cell.settings["scale"] == scale.name
    assert cell.name.endswith(f"seed{cell.settings['seed']}")


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_all_suites_agree_on_their_common_cells_and_all_has_them_all(scale):
  found = {}
  for suite in set(WORDS["suites"]) - {"all", "choose"}:
    for cell in listed(suite, scale):
      known = found.setdefault(cell.name, cell)
      assert (known.kind, known.settings) == (cell.kind, cell.settings)
  assert {cell.name for cell in listed("all", scale)} == set(found)


@pytest.mark.parametrize("scale", [CPU, PAPER], ids=["cpu", "paper"])
def test_cpu_and_paper_have_the_grid_of_the_paper(scale):
  segmentations = (10, 20, 50, 100)
  grid = {(n, k) for n in (100, 200, 500, 1000) for k in (1, 2, 5, 10)}
  # Table 2: k = 1 and k = 10 at every segmentation; Figure 4: its three panels.
  shown = {(s, 1) for s in segmentations} | {(10 * s, 10) for s in segmentations}
  shown |= {(100, k) for k in (1, 2, 5, 10)} | {(10 * k, k) for k in (1, 2, 5, 10)}
  assert grid | shown <= {(n, k) for n, k in scale.grid}
  assert scale.shards == scale.images.shards == [*segmentations]
  assert sorted(s for s, seeds in scale.images.sweep if seeds) == [*segmentations[1:]]
  assert len(scale.seeds) >= 5
  assert scale.samples is None
  assert scale.forget == 100


@pytest.mark.parametrize("scale", [CPU, PAPER], ids=["cpu", "paper"])
def test_the_ablation_has_every_method_at_every_segmentation_by_itself(scale):
  found = [cell.settings for cell in listed("ablation", scale)]
  for s in (10, 20, 50, 100):
    sides = [row for row in found if row.get("s") == s]
    for source, method in (
      ("encodings", "fixsisa"), ("images", "fixsisa"), ("images", "sisa")
    ):  # fmt: skip
      rows = [r for r in sides if (r["source"], r["method"]) == (source, method)]
      assert rows, (source, method, s)
    for n, k in ((s, 1), (10 * s, 10)):
      assert [r for r in found if (r.get("n"), r.get("k")) == (n, k)], (n, k)


def test_only_the_paper_scale_has_all_of_the_papers_images():
  tune = PAPER.images
  assert (tune.samples, tune.test, tune.retain) == (None, None, None)
  assert (tune.encoder.name, tune.encoder.size) == ("resnet34", 224)
  assert CPU.images.encoder.size >= 64
  assert CPU.images.samples >= 2000


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


def run(tmp_path, *args):
  return command.main([*args, "--scale", "smoke", "--out", str(tmp_path)])


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
