"""Anchors and keys."""

import dataclasses

from conftest import CONFIG, encodings, labels
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax import functional
from legonet_jax.core import ids as ids_lib, keys as keys_lib
from legonet_jax.core.data import Data


def anchors_of(cfg, ids, seeds):
  """Ids [m, n] of the anchors among `ids`, one row for each seed."""
  words = jnp.asarray(ids_lib.to_words(ids))
  count = len(ids)
  data = Data(jnp.zeros((count, 3), jnp.int8), jnp.zeros(count, jnp.int32), words)

  @jax.jit
  @jax.vmap
  def choose(seed):
    state = functional.init(cfg, data, seed)
    order = ids_lib.sort_by_hash(seed, words, state.order)
    return functional.choose_anchors(state, order, jnp.ones(count, bool))

  return ids[np.asarray(choose(jnp.asarray(seeds, jnp.uint32)))]


def test_anchors_are_a_uniform_draw_without_replacement():
  ids, n, seeds = np.arange(50), 8, 2000
  anchors = anchors_of(CONFIG, ids, np.arange(seeds))
  assert all(len(set(each)) == n for each in anchors.tolist())
  count = np.bincount(anchors.ravel(), minlength=50)
  expected = seeds * n / 50
  chi2 = ((count - expected) ** 2 / (expected * (1 - n / 50))).sum()
  assert chi2 < 49 + 5 * np.sqrt(2 * 49)


def test_anchors_depend_on_the_set_of_ids_and_on_the_seed_only():
  ids = np.arange(100) * 7919
  rng = np.random.default_rng(0)
  first, other = anchors_of(CONFIG, ids, [3, 4])
  np.testing.assert_array_equal(first, anchors_of(CONFIG, rng.permutation(ids), [3])[0])
  assert set(other) != set(first)


def test_without_an_anchor_the_next_id_in_hash_order_moves_up():
  ids = np.arange(100)
  ordered = ids[ids_lib.hash_order(3, ids)]
  (before,) = anchors_of(CONFIG, ids, [3])
  np.testing.assert_array_equal(before, ordered[: len(before)])
  (after,) = anchors_of(CONFIG, np.delete(ids, before[3]), [3])
  np.testing.assert_array_equal(after, [*np.delete(before, 3), ordered[len(before)]])


def keys_at(cfg, samples, rows):
  """K of anchors in these rows of a table."""
  words = jnp.asarray(ids_lib.to_words(samples.ids[rows]))
  seed = jnp.uint32(cfg.seed)
  return np.asarray(
    keys_lib.make_keys(cfg, seed, jnp.asarray(samples.codes[rows]), words)
  )


def test_hashes_of_distinct_ids_never_tie():
  ids = np.arange(-(2**10), 2**16) + 2**62
  assert len(np.unique(ids_lib.hash_ids(5, ids))) == len(ids)


def test_a_key_is_its_anchors_encoding_plus_noise_of_the_given_scale(samples):
  rows = np.arange(8)
  silent = dataclasses.replace(CONFIG, key_noise=0.0)
  codes = samples.codes[rows]
  np.testing.assert_array_equal(keys_at(silent, samples, rows), codes)
  loud = dataclasses.replace(CONFIG, key_noise=0.05)
  xi = keys_at(loud, samples, rows) - codes.astype(float)
  inside = np.abs(codes) < 100  # where the largest code does not cut ξ off
  assert 0.5 < xi[inside].std() / (0.05 * 127) < 1.5


def test_xi_depends_on_the_anchors_id_and_not_on_its_place(samples):
  keys = keys_at(CONFIG, samples, np.arange(8))
  order = np.random.default_rng(0).permutation(8)
  np.testing.assert_array_equal(keys_at(CONFIG, samples, order), keys[order])


@pytest.mark.parametrize(("dim", "noise"), [(600, 100.0), (2048, 0.381), (2**14, 1.0)])
def test_no_noise_makes_a_key_too_long_for_exact_scores(dim, noise):
  """Not even that of a forgotten anchor's successor, after a fit that went well."""
  cfg = dataclasses.replace(CONFIG, key_noise=noise, num_adapters=4, top_k=2)
  e = np.random.default_rng(0).normal(size=(12, dim))
  samples = lego.make_samples(cfg, e, np.arange(12) % 3)
  state, _ = lego.fit(cfg, samples)
  for _ in range(3):
    state, _ = lego.unlearn(state, samples, state.anchors[:1])
    assert (state.model.keys.astype(int) ** 2).sum(axis=1).max() <= keys_lib.LONGEST2
  refit, _ = lego.fit(cfg, lego.select(samples, state.ids))
  assert lego.digest(state) == lego.digest(refit)


def test_given_keys_go_through_the_same_map_as_encodings():
  cfg = dataclasses.replace(CONFIG, key_policy="given")
  points = encodings(8, seed=9)
  samples = lego.make_samples(cfg, encodings(), labels())
  state, _ = lego.fit(cfg, samples, keys=points)
  want = lego.make_samples(cfg, points, np.zeros(8, int)).codes
  np.testing.assert_array_equal(state.model.keys, want)
