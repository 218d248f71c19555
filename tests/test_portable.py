"""The library equals a second implementation of docs/portable.md, bit for bit.

`portable_reference` is plain Python: integers, fractions, single float operations.
"""

from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import portable_reference as reference
import pytest

import legonet_jax as lego
from legonet_jax.core import config, features, ids as ids_lib, routing

S = reference.Settings
BIG = 3 * 2**32 + 7  # ids beyond 32 bits
PROBLEMS = {
  "sqrt": (S(3, 5, 2, seed=1), 30, 6),
  "sqrt, no noise": (S(2, 3, 1, key_noise=0.0), 12, 3),
  "sqrt, loud keys": (S(3, 4, 3, seed=2**32 - 1, key_noise=2.0), 25, 5),
  "sqrt, range 0.7": (S(2, 4, 2, seed=5, feature_range=0.7, key_noise=0.05), 20, 12),
  "l2": (S(4, 8, 2, seed=7, feature_map="l2", key_noise=0.05), 40, 8),
  "l2, range 0.3": (S(2, 3, 3, feature_map="l2", feature_range=0.3), 15, 4),
  "none": (S(3, 6, 2, feature_map="none", feature_range=2.5, key_noise=0.3), 30, 7),
  "small penalty": (S(3, 5, 2, seed=9, penalty=1e-6), 20, 9),
  "large penalty": (S(3, 5, 2, seed=9, penalty=1e6, scale=0.5, encoder="né"), 20, 9),
  "odd penalty": (S(2, 4, 2, seed=4, penalty=0.1 + 0.2), 25, 10),
}


def config_of(s: reference.Settings, keep: bool = True) -> lego.LegoConfig:
  return lego.LegoConfig(
    num_classes=s.classes,
    num_adapters=s.n,
    top_k=s.k,
    seed=s.seed,
    key_policy=s.key_policy,
    key_noise=s.key_noise,
    feature_map=s.feature_map,
    feature_range=s.feature_range,
    encoder=s.encoder,
    aggregate=s.aggregate,
    solver=lego.Ridge(penalty=s.penalty, scale=s.scale, keep=keep),
  )


def make_data(s, count, dim, seed=0):
  """Encodings with zeros, duplicates and a row of zeros; labels; ids in any order."""
  rng = np.random.default_rng([seed, count, dim])
  e = rng.normal(size=(count, dim)).astype(np.float32)
  e[rng.random(e.shape) < 0.15] = 0
  e[1], e[2] = 0, e[3]
  e[4] = np.rint(e[4])
  labels = rng.integers(0, s.classes, count)
  return e, labels, rng.permutation(count) * BIG


def equal(s, state, expected):
  """Asserts that a state is the reference's, part by part and in the digest."""
  np.testing.assert_array_equal(state.ids, expected.ids)
  np.testing.assert_array_equal(state.anchors, expected.anchors)
  np.testing.assert_array_equal(state.model.keys, expected.keys)
  np.testing.assert_array_equal(state.routes, expected.routes)
  np.testing.assert_array_equal(state.model.live, expected.live)
  np.testing.assert_array_equal(state.model.weights, expected.weights)
  assert [bytes(p) for p in state.prints] == expected.prints
  assert lego.digest(state) == reference.digest(s, expected)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_fit_and_its_classes_are_those_of_the_reference(name):
  s, count, dim = PROBLEMS[name]
  cfg, (e, labels, ids) = config_of(s), make_data(s, count, dim)
  samples = lego.make_samples(cfg, e, labels, ids)
  state, _ = lego.fit(cfg, samples)
  expected = reference.fit(s, e.tolist(), labels.tolist(), ids.tolist())
  equal(s, state, expected)
  asked = np.concatenate([e, make_data(s, 40, dim, seed=1)[0]])
  classes = [reference.classify(s, expected, row) for row in asked.tolist()]
  np.testing.assert_array_equal(lego.classify(state.model, asked), classes)


