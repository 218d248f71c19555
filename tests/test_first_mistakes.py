"""Mistakes of the first day: each is one line that says what to give instead."""

import dataclasses
import subprocess
import sys
import textwrap

from conftest import CONFIG, encodings, ids, labels
import jax.numpy as jnp
import numpy as np
from own_solver import ClassMeans
import pytest

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.io import lock


@pytest.fixture(scope="module")
def samples():
  return lego.make_samples(CONFIG, encodings(), labels(), ids())


@pytest.fixture(scope="module")
def state(samples):
  return lego.fit(CONFIG, samples)[0]


def test_arguments_in_the_wrong_place_are_named(samples, state):
  e = encodings(3)
  calls = {
    "neither a state nor a model": lambda: lego.predict(CONFIG, e),
    "make_samples": lambda: lego.fit(CONFIG, e),
    "give a LegoConfig first": lambda: lego.fit(samples, CONFIG),
    "give what `fit` returns": lambda: lego.unlearn(state.model, samples, [1]),
    "a Model is not a state": lambda: lego.digest(state.model),
    "is not a state; give": lambda: lego.save("m", state.model),
    "settings are not JSON": lambda: lego.config_from_json({}),
    "not row numbers": lambda: lego.unlearn(state, samples, [3]),
  }
  for message, call in calls.items():
    with pytest.raises(errors.LegoError, match=message) as raised:
      call()
    assert "\n" not in str(raised.value)


def returning(result):
  """A solver whose `train` gives `result(weights)`."""

  @dataclasses.dataclass(frozen=True)
  class Odd(lego.Solver):
    def train(self, cfg, codes, labels, mask, adapter):
      return result(jnp.zeros((cfg.num_classes, codes.shape[1]), jnp.float32))

  Odd.__qualname__ = "Odd"
  return Odd()


ODD = {
  "a wrong shape": (lambda w: w[:, :2], r"Odd returned float32\[3, 2\] as weights"),
  "one axis": (lambda w: w[0], r"Odd returned float32\[7\]"),
  "another type": (lambda w: w.astype(jnp.bfloat16), "Odd returned bfloat16"),
  "no array": (lambda w: (w, w), "Odd returned tuple"),
  "infinity": (lambda w: w + jnp.inf, "not finite"),
}


@pytest.mark.parametrize("name", ODD)
def test_a_solver_that_returns_something_else_is_told_so(samples, name):
  result, message = ODD[name]
  cfg = dataclasses.replace(CONFIG, solver=returning(result))
  with pytest.raises(errors.ConfigError, match=message):
    lego.fit(cfg, lego.make_samples(cfg, encodings(), labels(), ids()))


def test_a_solver_without_train_is_told_so(samples):
  @dataclasses.dataclass(frozen=True)
  class Empty(lego.Solver):
    pass

  Empty.__qualname__ = "Empty"
  cfg = dataclasses.replace(CONFIG, solver=Empty())
  with pytest.raises(NotImplementedError, match="Empty has no function train"):
    lego.fit(cfg, lego.make_samples(cfg, encodings(), labels(), ids()))


def test_the_numbers_of_ones_own_solver_are_of_the_kind_that_it_says():
  whole, real = (
    dataclasses.replace(CONFIG, solver=ClassMeans(value)) for value in (4, 4.0)
  )
  assert lego.config_to_json(whole) == lego.config_to_json(real)
  with pytest.raises(errors.ConfigError, match="sharpness is 'abc'"):
    dataclasses.replace(CONFIG, solver=ClassMeans("abc"))


def test_a_digest_does_not_depend_on_what_the_process_did_before():
  """1 and 1.0 are equal in Python, and not the same options of an optimiser."""
  code = textwrap.dedent("""
    import sys
    import numpy as np, legonet_jax as lego
    e = np.random.default_rng(0).normal(size=(20, 5))
    for rate in eval(sys.argv[1]):
      solver = lego.Sgd(epochs=1, options={"learning_rate": rate})
      cfg = lego.LegoConfig(2, num_adapters=2, top_k=1, solver=solver)
      samples = lego.make_samples(cfg, e, np.arange(20) % 2)
      print(rate, lego.digest(lego.fit(cfg, samples)[0]))
  """)
  found = {}
  for rates in ("[1]", "[1.0]", "[1, 1.0]", "[1.0, 1]"):
    done = subprocess.run(
      [sys.executable, "-c", code, rates], capture_output=True, text=True, check=True
    )
    for line in done.stdout.splitlines():
      rate, digest = line.split()
      assert found.setdefault(rate, digest) == digest, rates
  assert len(found) == 2


def test_a_solver_of_a_script_is_refused_before_anything_is_saved(tmp_path, state):
  code = textwrap.dedent("""
    import dataclasses, sys, numpy as np, legonet_jax as lego
    @dataclasses.dataclass(frozen=True)
    class Mine(lego.Solver):
      def train(self, cfg, codes, labels, mask, adapter):
        return np.zeros((2, 5), np.float32)
    cfg = lego.LegoConfig(2, num_adapters=2, top_k=1, solver=Mine())
    e = np.random.default_rng(0).normal(size=(20, 5))
    state, _ = lego.fit(cfg, lego.make_samples(cfg, e, np.arange(20) % 2))
    try: lego.save(sys.argv[1], state)
    except lego.errors.ConfigError as e: print(e)
  """)
  done = subprocess.run(
    [sys.executable, "-c", code, str(tmp_path / "m")], capture_output=True, text=True
  )
  assert "defined in a script or a notebook" in done.stdout, done.stderr
  assert not (tmp_path / "m").exists()


def test_a_store_is_never_taken_for_another_one(tmp_path):
  """The same call again changes nothing; other rows in the same folder are refused."""
  columns = encodings(6), np.arange(6) % 3, np.arange(6)[::-1] * 10
  made = lego.make_store(tmp_path / "s", *columns)
  assert made.ids.tolist() == [0, 10, 20, 30, 40, 50]
  np.testing.assert_array_equal(made.encodings, columns[0][::-1])
  again = lego.make_store(tmp_path / "s", *columns)
  np.testing.assert_array_equal(again.encodings, made.encodings)
  for at, change in enumerate((1.0, 1, 1)):
    other = [*columns]
    other[at] = columns[at] + change
    with pytest.raises(errors.StoreError, match="use another folder"):
      lego.make_store(tmp_path / "s", *other)
  with pytest.raises(errors.StoreError, match="use another folder"):
    lego.make_store(tmp_path / "s", columns[0][:, :4], *columns[1:])


def test_load_says_what_is_there_instead(tmp_path):
  with pytest.raises(errors.StoreError, match="there is no folder"):
    lego.load(tmp_path / "nope")
  (tmp_path / "run.json").write_text("{}")
  with pytest.raises(errors.StoreError, match="is a run"):
    lego.load(tmp_path)


def test_a_lock_takes_text_and_measures_have_costs(tmp_path):
  with lock.hold(str(tmp_path)):
    assert (tmp_path / lock.WORK).exists()
  assert callable(lego.measures.cost.legonet)
