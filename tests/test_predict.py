"""The ensemble of the k activated adapters."""

import dataclasses
import os
import pathlib
import subprocess
import sys
import textwrap

from absl.testing import parameterized
import chex
from conftest import CLASSES, CONFIG, SGD, encodings, labels
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax.core import features, placement, prediction
from legonet_jax.core.config import for_prediction
from legonet_jax.core.prediction import Model, predict

ROOT = pathlib.Path(__file__).parents[1]


def model(cfg=CONFIG, seed=0, dead=()):
  rng = np.random.default_rng(seed)
  n = CONFIG.num_adapters
  live = np.ones(n, bool)
  live[list(dead)] = False
  keys = features.encode_array(CONFIG, encodings(n, seed=5))
  weights = 3 * rng.normal(size=(n, CLASSES, keys.shape[1])).astype(np.float32)
  arrays = jnp.asarray(keys), jnp.asarray(weights), jnp.asarray(live)
  return Model(for_prediction(cfg), *arrays)


def oracle(cfg, m, e):
  """The mean over the k nearest live adapters, sample by sample, in float64."""
  codes = features.encode_array(cfg, e).astype(np.float64)
  keys, weights = np.asarray(m.keys, np.float64), np.asarray(m.weights, np.float64)
  out = []
  for q in codes:
    distance = ((q - keys) ** 2).sum(1)
    distance[~np.asarray(m.live)] = np.inf
    near = np.argsort(distance, kind="stable")[: cfg.top_k]
    near = near[np.asarray(m.live)[near]]
    z = weights[near] @ q * features.unit(cfg, codes.shape[1])
    soft = lambda z: np.exp(z) / np.exp(z).sum(-1, keepdims=True)  # noqa: E731
    out.append(soft(z).mean(0) if cfg.aggregate == "probs" else soft(z.mean(0)))
  return np.array(out)


class PredictTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.product(
    aggregate=("probs", "logits"), count=(1, 5, 128, 300), dead=((), (0, 3, 4))
  )
  def test_prediction_equals_the_float64_mean_of_the_nearest(
    self, aggregate, count, dead
  ):
    cfg = dataclasses.replace(CONFIG, aggregate=aggregate)
    e, m = encodings(count, seed=7), model(cfg, dead=dead)
    p = self.variant(predict)(m, jnp.asarray(e))
    assert p.shape == (count, CLASSES)
    np.testing.assert_allclose(p, oracle(cfg, m, e), atol=1e-5)

  @chex.variants(with_jit=True, without_jit=True)
  def test_prediction_composes_under_vmap_and_for_one_encoding(self):
    e, m = jnp.asarray(encodings(6, seed=8)), model()
    want = oracle(CONFIG, m, np.asarray(e))
    mapped = self.variant(lambda e: jax.vmap(lambda x: predict(m, x))(e))
    np.testing.assert_allclose(mapped(e), want, atol=1e-5)
    pairs = mapped(e.reshape(3, 2, -1)).reshape(6, -1)
    np.testing.assert_allclose(pairs, want, atol=1e-5)


def test_fewer_live_adapters_than_k_share_the_mean_among_themselves():
  m = model(dead=range(1, CONFIG.num_adapters))
  e = encodings(4, seed=1)
  p = np.asarray(predict(m, jnp.asarray(e)))
  np.testing.assert_allclose(p.sum(1), 1, atol=1e-6)
  np.testing.assert_allclose(p, oracle(CONFIG, m, e), atol=1e-5)


def test_a_dead_adapter_is_never_activated():
  m = model(dead=(2, 5))
  codes = features.encode_features(CONFIG, jnp.asarray(encodings(200, seed=3)))
  active = prediction.activate(m, codes)
  assert not np.isin(np.asarray(active), (2, 5)).any()


@pytest.mark.parametrize("aggregate", ["probs", "logits"])
def test_a_host_array_of_any_length_is_predicted_by_two_executables(aggregate):
  cfg = dataclasses.replace(CONFIG, aggregate=aggregate)
  m = model(cfg, dead=(1,))
  placement._whole.clear_cache()
  for count in (0, 1, 5, 128, 129, 2048, 2049, 4100):
    e = encodings(count, seed=7)
    p = prediction.predict_array(m, e)
    assert (p.shape, p.dtype) == ((count, CLASSES), np.float32)
    if count:
      np.testing.assert_allclose(p, oracle(cfg, m, e), atol=1e-5)
  other = dataclasses.replace(cfg, seed=5, key_noise=0.5, encoder="x", solver=SGD)
  prediction.predict_array(model(other), encodings(3))
  assert placement._whole._cache_size() == 2


def test_what_has_no_part_in_a_prediction_changes_no_bit_of_it():
  e = encodings(9, seed=3)
  other = dataclasses.replace(CONFIG, seed=5, key_noise=0.5, encoder="x", solver=SGD)
  one, two = (prediction.predict_array(model(cfg), e) for cfg in (CONFIG, other))
  np.testing.assert_array_equal(one, two)
  more = dataclasses.replace(CONFIG, top_k=CONFIG.top_k + 1)
  assert not np.array_equal(prediction.predict_array(model(more), e), one)