@pytest.mark.parametrize("name", ["sqrt", "l2", "none", "sqrt, loud keys"])
def test_requests_end_in_the_digest_of_the_reference(name):
  s, count, dim = PROBLEMS[name]
  cfg, (e, labels, ids) = config_of(s), make_data(s, count, dim)
  samples = lego.make_samples(cfg, e, labels, ids)
  start = lego.select(samples, ids[:-4])
  state, _ = lego.fit(cfg, start)
  state, _ = lego.unlearn(state, samples, [state.anchors[0], state.ids[-1]])
  state, _ = lego.learn(state, samples, ids[-4:-1])
  state, _ = lego.unlearn(state, samples, [state.ids[s.n]], defer=True)
  state, _ = lego.heal(state, samples)
  left = np.isin(ids, state.ids)
  assert left.sum() == count - 4
  expected = reference.fit(
    s, e[left].tolist(), labels[left].tolist(), ids[left].tolist()
  )
  equal(s, state, expected)


def test_an_adapter_without_members_has_no_weights_and_no_vote():
  s = S(3, 4, 2, key_policy="given", feature_map="none", feature_range=1.0)
  cfg = config_of(s)
  e, labels, ids = make_data(s, 20, 3)
  e = np.clip(e, -0.3, 0.3)
  # The last key is far from every sample, and the first two are the same.
  points = np.array([[0.1, 0, 0], [0.1, 0, 0], [-0.1, 0, 0.1], [-1, -1, -1]])
  state, _ = lego.fit(cfg, lego.make_samples(cfg, e, labels, ids), points)
  data = e.tolist(), labels.tolist(), ids.tolist()
  expected = reference.fit(s, *data, points.tolist())
  assert expected.live == [True, True, True, False]
  equal(s, state, expected)
  asked = np.array([[-1, -1, -1], [-0.9, -1, -0.9], [0.1, 0, 0], [1, 1, 1]], np.float32)
  classes = [reference.classify(s, expected, row) for row in asked.tolist()]
  np.testing.assert_array_equal(lego.classify(state.model, asked), classes)


@pytest.mark.parametrize("dim", [1, 2, 3, 9])
def test_equal_scores_go_to_the_lower_adapter(dim):
  """Small integers tie often; negative codes and a key of zero may give -0 and +0."""
  s = S(2, 6, 4)
  for seed in range(40):
    rng = np.random.default_rng([dim, seed])
    codes = rng.integers(-1, 2, (20, dim)).astype(np.int8)
    codes[0] = -1
    keys = rng.integers(-2, 3, (6, dim)).astype(np.int8)
    keys[rng.integers(6)] = 0
    want = [reference.find_route(s, keys.tolist(), x) for x in codes.tolist()]
    got = jax.jit(routing.route, static_argnums=2)(codes, keys, s.k)
    np.testing.assert_array_equal(got, want)
    # One row outside of jit is another kernel, with another zero.
    one = routing.route(jnp.asarray(codes[:1]), jnp.asarray(keys), s.k)
    np.testing.assert_array_equal(one, want[:1])


def test_the_settings_have_the_fingerprint_that_the_reference_writes():
  for s, _, _ in PROBLEMS.values():
    for keep in (True, False):
      got = bytes(config.fingerprint(config_of(s, keep)))
      assert got == reference.settings_fingerprint(s)


def hard_rows(rng, dim):
  """Encodings with every kind of number that float32 has, in several types."""
  # One large number and small ones: 48 and 49 units of 22 bits are codes 0 and 1.
  small = rng.uniform(47, 51, (40, dim)) * 2.0**-22
  small[:, 0] = 0.75
  rows = [
    rng.normal(size=(60, dim)),
    rng.normal(size=(30, dim)) * 1e29,
    rng.normal(size=(30, dim)) * 1e-40,  # subnormal in float32
    rng.integers(-3, 4, (30, dim)) * 2.0**-149,
    rng.normal(size=(30, dim)) * 10.0 ** rng.uniform(-44, 29, (30, dim)),
    rng.integers(-300, 300, (40, dim)) / 254,  # halves of a code for `none`
    rng.integers(-5, 6, (40, dim)).astype(float),
    np.sign(rng.normal(size=(20, dim))) * (1 + rng.integers(-2, 3, (20, dim)) * 2**-24),
    np.eye(dim) * -7.5,
    small,
    np.zeros((1, dim)),
  ]
  return np.concatenate([np.clip(r, -9e29, 9e29) for r in rows])


