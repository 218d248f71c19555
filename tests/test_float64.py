"""Float64 inside jit is taken if a known answer comes out right, and limbs if not."""

import functools

from functional_world import assert_same, make, mask_of
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax import functional
from legonet_jax.runtime import flags


@pytest.fixture
def probe(monkeypatch):
  """Asks again, with another form of the question."""

  def ask(change):
    real = flags.probe_float64
    monkeypatch.setattr(flags, "probe_float64", functools.partial(change, real))
    flags.float64_works.cache_clear()
    return flags.float64_works()

  yield ask
  monkeypatch.undo()
  flags.float64_works.cache_clear()
  jax.clear_caches()


def as_float32(real, a, b):
  product = a.astype(jnp.float32) * b.astype(jnp.float32)
  high = jnp.floor(product * 2.0**-20)
  low = product - high * 2.0**20
  return high.astype(jnp.int32), low.astype(jnp.int32), real(a, b)[2]


def no_factor(real, a, b):
  high, low, _ = real(a, b)
  return high, low, jnp.zeros_like(b)


def test_this_release_keeps_float64_inside_jit_and_vmap(probe):
  assert probe(lambda real, a, b: real(a, b))


@pytest.mark.parametrize("change", [as_float32, no_factor])
def test_a_release_that_loses_float64_is_found_by_result(probe, change):
  assert not probe(change)


def test_without_float64_states_and_classes_are_the_same(probe):
  cfg, samples, data, empty = make("ridge")
  mask = mask_of(data, np.arange(50))
  want, _ = functional.update(data, empty, mask)
  host, _ = lego.fit(cfg, samples)
  classes = lego.classify(host, samples.codes)
  jax.clear_caches()
  assert not probe(as_float32)
  text = jax.jit(functional.update).lower(data, empty, mask).as_text()
  assert "f64" not in text
  assert_same(functional.update(data, empty, mask)[0], want)
  assert lego.digest(lego.fit(cfg, samples)[0]) == lego.digest(host)
  np.testing.assert_array_equal(lego.classify(host, samples.codes), classes)
