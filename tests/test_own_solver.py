"""A solver of a user's own works in fit, requests, runs, checkpoints, certificates."""

import dataclasses
import json
import sys

from conftest import CONFIG
from own_solver import ClassMeans
import pytest
from run_world import (
  IDS,
  do,
  learn,
  make_run,
  refit_digest,
  unlearn,
)

from legonet_jax import errors
from legonet_jax.cli import main as cli
from legonet_jax.core.config import describe
from legonet_jax.runs import run as run_lib, verify as verify_lib
from legonet_jax.solvers import settings

OWN = dataclasses.replace(CONFIG, solver=ClassMeans(sharpness=3.0))


def test_a_run_with_ones_own_solver_forgets_verifies_and_certifies(tmp_path, capsys):
  path = make_run(tmp_path, OWN)
  do(path, unlearn(IDS[:3]))
  do(path, learn())
  run, _ = do(path, unlearn(IDS[5:6]))
  retained = run.state.ids
  assert run_lib.load(path).cfg.solver == ClassMeans(sharpness=3.0)
  assert run.manifest.digest == refit_digest(retained, OWN)
  assert all(c.passed for c in verify_lib.verify(path, full=True).checks)
  cert = tmp_path / "certificate.json"
  assert cli.main(["verify", str(path), "--full", "--out", str(cert)]) == 0
  config = json.loads(cert.read_text())["config"]
  assert config["solver"]["type"] == "own_solver:ClassMeans"
  assert cli.main(["evaluate", str(path)]) == 0


def test_nothing_is_imported_because_a_file_says_so(tmp_path, monkeypatch, capsys):
  path = make_run(tmp_path, OWN)
  monkeypatch.delitem(sys.modules, "own_solver")
  assert cli.main(["status", str(path)]) == 2
  err = capsys.readouterr().err
  assert "`import own_solver` first" in err
  assert "own_solver" not in sys.modules


@pytest.mark.parametrize(
  "name", ["os:system", "builtins:dict", "own_solver:np", "conftest:CONFIG",
           "own_solver", ":", "", "legonet_jax.core.samples:Samples"]
)  # fmt: skip
def test_only_a_solver_can_stand_for_a_solver(name):
  value = json.loads(json.dumps(describe(OWN)))
  value["solver"]["type"] = name
  with pytest.raises(errors.ConfigError):
    settings.parse_config(value)


def test_ones_own_solver_says_which_maps_it_wants():
  assert OWN.feature_map == CONFIG.feature_map == "l2"
  assert dataclasses.replace(OWN, feature_map="auto").aggregate == "probs"
