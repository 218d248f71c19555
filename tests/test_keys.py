"""Anchors and keys."""

import dataclasses

from conftest import CONFIG, encodings, labels
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.core import ids as ids_lib, keys as keys_lib


def in_order(cfg, ids):
  return ids[ids_lib.hash_order(cfg.seed, ids)]


def test_anchors_are_a_uniform_draw_without_replacement():
  ids, n, seeds = np.arange(50), 8, 2000
  count = np.zeros(50)
  for seed in range(seeds):
    cfg = dataclasses.replace(CONFIG, seed=seed)
    anchors = keys_lib.choose_anchors(cfg, in_order(cfg, ids))
    assert len(set(anchors.tolist())) == n
    count[anchors] += 1
  expected = seeds * n / 50
  chi2 = ((count - expected) ** 2 / (expected * (1 - n / 50))).sum()
  assert chi2 < 49 + 5 * np.sqrt(2 * 49)


def test_anchors_depend_on_the_set_of_ids_and_on_the_seed_only():
  ids = np.arange(100) * 7919
  rng = np.random.default_rng(0)
  first = keys_lib.choose_anchors(CONFIG, in_order(CONFIG, ids))
  again = keys_lib.choose_anchors(CONFIG, in_order(CONFIG, rng.permutation(ids)))
  np.testing.assert_array_equal(first, again)
  other = dataclasses.replace(CONFIG, seed=CONFIG.seed + 1)
  assert set(keys_lib.choose_anchors(other, in_order(other, ids))) != set(first)


def test_without_an_anchor_the_next_id_in_hash_order_moves_up():
  ordered = in_order(CONFIG, np.arange(100))
  before = keys_lib.choose_anchors(CONFIG, ordered)
  after = keys_lib.choose_anchors(CONFIG, np.delete(ordered, 3))
  np.testing.assert_array_equal(after, [*np.delete(before, 3), ordered[len(before)]])


def test_hashes_of_distinct_ids_never_tie():
  ids = np.arange(-(2**10), 2**16) + 2**62
  assert len(np.unique(ids_lib.hash_ids(5, ids))) == len(ids)


def test_a_key_is_its_anchors_encoding_plus_noise_of_the_given_scale(samples):
  anchors = samples.ids[:8]
  silent = dataclasses.replace(CONFIG, key_noise=0.0)
  codes = samples.codes[:8]
  np.testing.assert_array_equal(
    keys_lib.keys_from_anchors(silent, samples, anchors), codes
  )
  loud = dataclasses.replace(CONFIG, key_noise=0.05)
  xi = keys_lib.keys_from_anchors(loud, samples, anchors) - codes.astype(float)
  inside = np.abs(codes) < 100  # where the largest code does not cut ξ off
  assert 0.5 < xi[inside].std() / (0.05 * 127) < 1.5


def test_xi_depends_on_the_anchors_id_and_not_on_its_place(samples):
  anchors = samples.ids[:8]
  keys = keys_lib.keys_from_anchors(CONFIG, samples, anchors)
  order = np.random.default_rng(0).permutation(8)
  np.testing.assert_array_equal(
    keys_lib.keys_from_anchors(CONFIG, samples, anchors[order]), keys[order]
  )


def test_keys_too_long_for_exact_scores_are_refused():
  wide = dataclasses.replace(CONFIG, key_noise=100.0, num_adapters=1, top_k=1)
  samples = lego.make_samples(wide, np.ones((2, 600)), [0, 1])
  with pytest.raises(errors.ConfigError, match="key_noise"):
    lego.fit(wide, samples)


def test_given_keys_go_through_the_same_map_as_encodings():
  cfg = dataclasses.replace(CONFIG, key_policy="given")
  points = encodings(8, seed=9)
  samples = lego.make_samples(cfg, encodings(), labels())
  state, _ = lego.fit(cfg, samples, keys=points)
  want = lego.make_samples(cfg, points, np.zeros(8, int)).codes
  np.testing.assert_array_equal(state.model.keys, want)
