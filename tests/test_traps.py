"""One test per trap of the design notes; each fails when its trap is opened again."""

import dataclasses
import functools
import importlib.metadata
import pathlib
import pickle
import tomllib

from conftest import CONFIG, SGD, encodings, ids, labels, refit
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import legonet_jax as lego
from legonet_jax import errors, functional
from legonet_jax.core import (
  fold as fold_lib,
  ids as ids_lib,
  samples as samples_lib,
)
from legonet_jax.core.solver import Members
from legonet_jax.host import advance, train as train_lib
from legonet_jax.host.state import from_arrays, to_arrays


def same(one, two):
  return lego.digest(one) == lego.digest(two)


def test_trap_keys_a_deleted_anchor_leaves_no_key_behind(samples):
  silent = dataclasses.replace(CONFIG, key_noise=0.0)
  state, _ = lego.fit(silent, samples)
  gone = state.anchors[2]
  after, info = lego.unlearn(state, samples, [gone])
  assert info.anchors_replaced == 1
  codes = samples.codes[samples_lib.rows_of(samples, np.array([gone]))]
  assert (np.asarray(state.model.keys) == codes).all(1).any()
  assert not (np.asarray(after.model.keys) == codes).all(1).any()
  assert same(after, refit(silent, samples, after.ids))


@pytest.mark.parametrize("order", ["rows", "adapters"])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_trap_position_a_deletion_shifts_nothing_that_matters(
  samples, state, order, place
):
  gone = {"rows": samples.ids, "adapters": state.anchors}[order][place]
  after, _ = lego.unlearn(state, samples, [gone])
  assert same(after, refit(CONFIG, samples, after.ids))


def test_trap_padding_an_adapter_does_not_feel_the_larger_ones_beside_it(samples):
  # Weight decay and momentum move parameters even where the gradient is zero.
  solver = dataclasses.replace(
    SGD, optimizer="adamw", options=(("learning_rate", 0.1), ("weight_decay", 0.5))
  )
  cfg = dataclasses.replace(CONFIG, solver=solver)
  table = functional.make_data(samples)
  names = jnp.asarray(ids_lib.to_words(np.arange(3) + 100))

  def trained(sizes):
    """Adapters side by side, with the first rows of the table as their members."""
    last = jnp.asarray(sizes, jnp.int32)

    def one(size, name):
      rows = jnp.arange(60, dtype=jnp.int32)
      members = Members(table.codes, table.labels, rows, jnp.ones(60, jnp.int8), size)
      adapter = fold_lib.make_adapter(jnp.uint32(3), name, {})
      return fold_lib.solve_members(cfg, members, adapter).weights

    return np.asarray(jax.jit(jax.vmap(one))(last, names))

  np.testing.assert_array_equal(trained([3, 3, 3])[0], trained([3, 50, 50])[0])


def test_trap_lane_width_all_adapters_go_through_one_executable(samples):
  solver = dataclasses.replace(SGD, batch_size=6)  # a configuration of its own
  cfg = dataclasses.replace(CONFIG, solver=solver)
  train_lib._train_group.clear_cache()
  state, _ = lego.fit(cfg, samples)
  lego.unlearn(state, samples, state.ids[-1:])
  assert train_lib._train_group._cache_size() == 1


@pytest.mark.parametrize("solver", [SGD, lego.Ridge()], ids=["sgd", "ridge"])
def test_a_fit_with_another_seed_compiles_nothing_and_is_another_model(samples, solver):
  cfg = dataclasses.replace(CONFIG, solver=solver)
  one, _ = lego.fit(cfg, samples)
  jitted = (train_lib._train_group, advance._compare)
  sizes = [f._cache_size() for f in jitted]
  other = dataclasses.replace(cfg, seed=cfg.seed + 2**31)
  two, _ = lego.fit(other, samples)
  assert [f._cache_size() for f in jitted] == sizes
  assert not np.array_equal(one.model.keys, two.model.keys)


