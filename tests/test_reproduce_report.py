"""The report of the reproduction, as a page."""

import re

from made_up_cells import (
  COMMAND,
  ENCODINGS,
  put_privacy,
  put_tasks,
  shown,  # noqa: F401 (a fixture)
)
import pytest

from experiments.reproduce import (
  report,
  tables,
)


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
