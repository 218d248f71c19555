"""Verdicts of the reproduction follow the numbers."""

from made_up_cells import (
  ENCODINGS,
  IMAGES,
  put,
  put_accuracy,
  put_privacy,
  put_tasks,
  rows_of,
  shown,  # noqa: F401 (a fixture)
)
import numpy as np
import pytest

from experiments.reproduce import (
  claims,
  judge,
  report,
  results,
)
from legonet_jax import errors


def verdict(folder, name, solver="ridge"):
  found = claims.find_all(results.load(folder), name)
  return judge.combine(f.verdict for _, f in found if f.solver in (solver, "–"))


@pytest.mark.parametrize(
  ("slope", "name", "expected"),
  [
    (1.0, "more n", "refuted"),
    (-1.0, "more n", "confirmed"),
    (0.0, "more n", "not clear"),
    (1.0, "n well kept", "confirmed"),
    (-1.0, "n well kept", "refuted"),
  ],
)
def test_verdicts_follow_the_numbers(tmp_path, slope, name, expected):
  lego = {"method": "lego", "solver": "ridge", "k": 10, **ENCODINGS}
  noise = np.random.default_rng(1)
  for seed in range(5):
    for at, n in enumerate((100, 200, 500, 1000)):
      level = 89 + slope * at + 0.05 * float(noise.normal())
      put_accuracy(tmp_path, level, seed=seed, n=n, **lego)
  assert verdict(tmp_path, name) == expected
  assert verdict(tmp_path, name, "SGD") == "no data"


def test_one_seed_gives_no_verdict(tmp_path):
  lego = {"method": "lego", "solver": "ridge", "n": 100, **ENCODINGS}
  for k in (1, 10):
    put_accuracy(tmp_path, 80.0 + k, k=k, **lego)
  assert verdict(tmp_path, "more k") == "not clear"


@pytest.mark.parametrize("left", [0.0, 0.02])
@pytest.mark.parametrize("equal", [True, False])
def test_forgetting_and_equality_are_judged_by_every_seed(tmp_path, left, equal):
  lego = {"method": "lego", "solver": "ridge", "n": 100, "k": 10, **ENCODINGS}
  put_tasks(tmp_path, 93.0, 89.0, seed=0, seconds=0.1, **lego)
  more = {"equal": equal, "left": left}
  put_tasks(tmp_path, 93.0, 89.0, seed=1, seconds=0.1, **more, **lego)
  assert verdict(tmp_path, "exact") == ("confirmed" if equal else "refuted")
  assert verdict(tmp_path, "class forgotten") == ("refuted" if left else "confirmed")


@pytest.mark.parametrize(
  ("auc", "wide", "expected", "control"),
  [
    (0.51, 0.02, "confirmed", "not clear"),
    (0.51, 0.2, "not clear", "not clear"),  # few models find nothing, good or bad
    (0.55, 0.02, "refuted", "confirmed"),
    (0.45, 0.02, "refuted", "refuted"),
  ],
)
def test_chance_is_judged_by_the_interval(tmp_path, auc, wide, expected, control):
  lego = {"method": "lego", "solver": "ridge", "n": 100, "k": 10, **ENCODINGS}
  for strategy in ("retrain", "none"):
    put_privacy(tmp_path, auc, 0.3, strategy, wide, **lego)
  assert verdict(tmp_path, "U-LiRA") == expected
  assert verdict(tmp_path, "control") == control


@pytest.mark.parametrize(
  ("klom", "expected"), [(0.3, "confirmed"), (0.35, "not clear"), (0.42, "refuted")]
)
def test_klom_is_judged_by_how_far_it_is_above_its_null(tmp_path, klom, expected):
  lego = {"method": "lego", "solver": "ridge", "n": 100, "k": 10, **ENCODINGS}
  put_privacy(tmp_path, 0.5, klom, **lego)
  assert verdict(tmp_path, "KLoM") == expected


@pytest.mark.parametrize(
  ("loss", "similar", "unreliable"),
  [(0.0, "confirmed", "confirmed"), (1.5, "refuted", "confirmed")],
)
def test_tune_and_ngrad_are_judged_against_retraining(
  tmp_path, monkeypatch, loss, similar, unreliable
):
  for seed in range(3):
    rnc = {"method": "rnc", "epochs": 4, **IMAGES}
    put_tasks(tmp_path, 99.0, 75.0, seed, 80.0, tune_loss=loss, **rnc)
  assert verdict(tmp_path, "Tune") == similar
  assert verdict(tmp_path, "NGrad fast") == "confirmed"
  assert verdict(tmp_path, "NGrad unreliable") == unreliable


def test_the_order_of_methods_is_judged_by_both_steps(tmp_path):
  for seed in range(3):
    ends = {"seed": seed, "epochs": 4, "seconds": 1.0, **IMAGES}
    put_tasks(tmp_path, 99.0, 75.0 + seed, method="rnc", **ends)
    put_tasks(tmp_path, 70.0, 66.0 + seed, method="sisa", s=10, slices=1, **ends)
    for solver, level in (("ridge", 60.0), ("sgd", 70.0)):
      lego = {"method": "lego", "solver": solver, "n": 100, "k": 10, "seed": seed}
      put_tasks(tmp_path, 90.0, level + seed, seconds=0.1, **lego, **IMAGES)
  assert verdict(tmp_path, "order") == "confirmed"
  assert verdict(tmp_path, "order", "SGD") == "refuted"


def test_the_summary_keeps_data_set_ups_apart(shown):
  rows = rows_of(shown / "out/tables/summary.csv")
  places = [row["Measured on"] for row in rows if row["Name"] == "exact"]
  assert len(places) == len(set(places)) == 3


@pytest.mark.parametrize("kind", ["time", "explain"])
def test_cells_of_other_settings_are_not_pooled(tmp_path, kind):
  for seed, size in enumerate((1000, 2000)):
    put(tmp_path, kind, {"rows": []}, seed, method="all", N=size, source="images")
  with pytest.raises(errors.DataError, match="differ in more than the seed"):
    report.show(tmp_path, tmp_path / "out")


def test_requests_of_anchors_are_shown_apart(shown):
  rows = rows_of(shown / "out/tables/time.csv")
  row = next(r for r in rows if r["Method"] == "LegoNet n = 100, k = 10")
  assert float(row["Seconds ours, an anchor"]) == pytest.approx(5.0)


def test_methods_on_other_samples_are_not_compared(tmp_path):
  for seed in range(3):
    sisa = {"method": "sisa", "s": 100, "slices": 1, "epochs": 4}
    put_accuracy(tmp_path, 40.0 + seed, seed=seed, **sisa, **IMAGES)
    fix = {"method": "fixsisa", "solver": "ridge", "s": 100, **IMAGES, "N": 50_000}
    put_accuracy(tmp_path, 80.0 + seed, seed=seed, **fix)
  assert verdict(tmp_path, "FixSISA over SISA") == "no data"
