"""The digest covers everything that determines predictions and future requests."""

import dataclasses
import importlib.metadata

from conftest import CONFIG
import jax
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax.core.config import fingerprint
from legonet_jax.host.state import from_arrays, to_arrays

LEAVES = ["keys", "weights", "live", "anchors", "ids", "routes", "prints"]


def flip(leaf):
  """The array with the lowest bit of its first byte flipped."""
  raw = bytearray(np.asarray(leaf).tobytes())
  raw[0] ^= 1
  return np.frombuffer(bytes(raw), leaf.dtype).reshape(leaf.shape)


def test_the_arrays_of_a_state_are_all_that_it_is(state):
  arrays = to_arrays(state)
  assert set(arrays) == {*LEAVES, "settings"}
  again = from_arrays(arrays, CONFIG)
  assert lego.digest(again) == lego.digest(state)
  np.testing.assert_array_equal(again.sizes, state.sizes)


@pytest.mark.parametrize("name", LEAVES)
def test_one_flipped_bit_anywhere_changes_the_digest(state, name):
  arrays = to_arrays(state)
  arrays[name] = flip(arrays[name])
  assert lego.digest(from_arrays(arrays, CONFIG)) != lego.digest(state)


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(CONFIG)])
def test_every_setting_changes_the_digest(state, field):
  others = {
    "num_classes": 4, "num_adapters": 9, "top_k": 3, "seed": 4, "key_policy": "keep",
    "key_noise": 0.5, "feature_map": "sqrt", "feature_range": 0.5, "encoder": "x",
    "aggregate": "logits", "solver": lego.Sgd(),
  }  # fmt: skip
  other = dataclasses.replace(CONFIG, **{field: others[field]})
  assert np.array_equal(state.settings, fingerprint(CONFIG))
  moved = dataclasses.replace(state, cfg=other)
  assert lego.digest(moved) != lego.digest(state)


def test_the_digest_is_a_sha256_and_the_same_every_time(state):
  assert lego.digest(state) == lego.digest(state)
  assert len(bytes.fromhex(lego.digest(state))) == 32


def test_the_environment_names_what_the_bits_depend_on():
  got = lego.environment()
  assert got["jaxlib"] == importlib.metadata.version("jaxlib")
  assert got["platform"] == jax.default_backend()
  assert int(got["cpu_threads"]) >= 1
  assert {"jax", "optax", "numpy", "device", "processor", "xla_flags"} <= set(got)
