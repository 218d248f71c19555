"""What enters the pure program is checked, and its states are those of the host API."""

import dataclasses

from conftest import encodings
from functional_world import CONFIGS, assert_same, keys_of, make, mask_of
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_functional_composition import world

import legonet_jax as lego
from legonet_jax import errors, functional
from legonet_jax.core import few_rows, ids as ids_lib


@pytest.mark.parametrize("name", CONFIGS)
def test_a_state_of_the_program_is_one_of_the_host_api_with_the_same_digest(name):
  cfg, samples, data, empty = make(name)
  some = samples.ids[: len(samples.ids) - 7]
  rows = functional.rows_of(samples, some)
  assert (ids_lib.from_words(np.asarray(data.ids)[rows]) == some).all()
  state, _ = functional.update(data, empty, mask_of(data, rows))
  want, _ = lego.fit(cfg, lego.select(samples, some), keys_of(cfg))
  found = lego.to_host(data, state, samples)
  assert lego.digest(found) == lego.digest(want)
  one, _ = lego.unlearn(found, samples, some[:2])
  assert lego.digest(one) == lego.digest(lego.unlearn(want, samples, some[:2])[0])


WRONG = {
  "a mask as rows": (
    lambda data, s: functional.forget(data, s, s.retained), "give row numbers"
  ),
  "rows as a mask": (
    lambda data, s: functional.update(data, s, jnp.arange(len(s.retained))), "a mask"
  ),
  "floats as rows": (lambda data, s: functional.forget(data, s, [1.0]), "row numbers"),
  "codes of floats": (
    lambda data, s: functional.insert(
      data, jnp.arange(1), jnp.ones((1, 7)), jnp.ones(1), data.ids[:1]
    ),
    "give int8",
  ),
  "ids of one number": (
    lambda data, s: functional.insert(
      data, jnp.arange(1), data.codes[:1], data.labels[:1], jnp.arange(1)
    ),
    "give uint32",
  ),
  "options that nobody reads": (
    lambda data, s: functional.init(s.cfg, data, options={"penalty": 0.5}),
    "no options that can be traced",
  ),
  "a slice of a state": (
    lambda data, s: functional.update(
      data, dataclasses.replace(s, live=s.live[:4]), s.retained
    ),
    "give axis_name",
  ),
  "a seed that is none": (
    lambda data, s: functional.init(s.cfg, data, jax.random.PRNGKey(0)),
    "one integer from 0",
  ),
  "a negative seed": (
    lambda data, s: functional.init(s.cfg, data, np.int64(-3)), "one integer from 0"
  ),
  "samples in place of data": (
    lambda data, s: functional.init(s.cfg, s), "functional.make_data"
  ),
  "codes as samples": (
    lambda data, s: lego.make_samples(s.cfg, np.asarray(data.codes), data.labels),
    "stands for codes",
  ),
  "a state of functional where ids count": (lambda data, s: lego.digest(s), "to_host"),
  "an undecided state": (
    lambda data, s: lego.to_host(
      data,
      dataclasses.replace(
        s, solutions=s.solutions._replace(undecided=s.solutions.undecided + 1)
      ),
      None,
    ),
    "functional.finish",
  ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_meant_is_refused_with_what_can(what):
  call, message = WRONG[what]
  _, data, state = world("ridge")
  with pytest.raises(errors.LegoError, match=message) as caught:
    call(data, state)
  assert "\n" not in str(caught.value)


def test_states_of_the_host_api_are_told_apart_or_taken():
  cfg, samples, data, _ = make("ridge")
  state, _ = lego.fit(cfg, samples, keys_of(cfg))
  with pytest.raises(errors.ConfigError, match=r"functional\.init"):
    functional.forget(data, state, [1])
  e = encodings(5)
  want = lego.predict(state, e)
  for predict in (functional.predict, jax.jit(lego.predict)):
    np.testing.assert_allclose(predict(state, e), want, atol=1e-6)
    np.testing.assert_allclose(predict(state.model, e), want, atol=1e-6)


class Broken(lego.Solver):
  def train(self, cfg, codes, labels, mask, adapter):
    weights = jnp.zeros((cfg.num_classes, codes.shape[1]), jnp.float32)
    return weights.at[0, 0].set(1 / jnp.where(mask.sum() % 2, 0.0, 1.0))


def test_weights_that_are_not_finite_are_named_and_take_part_in_nothing():
  _, data, certain = world("ridge")
  solver = dataclasses.dataclass(frozen=True)(Broken)()
  cfg = dataclasses.replace(certain.cfg, solver=solver)
  jax.config.update("jax_debug_nans", False)
  try:
    state, info = functional.update(data, functional.init(cfg, data), certain.retained)
    bad = (np.asarray(state.sizes) % 2 == 1) & (np.asarray(state.sizes) > 0)
  finally:
    jax.config.update("jax_debug_nans", True)
  assert info.overflow == bad.sum() > 0
  assert not info.exact
  assert not np.asarray(state.live)[bad].any()
  assert np.isfinite(functional.predict(state, encodings(9))).all()


@pytest.mark.parametrize(
  "rows", [[], [2**32 + 3], [-(2**32) + 3], np.array([2**40 + 3, 64]), [-1, 2**31]]
)
def test_rows_that_are_not_there_are_skipped_however_large_their_numbers(rows):
  _, data, state = world("ridge")
  assert_same(functional.forget(data, state, rows)[0], state)
  with jax.enable_x64(True):
    rows = jnp.asarray(rows, jnp.int64)
    assert_same(functional.forget(data, state, rows)[0], state)


def test_numpy_arrays_and_lists_of_any_length_share_executables():
  _, data, state = world("ridge")
  plain = np.setdiff1d(np.arange(60), np.asarray(state.anchors))[:4].tolist()
  want = functional.forget(data, state, plain)[0]
  few_rows._few.clear_cache()
  host = jax.device_get(state)
  assert_same(functional.forget(data, host, np.array(plain))[0], want)
  functional.forget(data, state, plain[:3])
  assert few_rows._few._cache_size() == 1


def test_a_state_prints_on_one_line():
  _, _, state = world("ridge")
  assert repr(state) == "State(Ridge, 8 adapters, 64 rows, width 7)"


def test_a_mistake_in_a_solver_is_not_blamed_on_the_caller():
  class Curious(lego.Solver):
    def train(self, cfg, codes, labels, mask, adapter):
      return jnp.ones((3, 7)) if mask.sum() > 3 else jnp.zeros((3, 7))

  solver = dataclasses.dataclass(frozen=True)(Curious)()
  cfg = dataclasses.replace(world("sgd")[0], solver=solver)
  samples = lego.make_samples(cfg, encodings(), np.zeros(60, int))
  with pytest.raises(jax.errors.TracerBoolConversionError):
    lego.fit(cfg, samples)


def test_requests_warn_of_nothing_in_a_process_with_64_bits():
  _, data, state = world("ridge")
  want = functional.forget(data, state, [3, 5])[0]
  jax.clear_caches()
  with jax.enable_x64(True):
    assert_same(functional.forget(data, state, [3, 5])[0], want)