@pytest.mark.parametrize("dim", [1, 3, 8, 37])
@pytest.mark.parametrize(
  "s",
  [
    S(2, 1, 1),
    S(2, 1, 1, feature_range=0.37),
    S(2, 1, 1, feature_map="l2"),
    S(2, 1, 1, feature_map="l2", feature_range=0.25),
    S(2, 1, 1, feature_map="none", feature_range=1.0),
    S(2, 1, 1, feature_map="none", feature_range=1e12),
    S(2, 1, 1, feature_map="none", feature_range=1e-12, key_noise=0.0),
  ],
  ids=lambda s: f"{s.feature_map}-{s.feature_range}",
)
def test_codes_are_those_of_the_reference(s, dim):
  cfg, rows = config_of(s), hard_rows(np.random.default_rng(dim), dim)
  for kind in (np.float64, np.float32):
    part = rows.astype(kind)
    want = [reference.encode(s, row) for row in part.tolist()]
    np.testing.assert_array_equal(features.encode_array(cfg, part), want)
  half = np.clip(rows, -6e4, 6e4).astype(np.float16)
  want = [reference.encode(s, row) for row in half.tolist()]
  np.testing.assert_array_equal(features.encode_array(cfg, half), want)
  whole = np.rint(np.clip(rows, -1e6, 1e6)).astype(np.int32)
  want = [reference.encode(s, row) for row in whole.tolist()]
  np.testing.assert_array_equal(features.encode_array(cfg, whole), want)


def test_levels_and_ranges_are_those_of_the_reference():
  for dim in (1, 3, 100, 512, 768, 2048, 4096, 65536):
    for s in (S(2, 1, 1), S(2, 1, 1, feature_map="l2")):
      for r in (None, 0.1, 1.0, 3.0):
        s = s._replace(feature_range=r)
        cfg = config_of(s)
        assert features.levels(cfg, dim) == reference.find_levels(s, dim)
        assert features.feature_range(cfg, dim) == reference.find_range(s, dim)


# Random123, tests/kat_vectors: threefry2x32 20 rounds; counter, key, result.
KNOWN = [
  ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
  ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
  ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_threefry_has_the_known_answers_of_random123(counter, key, result):
  assert reference.threefry(key, counter) == result

  def words(pair):
    return tuple(np.array([w], np.uint32) for w in pair)

  got = ids_lib.threefry(words(key), words(counter))
  assert tuple(int(w[0]) for w in got) == result


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**63 - 1), min_size=1))
def test_the_order_of_any_ids_is_that_of_the_reference(seed, ids):
  ids = sorted(set(ids))
  order = ids_lib.hash_order(seed, np.array(ids, np.int64))
  want = sorted(ids, key=lambda i: reference.hash_id(seed, i))
  assert [ids[i] for i in order] == want


@pytest.mark.parametrize("name", ["none", "sqrt", "l2"])
def test_classes_under_jit_are_those_of_the_reference_away_from_boundaries(name):
  s, count, dim = PROBLEMS[name]
  cfg, (e, labels, ids) = config_of(s), make_data(s, count, dim)
  state, _ = lego.fit(cfg, lego.make_samples(cfg, e, labels, ids))
  expected = reference.fit(s, e.tolist(), labels.tolist(), ids.tolist())
  asked = make_data(s, 200, dim, seed=2)[0]
  codes = np.asarray(features.encode_features(cfg, asked))
  same = (codes == features.encode_array(cfg, asked)).all(axis=1)
  assert same.mean() > 0.95  # the others lie next to a rounding boundary
  want = [reference.classify(s, expected, row) for row in asked[same].tolist()]
  got = jax.jit(lego.classify)(state.model, asked[same])
  np.testing.assert_array_equal(got, want)
