"""Distances and the k nearest keys."""

import chex
from conftest import CONFIG
from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legonet_jax.core import routing


def random_codes(rng, count, dim, high=127):
  return rng.integers(-high, high + 1, (count, dim)).astype(np.int8)


def oracle(codes, keys, k):
  """The k nearest by exact integer distance, ties to the lower index."""
  c, K = codes.astype(np.int64), keys.astype(np.int64)
  distance2 = ((c[:, None, :] - K[None, :, :]) ** 2).sum(-1)
  return np.argsort(distance2, axis=1, kind="stable")[:, :k]


class RouteTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_routes_are_the_nearest_keys_of_an_integer_oracle(self):
    rng = np.random.default_rng(0)
    for dim, n, k in ((512, 100, 10), (300, 37, 5), (3, 9, 9)):
      codes, keys = random_codes(rng, 64, dim, 100), random_codes(rng, n, dim, 100)
      route = self.variant(routing.route, static_argnums=2)
      got = route(jnp.asarray(codes), jnp.asarray(keys), k)
      np.testing.assert_array_equal(got, oracle(codes, keys, k))

  @chex.variants(with_jit=True, without_jit=True)
  def test_scores_rank_like_float64_distances(self):
    # Guards against jax 0.10.2, which computes wrong sums of squares on CPU.
    rng = np.random.default_rng(1)
    codes, keys = random_codes(rng, 32, 512), random_codes(rng, 64, 512)
    s = np.asarray(self.variant(routing.scores)(jnp.asarray(codes), jnp.asarray(keys)))
    c, K = codes.astype(np.float64), keys.astype(np.float64)
    distance2 = ((c[:, None] - K[None]) ** 2).sum(-1)
    np.testing.assert_array_equal((c**2).sum(1)[:, None] - 2.0 * s, distance2)

  @chex.variants(with_jit=True, without_jit=True)
  def test_sums_of_squares_of_many_rows_equal_a_float64_oracle(self):
    # The very expression and size that jax 0.10.2 gets wrong (jax-ml/jax 39103).
    rows = np.zeros((32_769, 3), np.float32)
    rows[:, 0] = np.arange(32_769)
    f = self.variant(
      lambda rows: jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))(rows)
    )
    want = (rows.astype(np.float64) ** 2).sum(axis=1)
    np.testing.assert_allclose(f(jnp.asarray(rows)), want, rtol=1e-6)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_ties_go_to_the_lower_index(seed):
  rng = np.random.default_rng(seed)
  keys = random_codes(rng, 12, 4, high=1)  # few distinct values: ties everywhere
  codes = random_codes(rng, 20, 4, high=1)
  got = routing.route(jnp.asarray(codes), jnp.asarray(keys), 6)
  np.testing.assert_array_equal(got, oracle(codes, keys, 6))


def test_a_sample_is_routed_alike_in_every_batch_and_place():
  rng = np.random.default_rng(4)
  codes, keys = random_codes(rng, 1500, 64, 100), random_codes(rng, 8, 64, 100)
  route = jax.jit(routing.route, static_argnums=2)
  whole = np.asarray(route(codes, keys, 2))
  order = rng.permutation(1500)
  np.testing.assert_array_equal(route(codes[order], keys, 2), whole[order])
  for rows in (slice(0, 1), slice(1000, 1100), slice(1499, 1500)):
    np.testing.assert_array_equal(route(codes[rows], keys, 2), whole[rows])
  vmapped = jax.vmap(lambda c: routing.route(c, jnp.asarray(keys), 2))
  np.testing.assert_array_equal(vmapped(jnp.asarray(codes[:50])), whole[:50])


@pytest.mark.parametrize("count", [1, 1024, 2500])
def test_rows_are_routed_in_blocks_of_scores_and_only_where_needed(count):
  rng = np.random.default_rng(count)
  codes, keys = random_codes(rng, count, 9), random_codes(rng, 8, 9)
  present, need = rng.random(8) < 0.8, rng.random(count) < 0.7
  old = rng.integers(0, 8, (count, CONFIG.top_k)).astype(np.int32)
  route = jax.jit(routing.route_rows, static_argnums=0)
  args = (CONFIG, codes, keys, present, need, old)
  among = np.flatnonzero(present)
  want = among[oracle(codes, keys[among], CONFIG.top_k)]
  np.testing.assert_array_equal(route(*args), np.where(need[:, None], want, old))
  assert f"f32[{routing.LARGEST_BLOCK},8]" in str(route.trace(*args).jaxpr)


def test_scores_ask_for_full_precision_where_the_default_would_round():
  jaxpr = str(jax.make_jaxpr(routing.scores)(np.ones((2, 4)), np.ones((3, 4))))
  assert "HIGHEST" in jaxpr


@pytest.mark.parametrize("k", [1, 3, 8])
def test_a_gpu_breaks_ties_as_the_host_does(monkeypatch, k):
  """`top_k` promises no order of ties there, so scores are sorted with indices."""
  s = np.random.default_rng(0).integers(-2, 3, (50, 8)).astype(np.float32)
  s[3:9, 2] = -np.inf
  here = np.asarray(routing.take_nearest(jnp.asarray(s), k))
  np.testing.assert_array_equal(here, np.argsort(-s, axis=1, kind="stable")[:, :k])

  def elsewhere(*args, default, **_):
    return default(*args)

  monkeypatch.setattr(jax.lax, "platform_dependent", elsewhere)
  np.testing.assert_array_equal(routing.take_nearest(jnp.asarray(s), k), here)


def test_a_gpu_sorts_and_other_devices_select():
  def lowered(platform):
    route = jax.jit(lambda s: routing.take_nearest(s, 3))
    text = jax.export.export(route, platforms=[platform])(np.zeros((4, 9), np.float32))
    return text.mlir_module()

  assert "top_k" in lowered("cpu")
  assert "stablehlo.sort" in lowered("cuda")
  assert "top_k" not in lowered("cuda")
