"""Arrays that no fit could have made are refused, however well they are sealed."""

import dataclasses

from conftest import CONFIG, encodings, ids, labels
import numpy as np
import pytest
from runs_world import (
  made,  # noqa: F401 (a fixture)
  path,  # noqa: F401 (a fixture)
)

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import main as cli
from legonet_jax.host.state import from_arrays, to_arrays
from legonet_jax.host.validate import validate
from legonet_jax.runs import checkpoint, run as run_lib
from legonet_jax.runtime.callbacks import no_step
from legonet_jax.store import models

RIDGE = dataclasses.replace(CONFIG, solver=lego.Ridge(), feature_map="sqrt")


def put(name, index, value):
  def forge(arrays):
    arrays[name] = arrays[name].copy()
    arrays[name][index] = value

  return forge


def swap(name, one, two):
  def forge(arrays):
    arrays[name] = arrays[name].copy()
    arrays[name][[one, two]] = arrays[name][[two, one]]

  return forge


def replace(name, change):
  return lambda arrays: arrays.update({name: change(arrays[name])})


FORGERIES = {
  "a route too far": put("routes", (5, 0), 8),
  "a route below 0": put("routes", (5, 1), -1),
  "a route twice": lambda a: put("routes", (5, 0), a["routes"][5, 1])(a),
  "a negative id": put("ids", 3, -4),
  "an id twice": lambda a: put("ids", 3, a["ids"][2])(a),
  "ids in another order": swap("ids", 10, 11),
  "another anchor": lambda a: put("anchors", 2, a["ids"][20])(a),
  "no anchor": put("anchors", 0, -1),
  "anchors in another order": swap("anchors", 0, 1),
  "a large key": put("keys", (0, 0), -128),
  "weights of what is not live": put("live", 1, False),
  "routes of 64 bits": replace("routes", lambda r: r.astype(np.int64)),
  "a row too few": replace("prints", lambda p: p[1:]),
  "other settings": put("settings", 0, 1),
}
WEIGHTS = {
  "ridge": (RIDGE, {"-2^31": -(2**31), "2^30 + 1": 2**30 + 1}),
  "sgd": (CONFIG, {"NaN": np.nan, "infinity": np.inf}),
}


def fitted(cfg):
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  return lego.fit(cfg, samples)[0]


def forged(state, forge):
  arrays = to_arrays(state)
  forge(arrays)
  arrays["settings"] = np.array(arrays["settings"])
  return arrays


@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("cfg", [CONFIG, RIDGE], ids=["sgd", "ridge"])
def test_a_forged_state_is_refused(cfg, name):
  state = fitted(cfg)
  validate(to_arrays(state), cfg)
  with pytest.raises(errors.DataError, match="not those of a state"):
    validate(forged(state, FORGERIES[name]), cfg)


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_no_solver_gives_are_refused(name):
  cfg, values = WEIGHTS[name]
  state = fitted(cfg)
  for value in values.values():
    with pytest.raises(errors.DataError, match="a weight is"):
      validate(forged(state, put("weights", (1, 1, 1), value)), cfg)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_model_with_forged_arrays_does_not_load(tmp_path, monkeypatch, name):
  state = fitted(CONFIG)
  arrays = forged(state, FORGERIES[name])
  monkeypatch.setattr(models, "to_arrays", lambda _: arrays)
  lego.save(tmp_path / "model", state)
  with pytest.raises(errors.StoreError, match="not those of a state") as caught:
    lego.load(tmp_path / "model")
  assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a route too far", "a large key", "another anchor"])
@pytest.mark.parametrize("command", ["verify", "heal", "unlearn", "status"])
def test_a_forged_checkpoint_is_one_line_whatever_is_asked(path, capsys, name, command):
  run = run_lib.load(path)
  state = from_arrays(forged(run.state, FORGERIES[name]), run.cfg)
  manifest = run.manifest._replace(digest=lego.digest(state))
  checkpoint.save(run.layout.checkpoints, state, manifest, no_step)
  options = ["--random", "1"] if command == "unlearn" else []
  code = cli.main([command, str(path), *options])
  out = capsys.readouterr()
  assert code == (1 if command == "verify" else 2)
  assert "damaged" in out.out + out.err
  assert "Traceback" not in out.err
  assert out.err.count("\n") <= 1
