"""What the tests of runs share besides `run_world`."""

import pytest
from run_world import (
  make_run,
  snapshot,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp("made")
  make_run(folder)
  return folder


@pytest.fixture
def path(made, tmp_path_factory):
  """A fresh run at the place where it was made: its store is named by its path."""
  keep = tmp_path_factory.mktemp("keep") / "copy"
  snapshot(made, keep)
  yield made / "run"
  snapshot(keep, made)
