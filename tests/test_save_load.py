"""`save` and `load`: the same state, bit for bit, whole or not at all; and JSON."""

import dataclasses
import gc
import json
import os
import pathlib
import subprocess
import sys
import textwrap

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
  lego.save(path, CONFIG, state)
  return path, samples, state


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", [str, pathlib.Path])
def test_a_loaded_model_is_the_saved_one_bit_for_bit_and_goes_on(tmp_path, name, kind):
  cfg = SOLVERS[name]
  samples, state = fitted(cfg)
  lego.save(kind(tmp_path / "model"), cfg, state)
  again, loaded = lego.load(kind(tmp_path / "model"))
  assert again == cfg
  assert lego.digest(loaded) == lego.digest(state)
  one = lego.unlearn(cfg, state, samples, state.ids[:2])[0]
  two = lego.unlearn(again, loaded, samples, state.ids[:2])[0]
  refit = lego.fit(cfg, lego.select(samples, state.ids[2:]))[0]
  assert lego.digest(one) == lego.digest(two) == lego.digest(refit)
  e = encodings(5, seed=3)
  np.testing.assert_array_equal(
    lego.predict(cfg, state.model, e), lego.predict(again, loaded.model, e)
  )


def test_a_masked_state_is_saved_as_it_is(tmp_path):
  samples, state = fitted(CONFIG)
  masked, info = lego.unlearn(CONFIG, state, samples, state.ids[:1], defer=True)
  assert info.adapters_masked
  lego.save(tmp_path / "m", CONFIG, masked)
  healed = lego.heal(CONFIG, lego.load(tmp_path / "m")[1], samples)[0]
  refit = lego.fit(CONFIG, lego.select(samples, state.ids[1:]))[0]
  assert lego.digest(healed) == lego.digest(refit)


def test_another_process_loads_it(saved):
  path, _, state = saved
  code = f"import legonet_jax as l; print(l.digest(l.load({str(path)!r})[1]))"
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
  )
  assert done.stdout.strip() == lego.digest(state)


def test_nothing_is_overwritten_unasked_and_only_a_model_when_asked(saved, tmp_path):
  _, _, state = saved
  lego.save(tmp_path / "m", CONFIG, state)
  with pytest.raises(errors.StoreError, match="overwrite=True"):
    lego.save(tmp_path / "m", CONFIG, state)
  lego.save(tmp_path / "m", CONFIG, state, overwrite=True)
  (tmp_path / "mine").mkdir()
  (tmp_path / "mine" / "thesis").write_text("years of work")
  with pytest.raises(errors.StoreError, match="name a new folder"):
    lego.save(tmp_path / "mine", CONFIG, state, overwrite=True)
  assert (tmp_path / "mine" / "thesis").read_text() == "years of work"


def test_other_settings_are_refused(saved, tmp_path):
  other = dataclasses.replace(CONFIG, seed=99)
  with pytest.raises(errors.ConfigError, match="other settings"):
    lego.save(tmp_path / "m", other, saved[2])
  assert not (tmp_path / "m").exists()


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
        cfg, loaded = lego.load(new)
      except errors.StoreError:
        refused += 1
      else:
        assert cfg == CONFIG
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


def test_a_model_is_restored_on_a_mesh_as_asked_for(tmp_path):
  """Saved on 8 devices, loaded on 8, on 4 and on 1: the same digest everywhere."""
  code = textwrap.dedent(f"""
    import sys; sys.path.insert(0, {str(ROOT / "tests")!r})
    from conftest import CONFIG, encodings, ids, labels
    import dataclasses, jax, legonet_jax as lego
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    cfg = dataclasses.replace(CONFIG, num_adapters=8)
    samples = lego.make_samples(cfg, encodings(), labels(), ids())
    state = lego.fit(cfg, samples)[0]
    want = lego.digest(state)
    def over(count):
      mesh = Mesh(jax.devices()[:count], ("adapters",))
      return NamedSharding(mesh, PartitionSpec("adapters"))
    model = jax.device_put(state.model, over(8))
    lego.save({str(tmp_path / "m")!r}, cfg, state._replace(model=model))
    for count in (8, 4):
      _, loaded = lego.load({str(tmp_path / "m")!r}, over(count))
      assert loaded.model.weights.sharding == over(count), loaded.model.weights.sharding
      assert len(loaded.model.keys.addressable_shards) == count
      assert lego.digest(loaded) == want
    parts = lego.Model(over(8), over(4), over(8))
    _, loaded = lego.load({str(tmp_path / "m")!r}, parts)
    assert loaded.model.weights.sharding == over(4)
    _, loaded = lego.load({str(tmp_path / "m")!r})
    assert len(loaded.model.weights.sharding.device_set) == 1
    assert lego.digest(loaded) == want
  """)
  run_on_eight(code)


def run_on_eight(code):
  env = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "PYTHONPATH": ROOT}
  done = subprocess.run(
    [sys.executable, "-W", "error", "-c", code],
    capture_output=True,
    text=True,
    env={**os.environ, **{k: str(v) for k, v in env.items()}},
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return done.stdout


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


def traced(function):
  return jax.jit(function)(np.zeros(3, np.float32))


def test_host_functions_say_that_they_cannot_be_traced(saved):
  _, samples, state = saved
  calls = {
    "fit": lambda x: lego.fit(CONFIG, samples)[0].model.weights,
    "unlearn": lambda x: lego.unlearn(CONFIG, state, samples, x.astype(int)),
    "learn": lambda x: lego.learn(CONFIG, state, samples, x.astype(int)),
    "update": lambda x: lego.update(CONFIG, state, samples, x.astype(int), []),
    "make_samples": lambda x: lego.make_samples(CONFIG, x[None], [0]).codes,
    "digest": lambda x: lego.digest(state._replace(anchors=x)),
    "save": lambda x: lego.save("m", CONFIG, state._replace(anchors=x)),
  }
  for call in calls.values():
    with pytest.raises(
      errors.TracedError, match="works on the host and cannot be traced"
    ):
      traced(call)
