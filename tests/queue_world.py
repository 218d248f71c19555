"""What the tests of the queue share."""

from conftest import CONFIG, encodings
import numpy as np
import pytest
from run_world import (
  make_run,
  snapshot,
)

from legonet_jax.cli import main as cli
from legonet_jax.runs import (
  create as create_lib,
  journal,
  requests as requests_lib,
  run as run_lib,
  verify as verify_lib,
)
from legonet_jax.store import rows as store_rows


class StopError(Exception):
  """Where a process dies."""


def stop_at(step):
  def stop(name):
    if name == step:
      raise StopError

  return stop


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp("queue")
  make_run(folder / "world")
  create_lib.create(folder / "world" / "other", CONFIG, folder / "world" / "store")
  snapshot(folder / "world", folder / "first")
  return folder


@pytest.fixture
def path(made):
  snapshot(made / "first", made / "world")
  return made / "world" / "run"


def queue(path, request):
  """Leaves a request in the queue while another process is at work."""
  return requests_lib.drop(run_lib.Layout(path), request)


def run_cli(*args):
  return cli.main([str(a) for a in args])


def sound(path):
  return all(check.passed for check in verify_lib.verify(path, full=True).checks)


def reasons(path):
  entries = journal.read(path / "journal.jsonl")
  return [e["reason"] for e in entries if e["event"] == "rejected"]


def new_store(folder, numbers):
  rows = store_rows.StoreRows(
    encodings(len(numbers), seed=12),
    np.zeros(len(numbers), np.int32),
    np.asarray(numbers, np.int64),
    np.zeros(len(numbers), np.uint8),
  )
  store_rows.land(folder, rows, CONFIG.encoder)
  return str(folder)
