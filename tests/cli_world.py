"""What the tests of commands around a run share."""

import json

from conftest import encodings, ids, labels
import numpy as np
import pytest

from legonet_jax.cli import main as cli

OPTIONS = ["--adapters", "8", "--top-k", "2", "--seed", "3"]


def say(capsys, *args, code=0):
  """Runs a command and returns what it printed, as JSON if asked for."""
  assert cli.main([str(a) for a in args]) == code
  out = capsys.readouterr()
  if code == 2:
    assert out.err.startswith("legonet: error: ")
    assert out.err.count("\n") == 1
    return out.err
  return json.loads(out.out) if "--json" in args else out.out


@pytest.fixture
def run(tmp_path, capsys):
  """A store with a test split and a run on it, made by the commands."""
  split = (np.arange(80) >= 60).astype(np.uint8)
  all_ids = np.append(ids(), np.arange(20) + 10**15)
  y = np.append(labels(), labels(20, seed=1))
  np.savez(
    tmp_path / "all.npz", encodings=encodings(80), labels=y, ids=all_ids, split=split
  )
  say(capsys, "import-encodings", tmp_path / "all.npz", "--out", tmp_path / "store")
  say(capsys, "fit", tmp_path / "store", "--out", tmp_path / "run", *OPTIONS)
  return tmp_path / "run"
