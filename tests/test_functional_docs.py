"""Every example of docs/functional.md runs as written, and says what it asserts."""

import pathlib
import re

import pytest

PAGE = (pathlib.Path(__file__).parents[1] / "docs" / "functional.md").read_text()
FIRST, *EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SECTIONS = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)


def test_the_page_has_an_example_of_every_way_of_composition():
  assert SECTIONS[:8] == [
    "jit", "Shadow models", "A stream of requests", "Many devices",
    "A solver of your own", "An encoder of your own",
    "Checkpoint and resume of a scan", "Export",
  ]  # fmt: skip
  assert len(EXAMPLES) == 10


@pytest.mark.parametrize("index", range(len(EXAMPLES)))
def test_an_example_runs_as_written(index, tmp_path):
  names = {"__name__": "example", "folder": tmp_path}
  exec(FIRST, names)
  exec(EXAMPLES[index], names)
