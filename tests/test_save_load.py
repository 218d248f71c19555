"""`save` and `load`: the same state, bit for bit, whole or not at all; and JSON."""

import dataclasses
import gc
import json
import pathlib
import subprocess
import sys

from conftest import CONFIG, SGD, encodings, ids, labels
import jax
import numpy as np
import optax
import pytest

import legonet_jax as lego
from legonet_jax import errors

# Orbax leaves threads behind when it fails.
pytestmark = [
  pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
  pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
ROOT = pathlib.Path(__file__).parents[1]
SOLVERS = {"ridge": CONFIG, "sgd": dataclasses.replace(CONFIG, solver=SGD)}


@pytest.fixture(autouse=True)
def collect():
  """What orbax has left behind ends here, and not in somebody else's test."""
  yield
  gc.collect()


def fitted(cfg):
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  return samples, lego.fit(cfg, samples)[0]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  """A saved model that tests only read or copy."""
  path = tmp_path_factory.mktemp("saved") / "model"
  samples, state = fitted(CONFIG)
  lego.save(path, state)
  return path, samples, state


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", [str, pathlib.Path])
def test_a_loaded_model_is_the_saved_one_bit_for_bit_and_goes_on(tmp_path, name, kind):
  cfg = SOLVERS[name]
  samples, state = fitted(cfg)
  lego.save(kind(tmp_path / "model"), state)
  loaded = lego.load(kind(tmp_path / "model"))
  assert loaded.cfg == cfg
  assert lego.digest(loaded) == lego.digest(state)
  one = lego.unlearn(state, samples, state.ids[:2])[0]
  two = lego.unlearn(loaded, samples, state.ids[:2])[0]
  refit = lego.fit(cfg, lego.select(samples, state.ids[2:]))[0]
  assert lego.digest(one) == lego.digest(two) == lego.digest(refit)
  e = encodings(5, seed=3)
  np.testing.assert_array_equal(
    lego.predict(state.model, e), lego.predict(loaded.model, e)
  )


def test_a_masked_state_is_saved_as_it_is(tmp_path):
  samples, state = fitted(CONFIG)
  masked, info = lego.unlearn(state, samples, state.ids[:1], defer=True)
  assert info.adapters_masked
  lego.save(tmp_path / "m", masked)
  healed = lego.heal(lego.load(tmp_path / "m"), samples)[0]
  refit = lego.fit(CONFIG, lego.select(samples, state.ids[1:]))[0]
  assert lego.digest(healed) == lego.digest(refit)


def test_another_process_loads_it(saved):
  path, _, state = saved
  code = f"import legonet_jax as l; print(l.digest(l.load({str(path)!r})))"
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
  )
  assert done.stdout.strip() == lego.digest(state)


def test_nothing_is_overwritten_unasked_and_only_a_model_when_asked(saved, tmp_path):
  _, _, state = saved
  lego.save(tmp_path / "m", state)
  with pytest.raises(errors.StoreError, match="overwrite=True"):
    lego.save(tmp_path / "m", state)
  lego.save(tmp_path / "m", state, overwrite=True)
  (tmp_path / "mine").mkdir()
  (tmp_path / "mine" / "thesis").write_text("years of work")
  with pytest.raises(errors.StoreError, match="name a new folder"):
    lego.save(tmp_path / "mine", state, overwrite=True)
  assert (tmp_path / "mine" / "thesis").read_text() == "years of work"


def copy_of(path, folder):
  new = folder / "copy"
  for file in path.rglob("*"):
    if file.is_file():
      (new / file.relative_to(path)).parent.mkdir(parents=True, exist_ok=True)
      (new / file.relative_to(path)).write_bytes(file.read_bytes())
  return new


def test_damage_is_seen_in_every_file(saved, tmp_path):
  """Cut, removed, with one or all bytes turned: an error of ours, or the same state."""
  path, _, state = saved
  names = sorted(p.relative_to(path) for p in path.rglob("*") if p.is_file())
  refused = 0
  for number, name in enumerate(names):
    for how in ("cut", "gone", "turned", "garbled"):
      new = copy_of(path, tmp_path / f"{number}{how}")
      data = bytearray((new / name).read_bytes())
      if how == "gone":
        (new / name).unlink()
      elif how == "cut":
        (new / name).write_bytes(data[: len(data) // 2])
      elif how == "garbled":
        (new / name).write_bytes(bytes(byte ^ 0x10 for byte in data))
      elif data:
        data[len(data) // 2] ^= 0x10
        (new / name).write_bytes(data)
      try:
        loaded = lego.load(new)
      except errors.StoreError:
        refused += 1
      else:
        assert loaded.cfg == CONFIG
        assert lego.digest(loaded) == lego.digest(state)
  assert refused > len(names)


def edit_about(path, change):
  """Changes the metadata of a saved model."""
  file = next(p for p in path.rglob("_CHECKPOINT_METADATA") if p.parent == path)
  value = json.loads(file.read_text())
  change(value["custom_metadata"])
  file.write_text(json.dumps(value))


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda a: a.update(format="x"), "not a model of this version"),
    (lambda a: a.pop("config"), "cannot be read"),
    (lambda a: a["config"].update(num_adapters=10**7), "not those of a state"),
    (lambda a: a["config"].update(type="os:system"), "cannot be read"),
    (lambda a: a["config"]["solver"].update(type="subprocess:Popen"), "cannot be read"),
    (lambda a: a.update(digest="0" * 64), "different state than was saved"),
  ],
)
def test_metadata_is_not_trusted(saved, tmp_path, change, message):
  new = copy_of(saved[0], tmp_path)
  edit_about(new, change)
  with pytest.raises(errors.StoreError, match=message):
    lego.load(new)


