import csv
import json
import math
import re

import numpy as np
import pytest

from experiments.reproduce import (
  cells,
  claims,
  judge,
  labels,
  paper,
  report,
  results,
  statistics,
  tables,
)
from legonet_jax import errors

COMMAND = "python -m experiments.reproduce all --scale cpu --dataset cifar10"
ENVIRONMENT = {"jax": "0.10.1", "processor": "A CPU", "cores": 2}
ENCODINGS = {"source": "encodings", "N": 50_000}
IMAGES = {"source": "images", "N": 2_000, "size": 64}


def put(folder, kind, result, seed=0, name=None, scale="cpu", **settings):
  (folder / "cells").mkdir(parents=True, exist_ok=True)
  words = [kind, *(str(settings[k]) for k in sorted(settings)), f"seed{seed}"]
  name = name or "-".join(words)
  settings = {"dataset": "cifar10", "scale": scale, "seed": seed} | settings
  cell = {
    "name": name,
    "kind": kind,
    "identity": cells.identify(kind, settings),
    "settings": settings,
    "result": result,
    "command": COMMAND,
    "seconds": 1.5,
    "finished": f"2026-01-01T00:00:{seed:02}+00:00",
    "environment": ENVIRONMENT,
  }
  path = folder / "cells" / (re.sub(r"[^\w.-]", "_", name) + ".json")
  path.write_text(json.dumps(cell))


def put_accuracy(folder, test, seed=0, **settings):
  balance = {"smallest": 10, "median": 400, "largest": 3000, "gini": 0.4}
  result = {"train": test + 3, "test": test, "fit_seconds": 4.0, "balance": balance}
  put(folder, "accuracy", result, seed, **settings)


def task(ra, fa, ta, strategies, forgotten=100):
  after = {
    name: {
      "retain": ra - loss,
      "unlearn": left,
      "test": ta - loss,
      "mia": 12.0,
      "tow": 1 - loss / 100,
      "seconds": seconds,
      "equal": equal,
      "digest": None,
      "refit_digest": None,
    }
    for name, (loss, left, seconds, equal) in strategies.items()
  }
  return {
    "forgotten": forgotten,
    "class": None,
    "before": {"retain": ra, "unlearn": ra, "test": ta},
    "refit": {"retain": ra, "unlearn": fa, "test": ta, "mia": 12.0},
    "after": after,
  }


def put_tasks(
  folder, ra, ta, seed, seconds, equal=True, left=0.0, tune_loss=0.1, **settings
):
  def ways(fa):
    found = {"retrain": (0.0, fa, seconds, equal)}
    if settings["method"] == "rnc":
      found["tune"] = (tune_loss, fa, seconds / 2, None)
      found["ngrad"] = (6.0, max(fa - 2, 0.5), seconds / 50, None)
    return found

  result = {
    "random100": task(ra, ta, ta, ways(ta)),
    "unclass": task(ra, 0.0, 0.9 * ta, ways(left), 5000),
  }
  put(folder, "tasks", result, seed, **settings)


def put_privacy(folder, auc, klom, strategy="retrain", wide=0.02, **settings):
  excess = 1.1 * klom / 0.33 - 1
  result = {
    "models": 64,
    "targets": 200,
    "ulira": {
      **{"auc": auc, "auc_low": auc - wide, "auc_high": auc + wide},
      **{"tpr": 0.011, "tpr_low": 0.006, "tpr_high": 0.018, "fpr": 0.01},
    },
    "klom": {"median": klom, "q95": 2 * klom, "mean": 1.1 * klom},
    "null": {"median": 0.30, "q95": 0.61, "mean": 0.33},
    "excess": {"mean": excess, "low": excess - 0.1, "high": excess + 0.1},
  }
  result["ulira_null"] = result["ulira"] | {"tpr": 0.013}
  put(folder, "privacy", result, strategy=strategy, **settings)


