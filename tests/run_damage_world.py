"""What the tests of damaged runs share."""

import pytest
from run_world import (
  IDS,
  do,
  learn,
  make_run,
  snapshot,
  unlearn,
)

from legonet_jax.cli import main as cli
from legonet_jax.runs import (
  verify as verify_lib,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp("made")
  path = make_run(folder)
  do(path, unlearn(IDS[:2]))
  do(path, learn())
  return folder


@pytest.fixture
def path(made, tmp_path_factory):
  keep = tmp_path_factory.mktemp("keep") / "copy"
  snapshot(made, keep)
  yield made / "run"
  snapshot(keep, made)


def fails(path, **kwargs):
  """Names of the checks that fail."""
  report = verify_lib.verify(path, **kwargs)
  return [check.name for check in report.checks if not check.passed]


def run_cli(capsys, *args):
  code = cli.main([str(a) for a in args])
  out = capsys.readouterr()
  if code == 2:
    *notes, line = out.err.splitlines()
    assert line.startswith("legonet: error: ")
    assert all(note.startswith("legonet: note: ") for note in notes)
    assert not out.out
  return code, out.out, out.err
