"""A new dataset or baseline is one entry; a changed setting is another cell."""

import csv
import dataclasses
import hashlib
import importlib
import json
import re
import types

import numpy as np
import pytest

from experiments import common
from experiments.reproduce import cells, choose, datasets, plan, results
from experiments.reproduce.datasets import Bench, DatasetEntry
from experiments.reproduce.methods import METHODS, Method
from experiments.reproduce.scales import CPU, SMOKE
from experiments.reproduce.tasks import Contender
from legonet_jax import errors

COMMITTED = common.RESULTS / "reproduce" / "cifar10_cpu"
command = importlib.import_module("experiments.reproduce.__main__")


def rows_of(path):
  with path.open(newline="") as file:
    return list(csv.DictReader(file))


def blobs():
  """Three clouds of points: training, then test."""
  rng = np.random.default_rng(0)
  centres = rng.uniform(0, 4, (3, 16))
  splits = []
  for count in (120, 60):
    labels = np.arange(count) % 3
    points = np.abs(centres[labels] + 0.2 * rng.standard_normal((count, 16)))
    splits.append(common.RawSplit(points.astype(np.float16), labels))
  return tuple(splits)


def test_a_new_dataset_is_one_entry_and_its_report_does_without_the_paper(
  tmp_path, monkeypatch
):
  monkeypatch.setitem(datasets.DATASETS, "blobs", DatasetEntry("Three blobs", 3, blobs))
  only = "^(accuracy|tasks)-encodings-(linear|fixsisa|lego)-ridge"
  line = ["all", "--dataset", "blobs", "--only", only, "--out", str(tmp_path)]
  assert command.main(line) == 0
  folder = tmp_path / "blobs_smoke"
  ablation = rows_of(folder / "tables/ablation.csv")
  linear = next(row for row in ablation if row["Method"] == "One linear layer")
  assert float(linear["s or n/k = 10, TA ours %"]) > 90
  for name in ("ablation", "main_encodings_unclass", "hyperparameters", "grid"):
    for row in rows_of(folder / f"tables/{name}.csv"):
      assert not any(value for column, value in row.items() if "paper" in column)
  verdicts = {row["Name"]: row for row in rows_of(folder / "tables/summary.csv")}
  assert verdicts["exact"]["ridge adapters"] == "confirmed"
  assert verdicts["level"]["ridge adapters"] in ("", "no data")  # of the paper's level
  page = (folder / "report.html").read_text()
  assert "Three blobs" in page
  assert not re.search(r"\b(nan|None)\b(?! \(control\))", page)


def build_nearest_mean(bench, data, recipe):
  """The class whose mean is nearest; a class without samples is never nearest."""

  def fit(ids):
    rows = np.searchsorted(data.ids, ids)
    means = np.full((bench.dataset.classes, data.inputs.shape[1]), np.inf)
    for label in np.unique(data.labels[rows]):
      members = rows[data.labels[rows] == label]
      means[label] = data.inputs[members].astype(np.float64).mean(axis=0)
    return means

  def predict(means, inputs):
    near = -np.square(np.asarray(inputs, np.float64)[:, None] - means).sum(axis=2)
    p = np.exp(near - near.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)

  forget = {"retrain": lambda model, gone, retain: fit(retain)}
  digest = lambda means: hashlib.sha256(means.tobytes()).hexdigest()  # noqa: E731
  return Contender(data, fit, forget, predict, digest)


NEAREST_MEAN = Method(
  "Nearest mean",
  lambda scale: {("accuracy", "encodings"): [{}], ("tasks", "encodings"): [{}]},
  lambda bench, settings: {"retrain": ("euclidean", "float64")},
  build_nearest_mean,
)


def test_a_new_baseline_is_one_entry_and_stands_in_every_table(tmp_path, monkeypatch):
  monkeypatch.setitem(METHODS, "mean", NEAREST_MEAN)
  line = ["all", "--only", "encodings-(mean|linear-ridge)", "--out", str(tmp_path)]
  assert command.main(line) == 0
  tables = tmp_path / "cifar10_smoke" / "tables"
  (row,) = (
    r for r in rows_of(tables / "ablation.csv") if r["Method"] == "Nearest mean"
  )
  assert float(row["s or n/k = 10, TA ours %"]) > 50
  assert row["s or n/k = 10, TA paper %"] == ""
  for task in ("random100", "unclass"):
    rows = rows_of(tables / f"main_encodings_{task}.csv")
    assert [row["Method"] for row in rows] == ["Nearest mean"] * 2
    assert rows[1]["Equal to refit, bit for bit"] == "1 of 1"
  verdicts = {row["Name"]: row for row in rows_of(tables / "summary.csv")}
  assert verdicts["class forgotten"]["RNC, SISA or computed"] == "confirmed"


class Stub(Bench):
  """Tells the size of its data and has none."""

  encodings = (common.RawSplit(np.zeros((9, 2), np.float16), np.arange(9)),) * 2
  images = types.SimpleNamespace(split=np.arange(400) % 2, fingerprint="images")
  pretrained = (None, "weights")