def world(folder, seeds=5):
  """Synthetic numbers for every kind of cell."""
  noise = np.random.default_rng(0)

  def jitter(value):
    return value + 0.05 * float(noise.normal())

  for seed in range(seeds):
    for solver, shift in (("ridge", 0.0), ("sgd", -0.8)):
      here = {"seed": seed, "solver": solver}
      put_accuracy(folder, jitter(86.6 + shift), method="linear", **here, **ENCODINGS)
      for s in paper.SEGMENTATIONS:
        level = jitter(87.0 + shift - s / 40)
        put_accuracy(folder, level, method="fixsisa", s=s, **here, **ENCODINGS)
        level = jitter(60.0 + shift - s / 10)
        put_accuracy(folder, level, method="fixsisa", s=s, **here, **IMAGES)
      points = {p for panel in paper.PANELS.values() for p in panel}
      points |= {(n, k) for n in (100, 200, 500, 1000) for k in (1, 2, 5, 10)}
      for n, k in sorted(points | {(20, 1), (50, 1)}):
        level = jitter(85 + shift + 1.5 * math.log(k) + 0.15 * math.log(n / 10))
        put_accuracy(folder, level, method="lego", n=n, k=k, **here, **ENCODINGS)
      for where in (ENCODINGS, IMAGES):
        ta = jitter((89.0 if where is ENCODINGS else 62.0) + shift)
        for n in (100, 1000):
          lego = {"method": "lego", "n": n, "k": 10, **here, **where}
          put_tasks(folder, ta + 4, ta, seconds=0.8 / n, **lego)
        fix = {"method": "fixsisa", "s": 10, **here, **where}
        put_tasks(folder, ta + 1, ta - 2, seconds=0.1, **fix)
    for s in paper.SEGMENTATIONS:
      sisa = {"method": "sisa", "s": s, "slices": 1, "epochs": 4, "seed": seed}
      put_accuracy(folder, jitter(66 - s / 3), **sisa, **IMAGES)
    ends = {"seed": seed, "epochs": 4, **IMAGES}
    put_tasks(folder, 99.0, jitter(75.0), seconds=80.0, method="rnc", **ends)
    sisa = {"method": "sisa", "s": 10, "slices": 1, **ends}
    put_tasks(folder, 70.0, jitter(66.0), seconds=75.0, **sisa)
    rows = [
      {"n": n, "k": 10, "solver": "ridge", "penalty": 1.0, "train_size": 500_000 / n}
      | {"test": jitter(88 + n / 1000), "single": jitter(85 - n / 1000)}
      for n in (100, 1000)
    ]
    put(folder, "explain", {"rows": rows}, seed, method="lego", **ENCODINGS)
  timed = []
  for s in paper.SEGMENTATIONS:
    for row, level in (
      ({"method": "sisa", "s": s}, 80 / s),
      ({"method": "fixsisa", "solver": "ridge", "s": s}, 0.6 / s),
      ({"method": "lego", "solver": "ridge", "n": 10 * s, "k": 10}, 1.2 / s),
      ({"method": "lego", "solver": "sgd", "n": 10 * s, "k": 10}, 4.0 / s),
    ):
      requests = [level * (1 + 0.02 * i) for i in range(5)]
      more = {"segmentation": s, "requests": requests}
      if row["method"] == "lego":
        more["anchor_requests"] = [5.0, 5.0]
      timed.append(row | more)
  put(folder, "time", {"rows": timed}, method="all", epochs=4, **IMAGES)
  for solver in ("ridge", "sgd"):
    lego = {"method": "lego", "solver": solver, "n": 100, "k": 10, **ENCODINGS}
    put_privacy(folder, 0.503, 0.31, **lego)
    put_privacy(folder, 0.74, 0.9, strategy="none", **lego)
  for strategy, auc in (("retrain", 0.495), ("tune", 0.63), ("ngrad", 0.58)):
    rnc = {"method": "rnc", "epochs": 4, **IMAGES}
    put_privacy(folder, auc, 0.3 if strategy == "retrain" else 0.8, strategy, **rnc)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
  folder = tmp_path_factory.mktemp("world")
  world(folder, seeds=3)
  report.show(folder, folder / "out")
  return folder


def verdict(folder, name, solver="ridge"):
  found = claims.find_all(results.load(folder), name)
  return judge.combine(f.verdict for _, f in found if f.solver in (solver, "–"))