@pytest.mark.parametrize("lanes", [2, 5])
def test_trap_lanes_an_adapter_has_the_same_bits_beside_any_others(samples, lanes):
  """The width is fixed, so a request trains its adapters as a fit does, in any lane."""
  data = functional.make_data(samples)
  call = functools.partial(functional.update, lanes=lanes)
  state, _ = call(data, functional.init(CONFIG, data), jnp.ones(60, bool))
  rng = np.random.default_rng(0)
  for _ in range(5):
    mask = jnp.asarray(rng.random(60) < 0.9)
    after, _ = call(data, state, mask)
    fresh, _ = call(data, functional.init(CONFIG, data), mask)
    np.testing.assert_array_equal(after.weights, fresh.weights)


@pytest.mark.parametrize("restored", [False, True], ids=["after a fit", "restored"])
@pytest.mark.parametrize(
  "solver",
  [dataclasses.replace(SGD, batch_size=1), lego.Ridge()],
  ids=["sgd", "ridge"],
)
def test_trap_recompiling_no_second_request_of_a_kind_compiles_anything(
  samples, solver, restored
):
  cfg = dataclasses.replace(CONFIG, solver=solver)
  first, _ = lego.fit(cfg, samples)
  if restored:  # a new process has compiled nothing and kept no notes
    first = from_arrays(to_arrays(first), cfg)
    jax.clear_caches()
  for kind in (first.ids[-1:], first.anchors[:1]):  # a plain request, and an anchor
    after, _ = lego.unlearn(first, samples, kind)
    lego.learn(after, samples, kind)
  compiled = []
  jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: compiled.append(name) if "compile" in name else None
  )
  try:
    y = samples.labels[np.searchsorted(samples.ids, first.ids)]
    for wanted in (first.ids[-2:], first.ids[:5], first.ids[y == 1], first.ids[20:]):
      after, _ = lego.unlearn(first, samples, wanted)
      lego.learn(after, samples, wanted[:7])
      lego.learn(after, samples, wanted)
  finally:
    jax.monitoring.clear_event_listeners()
  assert compiled == []


def test_trap_batches_a_sample_has_one_encoding_whenever_it_comes():
  e, y, i = encodings(), labels(), ids()
  together = lego.make_samples(CONFIG, e, y, i)
  for at in (0, 17, len(i) - 1):
    alone = lego.make_samples(CONFIG, e[at : at + 1], y[at : at + 1], i[at : at + 1])
    row = samples_lib.rows_of(together, alone.ids)
    np.testing.assert_array_equal(together.codes[row], alone.codes)
    np.testing.assert_array_equal(together.prints[row], alone.prints)


def test_trap_statistics_an_outlier_moves_nobody_else():
  e, y, i = encodings(), labels(), ids()
  wild = e.copy()
  wild[0] *= 1000
  calm, moved = (lego.make_samples(CONFIG, x, y, i) for x in (e, wild))
  others = np.flatnonzero(calm.ids != i[0])
  np.testing.assert_array_equal(calm.codes[others], moved.codes[others])


def test_trap_encoder_other_weights_are_another_model(samples, state):
  other = dataclasses.replace(CONFIG, encoder="sha256:0123")
  with pytest.raises(errors.SamplesMismatchError, match="another encoder"):
    lego.fit(other, samples)
  again = lego.make_samples(other, encodings(), labels(), ids())
  fitted, _ = lego.fit(other, again)
  np.testing.assert_array_equal(fitted.model.weights, state.model.weights)
  assert not same(fitted, state)
  with pytest.raises(errors.SamplesMismatchError, match="another encoder"):
    lego.unlearn(state, again, state.ids[:1])


def test_trap_caches_nothing_of_a_forgotten_sample_is_in_the_state(samples, state):
  gone = state.ids[[0, 25]]  # an anchor and another one
  rows = samples_lib.rows_of(samples, gone)
  after, _ = lego.unlearn(state, samples, gone)
  dump, held = pickle.dumps(after), pickle.dumps(state)
  for row in rows:
    assert samples.ids[row].tobytes() in held
    assert samples.prints[row].tobytes() in held
    assert samples.ids[row].tobytes() not in dump
    assert samples.prints[row].tobytes() not in dump
    assert samples.codes[row].tobytes() not in dump
  left = lego.drop(samples, gone)
  assert not np.isin(gone, left.ids).any()
  assert not any((left.codes == samples.codes[row]).all(1).any() for row in rows)