def test_numpy_and_jax_arrays_give_the_same_and_a_sweep_compiles_once():
  """As the README calls it: no `jit` of the caller's."""
  placement._whole.clear_cache()
  e = encodings(300, seed=5)
  for seed in range(3):
    cfg = dataclasses.replace(CONFIG, seed=seed)
    m = model(cfg)
    p = predict(m, e)
    assert isinstance(p, jax.Array)
    np.testing.assert_allclose(p, predict(m, jnp.asarray(e)), atol=1e-6)
    np.testing.assert_allclose(p[0], predict(m, e[0]), atol=1e-6)
    np.testing.assert_allclose(p, oracle(cfg, m, e), atol=1e-5)
  # A block of many rows, and one of few.
  assert placement._whole._cache_size() == 2


@pytest.mark.parametrize("solver", [lego.Ridge(), SGD])
@pytest.mark.parametrize("aggregate", ["probs", "logits"])
def test_codes_have_the_same_bits_on_the_host_under_jit_and_in_a_larger_program(
  solver, aggregate
):
  cfg = dataclasses.replace(CONFIG, solver=solver, aggregate=aggregate)
  samples = lego.make_samples(cfg, encodings(), labels())
  m = lego.fit(cfg, samples)[0].model
  for count in (1, 7, 300):
    codes = features.encode_array(cfg, encodings(count, seed=4))
    want = predict(m, codes)
    np.testing.assert_array_equal(jax.jit(predict)(m, codes), want)
    np.testing.assert_array_equal(predict(m, jnp.asarray(codes)), want)

    def more(m, codes):
      p = predict(m, jnp.flip(jnp.flip(codes, 1), 1)) * 2
      return p / 2, p.sum()

    np.testing.assert_array_equal(jax.jit(more)(m, codes)[0], want)
    one_by_one = jax.jit(jax.vmap(predict, (None, 0)))(m, codes)
    np.testing.assert_array_equal(one_by_one, want)
    stacked = jax.tree.map(lambda a: jnp.stack([a, a]), m)
    both = jax.jit(jax.vmap(predict, (0, None)))(stacked, codes)
    np.testing.assert_array_equal(both[1], want)


def test_the_logits_of_each_adapter_make_the_prediction():
  e, m = encodings(20, seed=2), model(dead=(1,))
  z, share = prediction.adapter_logits(m, e)
  assert z.shape == (20, CONFIG.top_k, CLASSES)
  if CONFIG.aggregate == "logits":
    p = jax.nn.softmax(jnp.einsum("bk,bkc->bc", share, z))
  else:
    p = jnp.einsum("bk,bkc->bc", share, jax.nn.softmax(z))
  np.testing.assert_allclose(p, predict(m, e), atol=1e-6)


def test_a_batch_that_is_split_over_eight_devices_costs_each_an_eighth():
  """By XLA's own count, on 8 virtual devices; and the answers are the same."""
  code = textwrap.dedent(f"""
    import sys; sys.path.insert(0, {str(ROOT / "tests")!r})
    from conftest import CONFIG, encodings, ids, labels
    import jax, numpy as np, legonet_jax as lego
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from legonet_jax.core import placement, prediction
    samples = lego.make_samples(CONFIG, encodings(), labels(), ids())
    model = lego.fit(CONFIG, samples)[0].model
    e = encodings(4096, seed=1)
    whole = NamedSharding(Mesh(jax.devices(), ("batch",)), PartitionSpec())
    split = NamedSharding(Mesh(jax.devices(), ("batch",)), PartitionSpec("batch"))
    predict = jax.jit(lego.predict)
    spread = jax.device_put(model, whole)
    def compile(rows, sharding, own):
      held = jax.device_put(e[:rows], sharding)
      if own:
        return placement._split.lower(
          prediction.probs_of, split.mesh, "batch", spread, held)
      return predict.lower(spread, held)
    def flops(*args):  # of one block: XLA counts the body of a loop once
      return compile(128, *args).compile().cost_analysis()["flops"]
    all_of_it = flops(whole, False)
    inside, outside = flops(split, False), flops(split, True)
    text = compile(4096, split, True).compile().as_text()
    for word in ("all-gather", "all-to-all", "all-reduce", "collective-permute"):
      assert word not in text, word
    held = jax.device_put(e, split)
    for p in (predict(spread, held), lego.predict(spread, held),
              lego.predict(model, held)):
      assert p.sharding.is_equivalent_to(split, 2), p.sharding
      want = lego.predict(model, e)
      np.testing.assert_allclose(p, want, atol=1e-6)
    print(max(inside, outside) / all_of_it)
  """)
  env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=ROOT
  )
  assert done.returncode == 0, done.stderr[-2000:]
  assert float(done.stdout) < 1 / 7.5
