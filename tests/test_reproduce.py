"""The reproduction: its tasks, scales and suites."""

import dataclasses
import json
import re

import numpy as np
import pytest
from reproduce_world import listed

from experiments.reproduce.datasets import Data, draw_images
from experiments.reproduce.labels import WORDS
from experiments.reproduce.scales import CPU, PAPER, SCALES
from experiments.reproduce.tasks import Contender, draw_rows, run_tasks

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
