"""A tiny table for the pure program, and the same requests by the host API."""

import dataclasses

from conftest import CONFIG, encodings, ids, labels
import jax
import jax.numpy as jnp
import numpy as np

import legonet_jax as lego
from legonet_jax import functional

SPARE = 4  # rows of padding
RIDGE = dataclasses.replace(CONFIG, solver=lego.Ridge(), feature_map="sqrt")
CONFIGS = {
  "ridge": RIDGE,
  "ridge, sums not kept": dataclasses.replace(RIDGE, solver=lego.Ridge(keep=False)),
  "ridge, given": dataclasses.replace(RIDGE, key_policy="given", top_k=3),
  "ridge, map none, loud keys": dataclasses.replace(
    RIDGE, feature_map="none", feature_range=2.0, key_noise=0.5
  ),
  "sgd": CONFIG,
  "sgd, given": dataclasses.replace(CONFIG, key_policy="given"),
}
# Far away from all samples, so that some adapters start or become empty.
GIVEN = np.vstack([encodings(6, seed=4), -5 * encodings(2, seed=4)])


def keys_of(cfg):
  return GIVEN if cfg.key_policy == "given" else None


def make(name):
  """Settings, samples, the table with `SPARE` rows of padding, and the empty state."""
  cfg = CONFIGS[name]
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  data = functional.make_data(samples, len(samples.ids) + SPARE)
  keys = keys_of(cfg)
  if keys is not None:
    keys = jnp.asarray(lego.core.features.encode_array(cfg, keys))
  return cfg, samples, data, functional.init(cfg, data, keys=keys)


def mask_of(data, rows):
  mask = np.zeros(len(data.labels), bool)
  mask[rows] = True
  return jnp.asarray(mask)


def retained_ids(data, state):
  words = np.asarray(data.ids)[np.asarray(state.retained)].astype(np.int64)
  return words[:, 0] << 32 | words[:, 1]


def assert_equals_host(data, state, host):
  """Every array of a state is that of a state of the host API."""
  words = np.asarray(state.names).astype(np.int64)
  np.testing.assert_array_equal(words[:, 0] << 32 | words[:, 1], host.anchors)
  np.testing.assert_array_equal(state.keys, host.model.keys)
  np.testing.assert_array_equal(state.live, host.model.live)
  np.testing.assert_array_equal(state.sizes, host.sizes)
  np.testing.assert_array_equal(state.weights, np.asarray(host.model.weights))
  order = np.asarray(state.order)
  mine = order[np.asarray(state.retained)[order]]
  words = np.asarray(data.ids)[mine].astype(np.int64)
  np.testing.assert_array_equal(words[:, 0] << 32 | words[:, 1], host.ids)
  np.testing.assert_array_equal(np.asarray(state.routes)[mine], host.routes)


def assert_same(a, b):
  """Two states are equal bit for bit."""
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
