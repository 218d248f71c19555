"""The pure program: any updates end in a fresh fit, and in what the host API gives."""

import dataclasses
import functools

from functional_world import (
  CONFIGS,
  assert_equals_host,
  assert_same,
  keys_of,
  make,
  mask_of,
  retained_ids,
)
from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax import functional
from legonet_jax.core import ids as ids_lib

deferred = functools.partial(functional.update, defer=True)
OPS = (
  "forget one", "forget two", "forget an anchor", "learn one", "learn two", "mask",
  "class", "empty an adapter", "all", "insert", "erase", "defer", "heal",
)  # fmt: skip
REQUESTS = st.lists(
  st.tuples(st.sampled_from(OPS), st.integers(0, 2**20)), min_size=1, max_size=8
)


@functools.cache
def world(name):
  cfg, samples, data, empty = make(name)
  rows = np.arange(len(samples.ids))
  return cfg, data, empty, functional.update(data, empty, mask_of(data, rows))[0]


def pad(rows, count):
  """Exactly two rows, so that all requests share one executable."""
  return jnp.asarray([*rows, count, count][:2], jnp.int32)


def step(op, rng, data, state):
  """Carries out one request; returns the new table and state."""
  cfg, count = state.cfg, len(data.labels)
  retained = np.asarray(state.retained)
  filled = np.asarray(data.ids)[:, 0] != 0xFFFFFFFF
  held, absent = np.flatnonzero(retained), np.flatnonzero(~retained & filled)
  least = 1 if cfg.key_policy == "given" else cfg.num_adapters
  spare = len(held) - least
  number = 2 if op.endswith("two") else 1
  if op == "forget an anchor":
    held = held if cfg.key_policy == "given" else np.asarray(state.anchors)
  if op.startswith("forget"):
    rows = rng.permutation(held)[: min(number, spare)]
    return data, functional.forget(data, state, pad(rows, count))[0]
  if op.startswith("learn"):
    rows = rng.permutation(absent)[:number]
    return data, functional.learn(data, state, pad(rows, count))[0]
  if op == "insert":
    rows = np.flatnonzero(~filled)[:1]
    ids = rng.integers(2**62, 2**63 - 100, len(rows)) + filled.sum()  # no id twice
    codes = rng.integers(-9, 9, (len(rows), data.codes.shape[1])).astype(np.int8)
    labels = rng.integers(0, cfg.num_classes, len(rows)).astype(np.int32)
    new = (jnp.asarray(a) for a in (codes, labels, ids_lib.to_words(ids)))
    return functional.insert(data, jnp.asarray(rows), *new), state
  if op == "erase":  # of rows that are forgotten already, or not yet
    wanted = rng.permutation(held)[: min(2, spare)]
    wanted = np.concatenate([wanted, rng.permutation(absent)[:1]])
    data = functional.erase(data, jnp.asarray(wanted))
    retained = retained & (np.asarray(data.ids)[:, 0] != 0xFFFFFFFF)
  mask = retained.copy()
  if op == "mask":
    mask = filled & (rng.random(count) < rng.random())
  elif op == "class":
    mask &= np.asarray(data.labels) != rng.integers(cfg.num_classes)
  elif op == "empty an adapter":
    mask &= ~(np.asarray(state.routes) == rng.integers(cfg.num_adapters)).any(1)
  elif op == "all":
    mask = filled
  elif op == "defer":
    mask[rng.permutation(held)[: min(3, spare)]] = False
  if mask.sum() < least:
    return data, state
  call = deferred if op == "defer" else functional.update
  return data, call(data, state, jnp.asarray(mask))[0]


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(requests=REQUESTS)
def test_any_requests_end_in_a_fresh_fit_and_in_the_state_of_the_host(name, requests):
  cfg, data, empty, state = world(name)
  for op, seed in requests:
    data, state = step(op, np.random.default_rng(seed), data, state)
  state, info = functional.update(data, state, state.retained)  # heals
  fresh, _ = functional.update(data, empty, state.retained)
  assert_same(state, fresh)
  assert info.undecided == info.overflow == 0
  samples = to_samples(cfg, data)
  kept = lego.select(samples, retained_ids(data, state))
  assert_equals_host(data, state, lego.fit(cfg, kept, keys_of(cfg))[0])


def to_samples(cfg, data):
  """The table of the host API that holds the same codes."""
  filled = np.asarray(data.ids)[:, 0] != 0xFFFFFFFF
  words = np.asarray(data.ids)[filled].astype(np.int64)
  ids = words[:, 0] << 32 | words[:, 1]
  order = np.argsort(ids)
  blank = lego.make_samples(
    cfg, np.ones((len(ids), data.codes.shape[1])), np.zeros(len(ids), int), ids
  )
  return dataclasses.replace(
    blank,
    codes=np.asarray(data.codes)[filled][order],
    labels=np.asarray(data.labels)[filled][order],
  )


def test_all_masks_and_all_rows_share_one_executable():
  _, data, _, state = world("ridge")
  functional.update.clear_cache()
  rng = np.random.default_rng(0)
  for op in ("mask", "class", "all", "forget an anchor", "mask", "all"):
    data, state = step(op, rng, data, state)
  assert functional.update._cache_size() == 1


def test_the_empty_set_is_where_every_state_began():
  _, data, empty, state = world("ridge")
  gone, info = functional.update(data, state, jnp.zeros_like(state.retained))
  assert_same(gone, functional.update(data, empty, empty.retained)[0])
  assert not gone.live.any()
  assert not np.asarray(gone.weights).any()
  assert info.exact


def test_a_call_reports_what_it_did():
  cfg, data, _, state = world("ridge")
  plain = int(np.setdiff1d(np.arange(60), np.asarray(state.anchors))[0])
  near = np.asarray(state.routes)[plain]
  after, info = functional.forget(data, state, jnp.asarray([plain], jnp.int32))
  assert info.adapters_retrained == cfg.top_k
  assert info.samples_retrained == np.asarray(after.sizes)[near].sum()
  assert info.anchors_replaced == 0
  anchor = state.anchors[:1]
  _, info = functional.forget(data, state, anchor)
  assert info.anchors_replaced == 1
  few = mask_of(data, np.asarray(state.anchors)[:5])
  _, info = functional.update(data, state, few)
  assert not info.exact  # five samples cannot anchor eight adapters


def test_an_old_state_stays_valid_unless_it_is_donated():
  _, data, _, state = world("ridge")
  before = jax.tree.map(np.asarray, state)
  rows = jnp.asarray([3, 5], jnp.int32)
  after, _ = functional.forget(data, state, rows)
  assert_same(state, before)
  copy = jax.tree.map(jnp.copy, state)
  assert_same(functional.forget(data, copy, rows, donate=True)[0], after)


def test_rows_that_are_named_twice_or_not_retained_count_once_or_not_at_all():
  _, data, _, state = world("ridge")
  once, _ = functional.forget(data, state, jnp.asarray([3], jnp.int32))
  many = jnp.asarray([3, 3, len(data.labels), -1, 61], jnp.int32)
  assert_same(functional.forget(data, state, many)[0], once)
  assert_same(functional.forget(data, once, many)[0], once)
  assert_same(functional.learn(data, once, jnp.asarray([3, 3, 7, 62]))[0], state)
