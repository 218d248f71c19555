"""Images to encodings to probabilities, the same in any run."""

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import legonet_jax
from legonet_jax import data, errors
from legonet_jax.core.config import for_prediction
from legonet_jax.encoder import encode as encode_lib, resnet

IMAGES = np.random.default_rng(0).integers(0, 256, (11, 6, 6, 3), np.uint8)


def _dataset():
  return data.make_dataset(
    "x", IMAGES, np.arange(11), np.arange(11), np.zeros(11, np.uint8)
  )


def _project(params, images):
  """A tiny encoder of one's own."""
  return jnp.tanh(images.reshape(len(images), -1).astype(jnp.float32) / 255 @ params)


PARAMS = np.random.default_rng(1).standard_normal((108, 16)).astype(np.float32)


def _bilinear(image, size):
  """Half-pixel centres, edges repeated, in float64."""
  height = image.shape[0]
  at = np.clip((np.arange(size) + 0.5) * height / size - 0.5, 0, height - 1)
  low = np.floor(at).astype(int)
  high, part = np.minimum(low + 1, height - 1), at - low
  image = image.astype(np.float64)
  image = image[low] * (1 - part)[:, None, None] + image[high] * part[:, None, None]
  columns = image[:, low] * (1 - part)[:, None] + image[:, high] * part[:, None]
  return (columns / 255 - encode_lib.MEAN) / encode_lib.STD


@pytest.mark.parametrize("size", [6, 15, 42])
def test_images_are_resized_and_normalised_as_the_oracle_does(size):
  ours = jax.jit(encode_lib.preprocess, static_argnums=1)(IMAGES, size)
  oracle = np.stack([_bilinear(image, size) for image in IMAGES])
  np.testing.assert_allclose(ours, oracle, atol=2e-5)


def test_all_batches_have_one_shape_and_padding_leaves_no_trace():
  shapes = []

  def encode(params, images):
    shapes.append(images.shape)  # at trace time: once per shape
    return _project(params, images)

  parts = list(encode_lib.encode_batches(encode, PARAMS, _dataset(), 4))
  assert shapes == [(4, 6, 6, 3)]
  assert [len(p) for p in parts] == [4, 4, 3]
  oracle = np.tanh(IMAGES.reshape(11, -1) / 255 @ PARAMS.astype(np.float64))
  np.testing.assert_allclose(np.concatenate(parts), oracle, atol=1e-5)


def test_starting_later_gives_the_same_bits():
  whole = list(encode_lib.encode_batches(_project, PARAMS, _dataset(), 4))
  rest = list(encode_lib.encode_batches(_project, PARAMS, _dataset(), 4, start=8))
  np.testing.assert_array_equal(rest[0], whole[2])
  with pytest.raises(errors.StoreError, match="start of a batch"):
    next(encode_lib.encode_batches(_project, PARAMS, _dataset(), 4, start=3))


def test_several_devices_share_a_batch():
  """In a process of its own, because the number of devices is fixed at the start."""
  script = """
import sys; sys.path.insert(0, sys.argv[1])
import jax, numpy as np, test_encode as t
assert len(jax.devices()) == 2
from legonet_jax.encoder import encode as e
two = np.concatenate(list(e.encode_batches(t._project, t.PARAMS, t._dataset(), 4)))
one = np.concatenate(list(e.encode_batches(
  t._project, t.PARAMS, t._dataset(), 4, devices=jax.devices()[:1])))
np.testing.assert_allclose(two, one, atol=1e-6)
try:
  next(e.encode_batches(t._project, t.PARAMS, t._dataset(), 3))
except t.errors.ConfigError:
  print("shared")
"""
  flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
  result = subprocess.run(
    [sys.executable, "-c", script, os.path.dirname(__file__)],
    env=os.environ | flags, capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert result.stdout.strip() == "shared", result.stderr


def test_predict_after_encode_is_one_jitted_function():
  cfg = legonet_jax.LegoConfig(num_adapters=4, top_k=2, num_classes=3)
  rng = np.random.default_rng(2)
  model = legonet_jax.Model(
    for_prediction(cfg),
    jnp.asarray(rng.integers(-20, 20, (4, 16)), jnp.int8),
    jnp.asarray(rng.standard_normal((4, 3, 16)), jnp.float32),
    jnp.ones(4, bool),
  )
  run = jax.jit(functools.partial(legonet_jax.predict_images, _project))
  together = run(PARAMS, model, IMAGES)
  apart = legonet_jax.predict(model, _project(PARAMS, IMAGES))
  assert together.shape == (11, 3)
  np.testing.assert_allclose(together, apart, atol=1e-6)
  np.testing.assert_allclose(np.sum(together, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
  "spec",
  [
    encode_lib.ImageEncoder("vgg"),
    encode_lib.ImageEncoder(size=8),
    encode_lib.ImageEncoder(compute="int8"),
  ],
)
def test_an_impossible_encoder_is_refused(spec):
  with pytest.raises(errors.ConfigError):
    encode_lib.check(spec)


def matmuls_of(jaxpr):
  """The precision of every product in a program, also in those inside of it."""
  for eqn in jaxpr.eqns:
    if eqn.primitive.name in ("dot_general", "conv_general_dilated"):
      yield eqn.params["precision"]
    for value in eqn.params.values():
      for inner in value if isinstance(value, (tuple, list)) else (value,):
        inner = getattr(inner, "jaxpr", inner)
        if hasattr(inner, "eqns"):
          yield from matmuls_of(inner)


def test_the_encoder_computes_in_full_precision_whatever_the_callers_flags():
  spec = encode_lib.ImageEncoder("resnet18", 32)
  net = resnet.build_resnet("resnet18")
  shapes = jax.eval_shape(lambda: resnet.init(net, jax.random.key(0)))
  params = jax.eval_shape(lambda v: encode_lib.prepare(spec, v), shapes)
  images = jax.ShapeDtypeStruct((2, 32, 32, 3), np.uint8)
  with jax.default_matmul_precision("bfloat16"):
    program = jax.make_jaxpr(lambda p, x: encode_lib.encode_images(spec, p, x))(
      params, images
    )
  found = list(matmuls_of(program.jaxpr))
  assert len(found) > 17
  highest = jax.lax.Precision.HIGHEST
  assert set(found) <= {highest, (highest, highest)}


def test_batches_are_encoded_under_pinned_flags():
  dataset = _dataset()

  def encode_in_float(params, images):
    x = images.reshape(len(images), -1).astype(float)  # float64 where x64 is on
    return x @ params

  params = np.ones((dataset.read(0, 1).size, 3), np.float32)
  plain = np.concatenate(
    list(encode_lib.encode_batches(encode_in_float, params, dataset, 4))
  )
  with jax.enable_x64(True):
    other = list(encode_lib.encode_batches(encode_in_float, params, dataset, 4))
  assert {part.dtype for part in other} == {np.dtype(np.float32)}
  np.testing.assert_array_equal(np.concatenate(other), plain)
