"""The pure program inside a caller's: jit, vmap, scan, export, and what it predicts."""

import dataclasses
import functools

from conftest import CONFIG, encodings, labels
from functional_world import CONFIGS, assert_same, make, mask_of
import jax
from jax import export
import jax.numpy as jnp
import numpy as np
from own_solver import ClassMeans
import pytest

import legonet_jax as lego
from legonet_jax import functional

ROWS = 60
FIXED = ("ridge", "sgd")


@functools.cache
def world(name):
  cfg, _, data, empty = make(name)
  return cfg, data, functional.update(data, empty, mask_of(data, np.arange(ROWS)))[0]


def masks(data, count, seed=0):
  wanted = np.random.default_rng(seed).random((count, len(data.labels))) < 0.8
  return jnp.asarray(wanted)


def fit(cfg, data, seed, mask, **kwargs):
  return functional.update(data, functional.init(cfg, data, seed, **kwargs), mask)[0]


def at(tree, i):
  return jax.tree.map(lambda a: a[i], tree)


@pytest.mark.parametrize("name", FIXED)
def test_a_vmap_over_seeds_and_masks_has_the_bits_of_single_runs(name):
  cfg, data, _ = world(name)
  seeds, wanted = jnp.arange(8, dtype=jnp.uint32), masks(data, 8)
  call = functools.partial(fit, cfg, data)
  stacked = jax.jit(jax.vmap(call))(seeds, wanted)
  for i in range(8):
    assert_same(at(stacked, i), call(seeds[i], wanted[i]))
  after = jax.vmap(lambda state, m: functional.update(data, state, m)[0])
  other = masks(data, 8, seed=1)
  moved = jax.jit(after)(stacked, other)
  for i in range(0, 8, 3):
    assert_same(at(moved, i), functional.update(data, at(stacked, i), other[i])[0])


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("side_by_side", [None, 1, 2, 4])
def test_many_shadow_models_are_the_models_one_by_one(name, side_by_side):
  cfg, data, _ = world(name)
  seeds, wanted = jnp.arange(4, dtype=jnp.uint32), masks(data, 4)
  stack = functional.many(cfg, data, seeds, wanted, side_by_side=side_by_side)
  for i in range(4):
    one = fit(cfg, data, seeds[i], wanted[i])
    np.testing.assert_array_equal(stack.weights[i], one.weights)
    np.testing.assert_array_equal(stack.routes[i], one.routes)


