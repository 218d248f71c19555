"""The layout: who may import whom, and no module imports itself through others."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1] / "legonet_jax"
# From the bottom up. A room may import itself and those below it, nothing else.
LAYERS = [
  {"errors", "known_answers"},
  {"io"},
  {"runtime"},
  {"core"},
  {"functional"},
  {"host"},
  {"solvers"},
  {"doctor"},
  {"data"},
  {"store"},
  {"encoder"},
  {"measures", "baselines"},
  {"runs"},
  {"cli"},
  {"__main__", "__init__"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
# The default of a setting; imported when the first settings are made.
ALLOWED = {("legonet_jax.core.config", "legonet_jax.solvers.ridge")}


def name_of(path):
  parts = path.relative_to(ROOT.parent).with_suffix("").parts
  return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports_of(path):
  """(imported module, whether at the top) of every import of our own modules."""
  found = set()
  tree = ast.parse(path.read_text())
  for node in ast.walk(tree):
    top = node in tree.body
    if isinstance(node, ast.Import):
      found |= {(a.name, top) for a in node.names}
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, f"{path}: a relative import"
      for a in node.names:
        whole = f"{node.module}.{a.name}"
        found.add((whole if whole in MODULES else node.module, top))
    elif isinstance(node, ast.Attribute):  # lego.runs.service
      text = ast.unparse(node)
      if text.startswith("lego."):
        name = "legonet_jax" + text[len("lego") :]
        if name in MODULES:
          found.add((name, False))
  return {(name, top) for name, top in found if name.partition(".")[0] == "legonet_jax"}


GRAPH = {name: imports_of(path) for name, path in MODULES.items()}


def room_of(name):
  parts = name.split(".")
  return parts[1] if len(parts) > 1 else "__init__"


def test_every_room_has_its_place():
  assert {room_of(name) for name in MODULES} == set(LEVEL)


@pytest.mark.parametrize("name", MODULES)
def test_no_module_imports_from_a_room_above_its_own(name):
  for other, _ in GRAPH[name]:
    if (name, other) in ALLOWED or other == "legonet_jax":
      continue
    mine, theirs = room_of(name), room_of(other)
    assert mine == theirs or LEVEL[theirs] < LEVEL[mine], f"{name} imports {other}"


def test_no_module_imports_itself_through_others():
  done, path = set(), []

  def visit(name):
    assert name not in path, " -> ".join([*path[path.index(name) :], name])
    if name in done:
      return
    path.append(name)
    for other, _ in sorted(GRAPH.get(name, ())):
      if other != "legonet_jax" and (name, other) not in ALLOWED:
        visit(other)
    path.pop()
    done.add(name)

  for name in MODULES:
    visit(name)


def test_files_are_short():
  lines = sorted(len(p.read_text().splitlines()) for p in ROOT.rglob("*.py"))
  assert lines[-1] <= 300
  assert lines[len(lines) // 2] <= 200


def test_the_stubs_of_the_rooms_name_every_module():
  """A module that is not in the stub of its room cannot be reached lazily."""
  for stub in ROOT.rglob("*/__init__.pyi"):
    named = {
      a.name
      for node in ast.walk(ast.parse(stub.read_text()))
      if isinstance(node, ast.ImportFrom) and node.module is None
      for a in node.names
    }
    there = {p.stem for p in stub.parent.glob("*.py")} - {"__init__"}
    assert named == there, stub
