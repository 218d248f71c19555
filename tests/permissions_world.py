"""What the tests of permissions share."""

import contextlib
import os

import pytest
from run_world import (
  IDS,
  do,
  make_run,
  snapshot,
  unlearn,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp("permissions")
  path = make_run(folder / "world")
  do(path, unlearn(IDS[:2]))
  snapshot(folder / "world", folder / "first")
  return folder


@pytest.fixture
def path(made):
  snapshot(made / "first", made / "world")
  return made / "world" / "run"


@contextlib.contextmanager
def umask(mask):
  before = os.umask(mask)
  try:
    yield
  finally:
    os.umask(before)