def test_trap_sequence_no_request_brings_back_what_an_earlier_one_removed(samples):
  state, _ = lego.fit(CONFIG, samples)
  gone = []
  for _ in range(12):
    wanted = state.ids[len(gone) % 5 :: 17][:2]
    gone += wanted.tolist()
    state, _ = lego.unlearn(state, samples, wanted)
    assert not np.isin(gone, state.ids).any()
  assert same(state, refit(CONFIG, samples, state.ids))


def test_trap_ties_adapters_stand_in_the_hash_order_of_their_anchors():
  # All encodings equal: every distance ties, so only the order of adapters decides.
  cfg = dataclasses.replace(CONFIG, key_noise=0.0)
  e = np.ones_like(encodings())
  samples = lego.make_samples(cfg, e, labels(), ids())
  state, _ = lego.fit(cfg, samples)
  assert set(np.unique(state.routes)) == {0, 1}
  after, _ = lego.unlearn(state, samples, state.anchors[:1])
  np.testing.assert_array_equal(after.anchors[:-1], state.anchors[1:])
  assert same(after, refit(cfg, samples, after.ids))


def test_trap_jax_0_10_2_is_excluded_and_not_installed():
  assert importlib.metadata.version("jax") != "0.10.2"
  root = pathlib.Path(__file__).parents[1]
  project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
  extras = project["optional-dependencies"]
  wants_jax = [
    line
    for lines in (project["dependencies"], *extras.values())
    for line in lines
    if line.startswith("jax")
  ]
  assert len(wants_jax) == 4  # jax itself, cuda12, cuda13 and tpu
  assert all("!=0.10.2" in line for line in wants_jax)


def test_fit_is_learning_everything_from_nothing(samples, state):
  half, _ = lego.fit(CONFIG, lego.select(samples, samples.ids[::2]))
  whole, _ = lego.learn(half, samples, samples.ids[1::2])
  assert same(whole, state)


FLAGS = {
  "x64": lambda: jax.enable_x64(True),
  "the generator rbg": lambda: jax.default_prng_impl("rbg"),
  "threefry not partitionable": lambda: jax.threefry_partitionable(False),
  "low precision": lambda: jax.default_matmul_precision("bfloat16"),
  "strict promotion": lambda: jax.numpy_dtype_promotion("strict"),
}


@pytest.mark.parametrize("name", FLAGS)
def test_trap_flags_of_the_callers_process_change_no_bit(samples, state, name):
  # A state made under one flag and unlearned under another would be no refit at all.
  jax.clear_caches()  # what is compiled already would hide some flags
  with FLAGS[name]():
    again = lego.make_samples(CONFIG, encodings(), labels(), ids())
    for a, b in zip(again.columns, samples.columns, strict=True):
      np.testing.assert_array_equal(a, b)
    fitted, _ = lego.fit(CONFIG, samples)
    after, _ = lego.unlearn(state, samples, state.ids[[0, 30]])
  assert same(fitted, state)
  assert same(after, refit(CONFIG, samples, after.ids))


def test_trap_names_functions_that_share_a_name_are_no_settings():
  # Two schedules look alike by name; a request with the other one would go unnoticed.
  for option in (optax.exponential_decay(0.1, 10, 0.9), lambda count: 0.1):
    solver = dataclasses.replace(SGD, options={"learning_rate": option})
    with pytest.raises(errors.ConfigError, match="by its name"):
      dataclasses.replace(CONFIG, solver=solver)


def test_a_sample_may_come_back_with_another_label_and_encoding(samples, state):
  gone = state.ids[:1]
  after, _ = lego.unlearn(state, samples, gone)
  row = samples_lib.rows_of(samples, gone)
  other = (samples.labels[row] + 1) % CONFIG.num_classes
  new = lego.make_samples(CONFIG, encodings(1, seed=8), other, gone)
  table = lego.append(lego.drop(samples, gone), new)
  back, _ = lego.learn(after, table, gone)
  assert not same(back, state)
  assert same(back, refit(CONFIG, table, back.ids))
