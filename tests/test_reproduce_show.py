"""Tables of the reproduction, from made-up cells."""

import math

from made_up_cells import (
  ENCODINGS,
  put_accuracy,
  put_tasks,
  rows_of,
  shown,  # noqa: F401 (a fixture)
)
import numpy as np
import pytest

from experiments.reproduce import (
  labels,
  paper,
  report,
  results,
  statistics,
)
from legonet_jax import errors


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
