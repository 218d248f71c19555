"""What the documents say is there: tests, modules, links, options; examples run."""

import ast
import contextlib
import dataclasses
import functools
import importlib.util
import io
import json
import pathlib
import re
import runpy
import shlex
import sys

from conftest import CONFIG, encodings, ids, labels, refit
import matplotlib as mpl
import numpy as np
import pytest
from run_world import IDS, make_run
from test_layers import LEVEL

from experiments.reproduce import cost_tables, tables
import legonet_jax as lego
from legonet_jax.cli import main as cli

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
  *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
  ROOT / "examples" / "README.md",
  *sorted((ROOT / "docs").rglob("*.md")),
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOK = ROOT / "examples" / "tour.ipynb"

pages = pytest.mark.parametrize(
  "page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES]
)


def cells(kind):
  notebook = json.loads(NOTEBOOK.read_text())
  return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def text_of(page):
  return page.read_text()


@functools.cache
def find_tests():
  """The names of all tests, by the file that has them."""
  return {
    path.name: {
      node.name
      for node in ast.parse(path.read_text()).body
      if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    for path in (ROOT / "tests").glob("test_*.py")
  }


def test_the_readme_can_be_read_to_its_end():
  assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pages
def test_every_test_that_a_page_names_exists(page):
  """As `tests/test_x.py::test_name` or `test_name`; `…` stands for any letters."""
  text, files = text_of(page), find_tests()
  for name in re.findall(r"\btest_\w+\.py\b", text):
    assert name in files, name
  for name, test in re.findall(r"\b(test_\w+\.py)::(test_\w+)", text):
    assert test in files[name], test
  every = {test for tests in files.values() for test in tests}
  for quoted in re.findall(r"`((?:test_|…)[\w…]*)`", text):
    pattern = ".*".join(map(re.escape, quoted.split("…")))
    assert any(re.fullmatch(pattern, test) for test in every), quoted


@pages
def test_every_file_and_module_that_a_page_names_exists(page):
  text = text_of(page)
  code = re.findall(r"`([^`\n]+)`", text)
  for quoted in code:
    for path in re.findall(
      r"(?<![\w/.-])((?:legonet_jax|tests|experiments|benchmarks|examples|docs)/[\w/.-]*)",
      quoted,
    ):
      if not re.search(r"/[A-Z_]+[/.]", path):  # NAME.json stands for many files
        assert (ROOT / path.rstrip(".")).exists(), path
  if page.name == "CHANGELOG.md":
    return  # it names what there was
  for dotted in re.findall(r"\blegonet_jax(?:\.\w+)+", text):
    if not dotted.endswith((".py", ".pyi")):
      check_name(dotted)
  for module in re.findall(r"python -m ((?:experiments|benchmarks)[\w.]*)", text):
    assert importlib.util.find_spec(module) is not None, module


def check_name(dotted):
  """A module, or what can be reached in one by attributes."""
  parts = dotted.split(".")
  for i in range(len(parts), 0, -1):
    with contextlib.suppress(ModuleNotFoundError):
      found = importlib.import_module(".".join(parts[:i]))
      for part in parts[i:]:
        found = getattr(found, part)
      return
  raise AssertionError(dotted)


def slug(heading):
  """The anchor that GitHub and the site give a heading."""
  plain = re.sub(r"[`*]", "", heading).strip().lower()
  return re.sub(r" ", "-", re.sub(r"[^\w\- ]", "", plain))


@pages
def test_every_relative_link_resolves(page):
  links = re.findall(r"\]\(([^)\s]+)\)", text_of(page))
  for link in links:
    if re.match(r"[a-z]+:", link):
      continue
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    assert target.is_file(), link
    assert target.is_relative_to(ROOT), link
    if anchor and target.suffix == ".md":
      headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
      assert anchor in map(slug, headings), link


def test_links_of_the_notebook_resolve():
  text = "".join("".join(cell["source"]) for cell in cells("markdown"))
  links = re.findall(r"\]\(([^)\s]+)\)", text)
  assert links
  for link in links:
    assert (NOTEBOOK.parent / link).is_file(), link


def commands_of(text):
  """Every `legonet COMMAND ...` in code of a page: blocks and quotes."""
  blocks = re.findall(r"```(?:bash)?\n(.*?)```", text, re.DOTALL)
  blocks += re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
  lines = [line for block in blocks for line in block.splitlines()]
  lines += re.findall(r"`(legonet [^`]*)`", re.sub(r"```.*?```", "", text, flags=re.S))
  for line in lines:
    for part in re.split(r"\s{2,}(?=legonet )|&& ", line.split("#")[0]):
      if re.match(r"\s*legonet (--import \w+ )?[a-z]", part):
        yield re.sub(r"--import \w+ ", "", part.strip())


@functools.cache
def options_of(command):
  """The options that `legonet COMMAND --help` shows."""
  out = io.StringIO()
  with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as end:
    cli.main([command, "--help"])
  assert end.value.code == 0
  return set(re.findall(r"--[a-z][a-z-]*", out.getvalue()))


@pages
def test_every_command_of_a_page_has_options_that_exist(page):
  for line in commands_of(text_of(page)):
    _, command, *words = shlex.split(line)
    for word in words:
      if word.startswith("--"):
        assert word.partition("=")[0] in options_of(command), line
    options_of(command)


def test_commands_are_found_where_they_are():
  found = list(commands_of((ROOT / "docs" / "runs.md").read_text()))
  assert "legonet learn RUN --encodings X" in found
  assert "legonet verify RUN --head HASH" in found
  assert "legonet verify --certificate certificate.json --encodings STORE" in found
  assert len(found) > 25


def test_the_errata_are_what_the_code_prints():
  rows = tables.from_rows("", "", "", cost_tables.errata())
  printed = tables.markdown(rows).splitlines()[2:-2]
  assert "\n".join(printed) in (ROOT / "docs" / "errata.md").read_text()


def test_the_solver_of_the_docs_is_the_one_that_is_tested():
  page = (ROOT / "docs" / "extending.md").read_text()
  code = next(
    b for b in re.findall(r"```python\n(.*?)```", page, re.S) if "Solver" in b
  )
  tested = ast.parse((ROOT / "tests" / "own_solver.py").read_text()).body[1:]
  assert ast.dump(ast.Module(ast.parse(code).body, [])) == ast.dump(
    ast.Module(tested, [])
  )


def test_every_example_of_the_page_on_extending_runs():
  page = (ROOT / "docs" / "extending.md").read_text()
  codes = re.findall(r"```python\n(.*?)```", page, re.S)
  names = []
  for code in codes:
    scope = {"__name__": "example"}
    exec(code, scope)
    names.append(scope)
  means, fast, encoder, dataset, baseline = names
  check_that_both_solvers_agree(means["ClassMeans"](), fast["FastMeans"]())
  assert encoder["probs"].shape == (100, 10)
  assert len(dataset["store"].ids) == 200
  assert dataset["store"].meta["classes"] == ["noise", "stripes"]
  assert 0.5 < baseline["accuracy"] < 1
  assert baseline["info"].shards_trained <= 3


def check_that_both_solvers_agree(*solvers):
  """After a fit and a request; the second one keeps sums and mends them."""
  found = []
  for solver in solvers:
    cfg = dataclasses.replace(CONFIG, solver=solver)
    samples = lego.make_samples(cfg, encodings(), labels(), ids())
    state, _ = lego.fit(cfg, samples)
    after, _ = lego.unlearn(state, samples, state.ids[-3:])
    assert lego.digest(after) == lego.digest(refit(cfg, samples, after.ids))
    found.append(np.asarray(after.model.weights))
  np.testing.assert_array_equal(*found)


def test_the_example_of_the_page_on_measures_runs():
  page = (ROOT / "docs" / "measures.md").read_text()
  (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
  scope = {"__name__": "example"}
  exec(code, scope)
  assert 50 < scope["unlearned"].test < 100


def test_every_public_name_is_in_the_reference():
  pages = (ROOT / "docs" / "reference").glob("*.md")
  told = {*re.findall(r"^::: legonet_jax\.(\w+)$", "".join(map(text_of, pages)), re.M)}
  names = (name for name in lego.__all__ if name != "__version__")
  assert {n for n in names if callable(getattr(lego, n))} == told - {"errors"}
  page = text_of(ROOT / "docs" / "reference" / "functional.md")
  told = {*re.findall(r"^::: legonet_jax\.functional\.(\w+)$", page, re.M)}
  assert told == {*lego.functional.__all__}


def test_the_table_of_rooms_is_that_of_the_layers():
  page = (ROOT / "docs" / "architecture.md").read_text()
  rooms = re.findall(r"^\| `legonet_jax/(\w+)/` \|", page, re.MULTILINE)
  folders = {path.name for path in (ROOT / "legonet_jax").iterdir() if path.is_dir()}
  assert {*rooms} == folders - {"__pycache__"}
  assert rooms == sorted(rooms, key=LEVEL.get)


def test_the_python_of_a_run_runs_as_written(tmp_path):
  page = (ROOT / "docs" / "runs.md").read_text()
  [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
  names = {"path": str(make_run(tmp_path)), "ids": IDS[:2]}  # text will do
  exec(code, names)
  assert not {*IDS[:2]} & {*names["session"].run.state.ids}


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_every_example_runs(path, monkeypatch, capsys):
  monkeypatch.setattr(sys, "argv", [str(path)])
  runpy.run_path(str(path), run_name="__main__")
  assert capsys.readouterr().out


def test_the_example_with_an_npz_leaves_test_rows_out(tmp_path, capsys):
  train, _ = lego.data.load_embedded()
  rows = {"encodings": train.encodings, "labels": train.labels, "ids": train.ids}
  rows = {name: column[::10] for name, column in rows.items()}
  example = runpy.run_path(str(ROOT / "examples" / "own_npz.py"))
  for more, count in (({}, 600), ({"split": np.arange(600) // 400}, 400)):
    np.savez(tmp_path / "rows.npz", **rows, **more)
    example["main"]([str(tmp_path / "rows.npz")])
    assert f"fit on {count} samples" in capsys.readouterr().out


def test_every_example_is_listed():
  page = (ROOT / "examples" / "README.md").read_text()
  for path in (*EXAMPLES, NOTEBOOK):
    assert f"]({path.name})" in page


def test_the_notebook_runs(monkeypatch, capsys):
  monkeypatch.chdir(NOTEBOOK.parent)
  monkeypatch.setitem(mpl.rcParams, "backend", "Agg")
  names = {"__name__": "__main__"}
  for number, cell in enumerate(cells("code")):
    exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
  import matplotlib.pyplot as plt

  assert len(plt.get_fignums()) == 1
  plt.close("all")
  assert "equal bit for bit" in capsys.readouterr().out


def test_the_notebook_is_committed_with_its_outputs():
  run = [cell["execution_count"] for cell in cells("code")]
  assert run == list(range(1, len(run) + 1))
  outputs = [output for cell in cells("code") for output in cell["outputs"]]
  assert not [output for output in outputs if output["output_type"] == "error"]
  assert any("image/png" in output.get("data", {}) for output in outputs)
