"""Every form of a convolution is the same convolution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legonet_jax.encoder import conv, winograd


def _oracle(x, kernel, stride, padding):
  """Sums of products in float64, tap by tap."""
  x = np.pad(x.astype(np.float64), ((0, 0), (padding,) * 2, (padding,) * 2, (0, 0)))
  size = kernel.shape[0]
  high = (x.shape[1] - size) // stride + 1
  wide = (x.shape[2] - size) // stride + 1
  y = np.zeros((x.shape[0], high, wide, kernel.shape[3]))
  for i in range(size):
    for j in range(size):
      taps = x[:, i : i + stride * (high - 1) + 1 : stride]
      taps = taps[:, :, j : j + stride * (wide - 1) + 1 : stride]
      y += taps @ kernel[i, j].astype(np.float64)
  return y


def _inputs(batch, height, width, channels, size, features=5):
  rng = np.random.default_rng(height * width + size)
  x = rng.standard_normal((batch, height, width, channels)).astype(np.float32)
  kernel = rng.standard_normal((size, size, channels, features)).astype(np.float32)
  return x, kernel


def _winograd(x, kernel, m):
  # A new function each time: `jit` would not notice a changed constant of the module.
  return jax.jit(
    lambda x, kernel: winograd.conv3x3(x, winograd.transform_kernel(kernel, m))
  )(x, kernel)


def _error(y, oracle):
  return np.abs(np.asarray(y) - oracle).max() / np.abs(oracle).max()


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
  ("height", "width", "size", "stride"),
  [
    (1, 1, 3, 1), (2, 2, 3, 1), (4, 4, 3, 1), (7, 7, 3, 1), (5, 9, 3, 1), (1, 6, 3, 1),
    (8, 8, 3, 2),
    (7, 5, 3, 2), (1, 1, 3, 2), (30, 30, 3, 2), (9, 6, 1, 2), (6, 6, 1, 1),
    (17, 16, 7, 2),
  ],
)  # fmt: skip
def test_every_shape_gets_the_convolution_of_the_oracle(
  height, width, size, stride, train
):
  x, kernel = _inputs(3, height, width, 4, size)
  padding = size // 2
  f = jax.jit(conv.conv2d, static_argnums=(2, 3, 4))
  y = f(x, kernel, stride, padding, train)
  oracle = _oracle(x, kernel, stride, padding)
  assert y.shape == oracle.shape
  assert _error(y, oracle) < 1e-5


def test_jit_is_not_needed():
  x, kernel = _inputs(2, 2, 2, 3, 3)
  assert _error(conv.conv2d(x, kernel, 1, 1), _oracle(x, kernel, 1, 1)) < 1e-5


@pytest.mark.parametrize("m", [2, 4])
def test_winograd_tiles_that_overhang_the_map_leave_no_trace(m):
  x, kernel = _inputs(2, 6, 7, 3, 3)
  y = _winograd(x, kernel, m)
  assert _error(y, _oracle(x, kernel, 1, 1)) < 1e-5


def test_a_batch_in_pieces_equals_the_batch_at_once(monkeypatch):
  x, kernel = _inputs(6, 8, 8, 4, 3)
  whole = _winograd(x, kernel, 4)
  monkeypatch.setattr(winograd, "_PIECE_BYTES", 2 * 36 * 4 * 5 * 4)  # two images
  pieces = _winograd(x, kernel, 4)
  np.testing.assert_allclose(pieces, whole, rtol=1e-5, atol=1e-5)


def test_winograd_in_float32_loses_no_more_than_a_few_roundings():
  """256 channels, the widest maps that use it: relative error of the worst output."""
  rng = np.random.default_rng(0)
  x = np.maximum(rng.standard_normal((1, 14, 14, 256)), 0).astype(np.float32)
  kernel = (rng.standard_normal((3, 3, 256, 16)) / 48).astype(np.float32)
  y = _winograd(x, kernel, 4)
  assert _error(y, _oracle(x, kernel, 1, 1)) < 1e-5


def test_gradients_are_those_of_the_oracle():
  x, kernel = _inputs(2, 4, 4, 3, 3)
  direction = np.random.default_rng(5).standard_normal(kernel.shape)

  def loss(k):
    return jnp.sum(conv.conv2d(x, k, 1, 1, True) ** 2)

  slope = np.vdot(np.asarray(jax.grad(loss)(jnp.asarray(kernel))), direction)
  step = 1e-6
  up = (_oracle(x, kernel + step * direction, 1, 1) ** 2).sum()
  down = (_oracle(x, kernel - step * direction, 1, 1) ** 2).sum()
  assert slope == pytest.approx((up - down) / (2 * step), rel=1e-4)