def rows_of(path):
  with path.open(newline="") as file:
    return list(csv.DictReader(file))


def test_estimates_are_t_intervals():
  found = statistics.estimate([1.0, 2.0, 4.0])
  sd = math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2)
  assert found.mean == pytest.approx(7 / 3)
  assert found.half == pytest.approx(4.302652729911275 * sd / math.sqrt(3))
  assert statistics.estimate([1.0]).half is None
  assert statistics.estimate([]) is None


def test_differences_are_paired_where_seeds_match():
  a, b = {0: 1.0, 1: 5.0, 2: 9.0}, {0: 0.5, 1: 4.5, 2: 8.5}
  assert statistics.difference(a, b).half == pytest.approx(0, abs=1e-12)
  apart = {seed + 10: value for seed, value in b.items()}
  found = statistics.difference(a, apart)
  assert found.mean == pytest.approx(0.5)
  # Welch with equal variances and counts is the pooled interval of 4 degrees.
  assert found.half == pytest.approx(2.7764451051977987 * math.sqrt(2 * 16 / 3))


def test_csv_has_the_numbers_of_the_cells_in_full(shown):
  found = results.load(shown)
  group = found.find(
    "accuracy", source="encodings", method="lego", solver="sgd", n=500, k=5
  )
  values = [cell.result["test"] for cell in group.cells]
  row = next(
    row
    for row in rows_of(shown / "out/tables/grid.csv")
    if (row["Solver"], row["n"], row["k"]) == ("SGD", "500", "5")
  )
  assert len(values) == 3
  assert float(row["TA ours %"]) == float(np.mean(values))
  assert int(row["TA ours % count"]) == 3
  assert float(row["TA ours % ±95%"]) == statistics.estimate(values).half


def test_paper_and_ours_stand_side_by_side(shown):
  rows = rows_of(shown / "out/tables/main_images_unclass.csv")
  row = next(r for r in rows if r["Method"] == "RNC" and r["Strategy"] == "NGrad")
  assert float(row["TA paper %"]) == 75.88
  assert float(row["RA ours %"]) == 93.0
  assert row["Equal to refit, bit for bit"] == ""
  row = next(r for r in rows if r["Method"].startswith("LegoNet n = 1000"))
  assert float(row["RA paper %"]) == 94.47
  timed = rows_of(shown / "out/tables/time.csv")
  column = "Share of SISA s = 10, {} %"
  row = next(r for r in timed if r["Method"] == "LegoNet n = 1000, k = 10")
  assert float(row[column.format("paper")]) == pytest.approx(
    paper.SHARE[1000], abs=5e-3
  )
  assert float(row[column.format("ours")]) == pytest.approx(100 * 1.2 / 100 / 8)


def test_papers_overall_averages_follow_from_its_table():
  for row, printed in paper.OVERALL_AVERAGE.items():
    method, size, strategy = row.split()
    found = [
      paper.table_1(name, one, method, int(size), strategy)["test"]
      for name in ("cifar10", "cifar100")
      for one in labels.TASKS
    ]
    assert printed == pytest.approx(np.mean(found), abs=0.011)


@pytest.mark.parametrize("kind", ["accuracy", "tasks"])
def test_one_cell_is_enough_and_the_rest_are_dashes(tmp_path, kind):
  lego = {"method": "lego", "solver": "ridge", "n": 100, "k": 10, **ENCODINGS}
  if kind == "accuracy":
    put_accuracy(tmp_path, 88.5, **lego)
  else:
    put_tasks(tmp_path, 93.0, 88.5, seed=0, seconds=0.1, **lego)
  paths = report.show(tmp_path, tmp_path / "out")
  assert all(path.stat().st_size for path in paths)
  name = "ablation" if kind == "accuracy" else "main_encodings_random100"
  words = (tmp_path / f"out/tables/{name}.md").read_text()
  assert "88.50" in words
  assert "| – |" in words