def test_arrays_larger_than_their_files_take_no_memory(saved, tmp_path, monkeypatch):
  new = copy_of(saved[0], tmp_path)
  for file in new.rglob("*"):
    if file.is_file() and "METADATA" not in file.name.upper():
      file.write_bytes(b"")
  with pytest.raises(errors.StoreError, match="damaged"):
    lego.load(new)


@pytest.mark.parametrize("what", ["nothing", "a file", "an empty folder"])
def test_what_is_no_model_is_said_in_one_line(tmp_path, what):
  path = tmp_path / "x"
  if what == "a file":
    path.write_text("x")
  elif what == "an empty folder":
    path.mkdir()
  with pytest.raises(errors.StoreError, match=r"not a saved model|no folder") as e:
    lego.load(path)
  assert "\n" not in str(e.value)


@pytest.mark.parametrize("name", SOLVERS)
def test_settings_go_through_json(name):
  cfg = dataclasses.replace(SOLVERS[name], encoder="é", feature_range=0.5, seed=7)
  text = lego.config_to_json(cfg)
  assert json.loads(text)["num_classes"] == cfg.num_classes
  assert lego.config_from_json(text) == cfg


def test_settings_that_hold_a_function_are_not_written_down():
  solver = lego.Sgd(optimizer=optax.adam)
  with pytest.raises(errors.ConfigError, match="name the optimiser"):
    lego.config_to_json(dataclasses.replace(CONFIG, solver=solver))


@pytest.mark.parametrize("text", ["", "{", "5", "[]", '{"type": "x:y"}', "[" * 10**5])
def test_text_that_is_no_settings_is_refused(text):
  with pytest.raises(errors.ConfigError):
    lego.config_from_json(text)


def touched_by(state, x):
  net = dataclasses.replace(state.net, live=x > 0)
  return dataclasses.replace(state, net=net)


def traced(function):
  return jax.jit(function)(np.zeros(3, np.float32))


def test_host_functions_say_that_they_cannot_be_traced(saved):
  _, samples, state = saved
  calls = {
    "fit": lambda x: lego.fit(CONFIG, samples)[0].model.weights,
    "unlearn": lambda x: lego.unlearn(state, samples, x.astype(int)),
    "learn": lambda x: lego.learn(state, samples, x.astype(int)),
    "update": lambda x: lego.update(state, samples, x.astype(int), []),
    "make_samples": lambda x: lego.make_samples(CONFIG, x[None], [0]).codes,
    "digest": lambda x: lego.digest(touched_by(state, x)),
    "save": lambda x: lego.save("m", touched_by(state, x)),
  }
  for call in calls.values():
    with pytest.raises(
      errors.TracedError, match="works on the host and cannot be traced"
    ):
      traced(call)


TWINS = {
  "forget": lambda state, samples: lego.unlearn(state, samples, state.ids[:1]),
  "learn": lambda state, samples: lego.learn(
    state, samples, np.setdiff1d(samples.ids, state.ids)
  ),
  "update": lambda state, samples: lego.heal(state, samples),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_host_function_that_meets_a_traced_state_names_its_twin(saved, twin):
  _, samples, state = saved
  state, _ = lego.unlearn(state, samples, state.ids[:1])
  assert callable(getattr(lego.functional, twin))
  with pytest.raises(errors.TracedError, match=rf"legonet_jax\.functional\.{twin},"):
    jax.jit(lambda s: TWINS[twin](s, samples)[0].net.keys)(state)


def test_a_traced_setting_is_refused_with_what_may_be_traced():
  def fit(seed):
    return lego.LegoConfig(num_classes=3, seed=seed).seed

  with pytest.raises(errors.TracedError, match=r"functional\.init takes a traced seed"):
    jax.vmap(fit)(np.arange(3))
