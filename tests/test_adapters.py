"""One adapter's loss, one step, and the whole training against float64."""

import dataclasses
import functools

from absl.testing import parameterized
import chex
from conftest import CLASSES, CONFIG, DIM, SGD
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import legonet_jax as lego
from legonet_jax.core import (
  adapters,
  features,
  fold as fold_lib,
  ids as ids_lib,
)
from legonet_jax.core.solver import Members
from legonet_jax.runtime import flags

ADAPTER = fold_lib.make_adapter(np.uint32(0), np.zeros(2, np.uint32), {})

OPTIMIZERS = {
  "sgd": (("learning_rate", 0.5),),
  "momentum": (("learning_rate", 0.5), ("momentum", 0.9)),
  "adamw": (("learning_rate", 0.1), ("weight_decay", 0.1)),
}


def config(name: str) -> lego.LegoConfig:
  optimizer = "sgd" if name == "momentum" else name
  solver = dataclasses.replace(SGD, optimizer=optimizer, options=OPTIMIZERS[name])
  return dataclasses.replace(CONFIG, solver=solver)


def gradient_oracle(weights, x, labels):
  """Of the mean cross-entropy, in float64."""
  real = labels >= 0
  x, y = x[real].astype(np.float64), labels[real]
  z = x @ weights.astype(np.float64).T
  p = np.exp(z - z.max(1, keepdims=True))
  p /= p.sum(1, keepdims=True)
  p[np.arange(len(y)), y] -= 1
  return p.T @ x / len(y)


def loss(weights, x, labels):
  """The mean cross-entropy, whose gradient `linear.gradient` is."""
  return optax.softmax_cross_entropy_with_integer_labels(x @ weights.T, labels).mean()


class GradientTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(0, 3)
  def test_the_gradient_equals_float64_and_autodiff_and_skips_padding(self, padding):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(CLASSES, DIM)).astype(np.float32)
    x = rng.normal(size=(9, DIM)).astype(np.float32)
    y = rng.integers(0, CLASSES, 9).astype(np.int32)
    real = 9 - padding
    y[real:] = -1
    ours = self.variant(
      lambda w, x, y: adapters.gradient(w, x, adapters.targets(CONFIG, y))
    )(weights, x, jnp.asarray(y))
    want = gradient_oracle(weights, x, y)
    np.testing.assert_allclose(ours, want, rtol=1e-4, atol=1e-6)
    auto = jax.grad(loss)(jnp.asarray(weights), x[:real], y[:real])
    np.testing.assert_allclose(ours, auto, rtol=1e-4, atol=1e-6)

  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(*OPTIMIZERS)
  def test_a_step_without_samples_changes_nothing_at_all(self, name):
    cfg = config(name)
    solver, adapter = cfg.solver, ADAPTER
    codes = jnp.ones((4, DIM), jnp.int8)

    def members(count):
      rows = jnp.arange(4, dtype=jnp.int32)
      labels = jnp.asarray([0, 1, 0, 0], jnp.int32)
      return Members(codes, labels, rows, jnp.ones(4, jnp.int8), jnp.int32(count))

    # First a real step, so that momentum and moments are not zero.
    call = functools.partial(fold_lib.fold, cfg)
    fold = self.variant(lambda m, carry: call(m, adapter, carry)[0])
    carry = fold(members(2), solver.init(cfg, DIM, adapter))
    chex.assert_trees_all_equal(fold(members(0), carry), carry)
    two = jax.tree.map(lambda a: jnp.stack([a, a]), carry)
    both = jax.tree.map(lambda *a: jnp.stack(a), members(0), members(3))
    beside = self.variant(jax.vmap(lambda m, carry: call(m, adapter, carry)[0]))
    after = beside(both, two)  # an idle lane beside one that steps
    chex.assert_trees_all_equal(jax.tree.map(lambda a: a[0], after), carry)
    assert not np.array_equal(after[0][1], carry[0])