def test_a_learning_rate_may_be_traced():
  cfg, data, _ = world("sgd")
  mask = mask_of(data, np.arange(ROWS))

  def trained(rate):
    return fit(cfg, data, 3, mask, options={"learning_rate": rate}).weights

  rates = jnp.asarray([0.1, 0.5], jnp.float32)
  found = jax.jit(jax.vmap(trained))(rates)
  for rate, weights in zip((0.1, 0.5), found, strict=True):
    options = dict(cfg.solver.options) | {"learning_rate": rate}
    solver = dataclasses.replace(cfg.solver, options=options)
    plain = fit(dataclasses.replace(cfg, solver=solver), data, 3, mask).weights
    np.testing.assert_allclose(weights, plain, rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(found[1], jax.jit(trained)(rates[1]))


@pytest.mark.parametrize("name", FIXED)
def test_a_scan_over_100_requests_ends_in_a_fresh_fit(name):
  cfg, data, state = world(name)
  rng = np.random.default_rng(0)
  rows = jnp.asarray(rng.integers(0, ROWS, (100, 1)), jnp.int32)
  come = jnp.asarray(rng.random(100) < 0.6)

  def step(state, request):
    row, comes = request
    new, info = jax.lax.cond(
      comes,
      lambda: functional.learn(data, state, row),
      lambda: functional.forget(data, state, row),
    )
    return new, info.adapters_retrained

  end, retrained = jax.jit(lambda s: jax.lax.scan(step, s, (rows, come)))(state)
  assert retrained.sum() > 50
  fresh = fit(cfg, data, 3, end.retained)
  np.testing.assert_array_equal(end.weights, fresh.weights)
  np.testing.assert_array_equal(end.routes, fresh.routes)


@pytest.mark.parametrize("name", CONFIGS)
def test_predictions_are_those_of_the_host_api(name):
  cfg, _, data, empty = make(name)
  state, _ = functional.update(data, empty, mask_of(data, np.arange(ROWS)))
  e = encodings(40, seed=9)
  np.testing.assert_array_equal(
    functional.predict(state, e), jax.jit(lego.predict)(state.model, e)
  )
  codes = jnp.asarray(lego.core.features.encode_array(cfg, e))
  want = lego.core.prediction.classify_array(state.model, e)
  np.testing.assert_array_equal(functional.classify(state, codes), want)
  p = functional.predict(state, codes)
  np.testing.assert_array_equal(np.argmax(p, 1), want)
  z, share = functional.logits(state, codes)
  assert z.shape == (40, cfg.top_k, cfg.num_classes)
  np.testing.assert_allclose(share.sum(1), 1, rtol=1e-6)


def encode(params, images):
  return jnp.tanh(images.reshape(len(images), -1) @ params)


PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", FIXED)
def test_every_function_lowers_for_every_platform(name, platform):
  _, data, state = world(name)
  rows = jnp.asarray([3], jnp.int32)
  images, params = jnp.zeros((2, 3, 4)), jnp.zeros((12, 7))
  calls = {
    "update": (functional.update, data, state, state.retained),
    "forget": (jax.jit(functional.forget), data, state, rows),
    "predict": (functional.predict, state, encodings(4)),
    "predict_images": (
      jax.jit(functools.partial(functional.predict_images, encode)),
      params, state, images,
    ),
  }  # fmt: skip
  for what, (call, *args) in calls.items():
    text = export.export(call, platforms=[platform])(*args).mlir_module()
    solves = what in ("update", "forget")  # predictions take float64 on a CPU only
    wanted = platform != "tpu" if solves else platform == "cpu"
    assert ("xf64" in text) == (name == "ridge" and wanted), what


def test_an_exported_program_runs_with_any_batch():
  _, _, state = world("ridge")
  (b,) = export.symbolic_shape("b")
  shape = jax.ShapeDtypeStruct((b, 7), jnp.float32)
  program = export.export(jax.jit(lambda e: functional.predict(state, e)))(shape)
  for count in (1, 5, 200):
    e = encodings(count, seed=count)
    np.testing.assert_array_equal(program.call(e), functional.predict(state, e))


@pytest.mark.parametrize("x64", [True, False])
def test_the_callers_flags_stay_and_do_not_matter(x64):
  _, data, state = world("ridge")
  mask = masks(data, 1)[0]
  want = functional.update(data, state, mask)[0]
  with jax.enable_x64(x64), jax.default_matmul_precision("bfloat16"):
    found = jax.jit(lambda s, m: functional.update(data, s, m)[0])(state, mask)
    assert jnp.arange(2.0).dtype == (jnp.float64 if x64 else jnp.float32)
  assert_same(found, want)


@dataclasses.dataclass(frozen=True)
class InLimbs(lego.Ridge):
  """What a TPU computes."""

  arithmetic = "limbs"


def test_limbs_give_the_same_state():
  cfg, data, state = world("ridge")
  limbs = dataclasses.replace(cfg, solver=InLimbs())
  found = fit(limbs, data, cfg.seed, state.retained)
  assert not found.solutions.undecided.any()
  np.testing.assert_array_equal(found.weights, state.weights)


def test_ones_own_solver_works_in_the_program_and_under_vmap():
  cfg = dataclasses.replace(CONFIG, solver=ClassMeans(2.0))
  samples = lego.make_samples(cfg, encodings(), labels())
  data = functional.make_data(samples)
  state = fit(cfg, data, cfg.seed, jnp.ones(ROWS, bool))
  host, _ = lego.fit(cfg, samples)
  np.testing.assert_array_equal(state.weights, host.model.weights)
  less, _ = functional.forget(data, state, jnp.asarray([5], jnp.int32))
  after, _ = lego.unlearn(host, samples, [5])
  np.testing.assert_array_equal(less.weights, after.model.weights)


@dataclasses.dataclass(frozen=True)
class Doubtful(lego.Ridge):
  """Leaves an entry open where a sum is odd, as certified rounding leaves a tie."""

  def solve(self, cfg, carry):
    weights, undecided = super().solve(cfg, carry)
    odd = carry.cross[0, 0] % 2 == 1
    return jnp.where(odd, weights.at[0, 0].set(0), weights), undecided + odd


@pytest.mark.parametrize("keep", [True, False])
def test_what_is_undecided_is_named_stays_named_and_is_decided_by_finish(keep):
  cfg, data, certain = world("ridge")
  cfg = dataclasses.replace(cfg, solver=Doubtful(keep=keep))
  state = fit(cfg, data, cfg.seed, certain.retained)
  named = state.solutions.undecided.sum()
  assert 0 < named < cfg.num_adapters
  done = functional.finish(data, state)
  np.testing.assert_array_equal(done.weights, certain.weights)
  assert not done.solutions.undecided.any()
  stack = jax.tree.map(lambda *a: jnp.stack(a), done, state)
  for weights in functional.finish(data, stack).weights:
    np.testing.assert_array_equal(weights, certain.weights)
  assert functional.finish(data, done) is done
  same, info = functional.update(data, state, state.retained)
  assert info.undecided == named
  assert_same(same, state)
  row = jnp.asarray([3], jnp.int32)
  less, info = functional.forget(data, state, row)
  assert info.undecided == less.solutions.undecided.sum() > 0
  want, _ = functional.forget(data, certain, row)
  np.testing.assert_array_equal(functional.finish(data, less).weights, want.weights)
