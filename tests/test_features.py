"""The fixed map of one encoding."""

import dataclasses
import math

from absl.testing import parameterized
import chex
from conftest import CONFIG, encodings
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.core import features

MAPS = {
  "l2": dataclasses.replace(CONFIG, feature_map="l2"),
  "sqrt": dataclasses.replace(CONFIG, feature_map="sqrt"),
  "none": dataclasses.replace(CONFIG, feature_map="none", feature_range=3.0),
}


def oracle(kind: str, e: np.ndarray) -> np.ndarray:
  """The codes before rounding, in float64."""
  e = e.astype(np.float64)
  u = e / np.linalg.norm(e, axis=-1, keepdims=True)
  x = {"l2": u, "sqrt": np.sign(u) * np.sqrt(np.abs(u)), "none": e / 3.0}[kind]
  return 127 * np.clip(x, -1, 1)


class FeaturesTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(*MAPS)
  def test_codes_are_the_nearest_integers_to_the_float64_map(self, kind):
    e = encodings(50)
    encode = self.variant(lambda e: features.encode_features(MAPS[kind], e))
    codes = np.asarray(encode(jnp.asarray(e)))
    assert codes.dtype == np.int8
    assert np.abs(codes - oracle(kind, e)).max() < 0.5 + 1e-3


@pytest.mark.parametrize("kind", MAPS)
def test_codes_of_a_sample_do_not_depend_on_the_other_samples(kind):
  cfg, e = MAPS[kind], encodings(40)
  together = features.encode_array(cfg, e)
  outlier = np.vstack([1e4 * np.ones_like(e[:1]), e])
  np.testing.assert_array_equal(features.encode_array(cfg, outlier)[1:], together)
  alone = np.vstack([features.encode_array(cfg, row[None]) for row in e])
  np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("kind", MAPS)
def test_codes_depend_neither_on_the_blocks_nor_on_the_cores(kind, monkeypatch):
  e = encodings(600)
  want = features.encode_array(MAPS[kind], e)
  for block, cores in ((7, 1), (64, 3), (1000, 2)):
    monkeypatch.setattr(features, "_BLOCK", block)
    monkeypatch.setattr("legonet_jax.runtime.parallel.count_cores", lambda c=cores: c)
    np.testing.assert_array_equal(features.encode_array(MAPS[kind], e), want)


@pytest.mark.parametrize("kind", MAPS)
def test_codes_under_jit_are_those_of_the_host_but_next_to_a_boundary(kind):
  e = np.random.default_rng(0).gamma(0.5, 1, (2000, 64)).astype(np.float32)
  host = features.encode_array(MAPS[kind], e).astype(int)
  device = np.asarray(jax.jit(lambda e: features.encode_features(MAPS[kind], e))(e))
  assert np.abs(device - host).max() <= 1
  assert (device != host).mean() < 1e-3


@pytest.mark.parametrize("dim", [2, 64, 512, 2048, 8192, 30_000])
@pytest.mark.parametrize("kind", MAPS)
def test_no_score_of_codes_can_leave_the_exact_range_of_float32(kind, dim):
  cfg = MAPS[kind]
  m = features.levels(cfg, dim)
  worst = {
    "none": np.full((1, dim), 1e6),  # every code at its largest
    "sqrt": np.ones((1, dim)),  # the longest that a sqrt map can be
    "l2": np.ones((1, dim)),
  }[kind]
  norm2 = (features.encode_array(cfg, worst).astype(np.int64) ** 2).sum()
  assert 1.5 * norm2 < 2**23
  assert m == 127 or kind == "none"


def test_zero_and_huge_encodings_have_finite_codes():
  e = np.zeros((3, 5), np.float32)
  e[1] = 9e29
  e[2, 0] = 1e-30
  for kind in ("l2", "sqrt"):
    codes = features.encode_array(MAPS[kind], e)
    assert not codes[0].any()
    assert (codes[1] == codes[1, 0]).all()
    assert codes[1, 0] > 0
    assert codes[2].tolist() == [127, 0, 0, 0, 0]


def test_the_map_none_asks_for_a_range_that_is_not_a_statistic_of_the_data():
  with pytest.raises(errors.ConfigError, match="feature_range"):
    lego.LegoConfig(num_classes=2, feature_map="none")


def test_an_l2_range_holds_all_components_of_ordinary_unit_vectors():
  assert features.feature_range(MAPS["l2"], 512) == pytest.approx(16 / math.sqrt(512))
  assert features.feature_range(MAPS["l2"], 100) == 1.0