def train_oracle(cfg, samples, rows, adapter_id):
  """Plain mini-batch SGD with momentum, one adapter, in float64."""
  options = dict(cfg.solver.options)
  words = jnp.asarray(ids_lib.to_words(np.asarray([adapter_id])))[0]
  key = ids_lib.fold_in_id(cfg.seed, ids_lib.INIT_STREAM, words)
  w = np.asarray(adapters.init_weights(cfg, DIM, key), np.float64)
  velocity = np.zeros_like(w)
  size = cfg.solver.batch_size
  x = samples.codes.astype(np.float64) * features.unit(cfg, DIM)
  for _ in range(cfg.solver.epochs):
    for start in range(0, len(rows), size):
      batch = rows[start : start + size]
      grad = gradient_oracle(w, x[batch], samples.labels[batch])
      velocity = grad + options.get("momentum", 0.0) * velocity
      w = w - options["learning_rate"] * velocity
  return w


@pytest.mark.parametrize("name", ["sgd", "momentum"])
def test_every_adapter_equals_plain_float64_training_on_its_members(samples, name):
  cfg = config(name)
  state, _ = lego.fit(cfg, samples)
  n = cfg.num_adapters
  rows = np.searchsorted(samples.ids, state.ids)
  assert state.sizes.max() > 2 * cfg.solver.batch_size
  for j in range(n):
    mine = rows[(state.routes == j).any(axis=1)]
    want = train_oracle(cfg, samples, mine, state.anchors[j])
    np.testing.assert_allclose(state.model.weights[j], want, rtol=1e-3, atol=1e-5)


def test_initial_weights_come_from_the_adapters_id():
  def start(i):
    words = jnp.asarray(ids_lib.to_words(np.asarray([i])))[0]
    adapter = fold_lib.make_adapter(np.uint32(0), words, {})
    return np.asarray(SGD.init(CONFIG, DIM, adapter)[0])

  np.testing.assert_array_equal(start(5), start(5))
  assert len({float(start(i)[0, 0]) for i in (5, 2**40 + 5, 9)}) == 3


def test_any_optax_optimiser_can_be_named_or_handed_in(samples):
  import optax

  named = dataclasses.replace(
    CONFIG,
    solver=dataclasses.replace(
      SGD, optimizer="lion", options=(("learning_rate", 0.01),)
    ),
  )
  handed = dataclasses.replace(
    named, solver=dataclasses.replace(named.solver, optimizer=optax.lion)
  )
  one, two = lego.fit(named, samples)[0], lego.fit(handed, samples)[0]
  np.testing.assert_array_equal(one.model.weights, two.model.weights)


def test_xi_and_initial_weights_of_one_anchor_are_independent():
  words = jnp.asarray(ids_lib.to_words(np.array([7])))[0]
  streams = [
    jax.random.normal(ids_lib.fold_in_id(0, stream, words), (1000,))
    for stream in (ids_lib.KEY_STREAM, ids_lib.INIT_STREAM)
  ]
  assert abs(float(jnp.corrcoef(*streams)[0, 1])) < 0.2


def test_progress_counts_all_samples_and_epochs(samples):
  seen = []
  _, info = lego.fit(CONFIG, samples, progress=lambda done, of: seen.append((done, of)))
  total = info.samples_retrained * CONFIG.solver.epochs
  assert seen[-1] == (total, total)
  assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_training_again_in_the_same_process_gives_the_same_bits(samples):
  again = {lego.digest(lego.fit(CONFIG, samples)[0]) for _ in range(4)}
  assert len(again) == 1


def test_training_names_the_precision_of_every_product_and_compiles_for_determinism():
  """Not by a context, which a caller's `jit` would not see."""
  x, y = jnp.ones((4, 5)), jnp.zeros(4, jnp.int32)

  def gradient(w):
    return adapters.gradient(w, x, adapters.targets(CONFIG, y))

  text = str(jax.make_jaxpr(gradient)(jnp.ones((CONFIG.num_classes, 5))))
  assert text.count("dot_general") == text.count("Precision.HIGHEST, ") == 2
  assert flags.DETERMINISTIC["xla_gpu_deterministic_ops"] is True
  assert flags.DETERMINISTIC["xla_gpu_autotune_level"] == 0