@pytest.mark.parametrize("other", [{"scale": "smoke"}, {"dataset": "cifar100"}])
def test_scales_and_datasets_do_not_mix(tmp_path, other):
  linear = {"method": "linear", "solver": "ridge", **ENCODINGS}
  put_accuracy(tmp_path, 86.0, **linear)
  put_accuracy(tmp_path, 86.0, seed=1, **(linear | other))
  with pytest.raises(errors.DataError, match=f"more than one {next(iter(other))}"):
    report.show(tmp_path, tmp_path / "out")


def test_different_numbers_of_samples_do_not_mix(tmp_path):
  linear = {"method": "linear", "solver": "ridge", "source": "encodings"}
  put_accuracy(tmp_path, 86.0, N=100, **linear)
  put_accuracy(tmp_path, 80.0, seed=1, N=200, **linear)
  found = results.load(tmp_path)
  with pytest.raises(errors.DataError, match="differ in more than the seed"):
    found.find("accuracy", source="encodings", method="linear")


@pytest.mark.parametrize("content", ["{", "[]", '{"cell": "a"}'])
def test_a_damaged_cell_is_named(tmp_path, content):
  (tmp_path / "cells").mkdir()
  (tmp_path / "cells/broken.json").write_text(content)
  with pytest.raises(errors.DataError, match=r"broken\.json"):
    results.load(tmp_path)


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


def test_the_report_asks_for_nothing_and_escapes_names(tmp_path):
  hostile = '<script>alert("x")</script>&|`a`$\\frac'
  lego = {"method": hostile, "solver": hostile, "n": 100, "k": 10, **ENCODINGS}
  put_tasks(tmp_path, 93.0, 89.0, 0, 0.1, **lego)
  put_privacy(tmp_path, 0.5, 0.3, name=hostile, **lego)
  report.show(tmp_path, tmp_path / "out")
  page = (tmp_path / "out/report.html").read_text()
  assert "<script" not in page
  assert "&lt;script&gt;" in page
  asked = re.findall(
    r'(?:src|href|url|@import|action)\s*[=(]?\s*["\']?([^"\')>\s]+)', page
  )
  assert any(target.startswith("#") for target in asked)
  files = re.compile(r"[/#]|\.(png|svg|css|js|woff2?)$")
  assert all(target.startswith("#") for target in asked if files.search(target))
  addresses = set(re.findall(r"https?://[^\s\"'<]+", page))
  assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
  assert "<script" not in (tmp_path / "out/RESULTS.md").read_text()


@pytest.mark.parametrize("name", ["report.html", "RESULTS.md"])
def test_what_all_numbers_share_is_said_once_at_the_top(shown, name):
  words = (shown / "out" / name).read_text()
  top = words.index("Statements and verdicts")
  assert words[:top].count(COMMAND) == words[:top].count("A CPU") == 1
  assert "encodings, N = 50,000" in words[:top]
  assert words.count(COMMAND) == 2  # and under Provenance


def test_every_table_and_figure_is_in_a_box_that_scrolls_sideways(shown):
  page = (shown / "out/report.html").read_text()
  boxes = re.findall(r'<div class="scroll"[^>]*><(table|svg)', page)
  assert boxes.count("table") == page.count("<table")
  assert boxes.count("svg") == page.count("<svg") > 0
  assert ".scroll { overflow-x: auto;" in page


def test_ids_of_the_page_are_unique(shown):
  ids = re.findall(r'\bid="([^"]+)"', (shown / "out/report.html").read_text())
  assert len(ids) == len(set(ids))


def test_the_same_cells_give_the_same_bytes(shown, tmp_path):
  first = {p.relative_to(shown / "out"): p for p in (shown / "out").rglob("*.*")}
  again = report.show(shown, tmp_path)
  assert {p.relative_to(tmp_path) for p in again} == set(first)
  for path in again:
    assert path.read_bytes() == first[path.relative_to(tmp_path)].read_bytes()


def test_markdown_rows_have_as_many_cells_as_the_header():
  table = tables.Table("t", "T", "c", ("a", "b"), (("x|y", None), ("<b>", 1234)))
  lines = tables.markdown(table).splitlines()
  assert lines[2:6] == [
    "| a | b |",
    "| --- | ---: |",
    "| x\\|y | – |",
    "| &lt;b> | 1,234 |",
  ]