def identities():
  found = plan.make_cells("all", Stub(SMOKE, "cifar10"))
  return {cell.name: cells.identify(cell.kind, cell.settings) for cell in found}


def changed(before):
  return {name for name, identity in identities().items() if before[name] != identity}


def test_a_new_strategy_is_another_cell(monkeypatch):
  before, rnc = identities(), METHODS["rnc"]

  def recipe(bench, settings):
    return {**rnc.recipe(bench, settings), "scrub": ("noise", 0.1)}

  monkeypatch.setitem(METHODS, "rnc", dataclasses.replace(rnc, recipe=recipe))
  assert changed(before) == {"tasks-images-rnc-seed0"}


def test_a_changed_setting_of_a_method_is_another_cell_wherever_it_is_used(monkeypatch):
  before, fixsisa = identities(), METHODS["fixsisa"]

  def recipe(bench, settings):
    (split, layer) = fixsisa.recipe(bench, settings)["retrain"]
    return {"retrain": (dataclasses.replace(split, aggregate="vote"), layer)}

  monkeypatch.setitem(METHODS, "fixsisa", dataclasses.replace(fixsisa, recipe=recipe))
  expected = {name for name in before if "fixsisa" in name} | {"time-images-all-seed0"}
  assert changed(before) == expected


def test_a_raised_version_is_another_cell(monkeypatch):
  before = identities()
  newer = dataclasses.replace(METHODS["linear"], version=2)
  monkeypatch.setitem(METHODS, "linear", newer)
  assert changed(before) == {name for name in before if "-linear-" in name}
  monkeypatch.setattr(plan, "VERSION", 2)
  assert changed(before) == set(before)


def committed():
  paths = sorted((COMMITTED / "cells").glob("*.json"))
  return {path.stem: json.loads(path.read_text()) for path in paths}


def test_the_committed_cells_are_those_that_the_cpu_scale_plans_today():
  """With the data that they record; otherwise the next run would compute hours."""
  found = committed()
  recorded = {}
  for saved in found.values():
    if saved["kind"] in ("accuracy", "tasks"):
      recorded.setdefault(saved["settings"]["source"], saved["settings"])

  class Recorded(Bench):
    def describe(self, source):
      names = ["dataset", "scale", "source", "data", "N"]
      names += ["test", "size", "encoder"] if source == "images" else []
      return {name: recorded[source][name] for name in names}

  planned = plan.make_cells("all", Recorded(CPU, "cifar10"))
  assert {cell.name for cell in planned} == set(found)
  for cell in planned:
    identity = cells.identify(cell.kind, cell.settings)
    assert found[cell.name]["identity"] == identity, cell.name


def test_a_cell_whose_settings_were_changed_by_hand_is_refused(tmp_path):
  saved = committed()["accuracy-encodings-linear-ridge-seed0"]
  path = tmp_path / "cells" / "cell.json"
  path.parent.mkdir()
  path.write_text(json.dumps(saved))
  assert results.load(tmp_path).cells[0].result == saved["result"]
  saved["settings"]["N"] = 1
  path.write_text(json.dumps(saved))
  with pytest.raises(errors.DataError, match="identity"):
    results.load(tmp_path)


def test_candidates_are_chosen_on_held_out_training_images(monkeypatch):
  made, asked = [], []

  def build(bench, data, recipe):
    """Answers by heart; Tune forgets nothing, NGrad answers nothing but NaN."""
    made.append((data, recipe))

    def predict(model, inputs):
      asked.append(len(inputs))
      if model is None:
        raise errors.SampleError("NaN")
      return np.eye(10)[np.arange(len(inputs)) % 10]

    ways = {
      "tune": lambda model, gone, retain: model,
      "ngrad": lambda model, gone, retain: None,
    }
    return Contender(data, lambda ids: ids, ways, predict)

  monkeypatch.setattr(choose, "build_rnc", build)
  bench = Bench(SMOKE, "cifar10")
  found = {}
  for cell in plan.make_cells("choose", bench):
    found[cell.settings["step"]] = cell.run()["rows"]
  assert {step: len(rows) for step, rows in found.items()} == {
    "rnc": len(choose.CANDIDATES["rnc"]),
    "shard": len(choose.CANDIDATES["shard"]),
    "forget": 2 * sum(map(len, choose.CANDIDATES["forget"].values())),
  }
  test = bench.images.ids[bench.images.split == 1]
  for data, _ in made:
    assert len(data.ids) == SMOKE.images.samples
    assert not np.isin(data.ids, test).any()
    assert len(data.test) == (bench.images.split == 0).sum() - len(data.ids)
  rates = {recipe["retrain"].learning_rate for _, recipe in made[:6]}
  assert rates == {rate for _, _, rate in choose.CANDIDATES["rnc"]}
  for row in found["forget"]:
    assert row.get("diverged", False) is (row["way"] == "ngrad")
    assert row["tow"] == (0 if row["way"] == "ngrad" else 1)
