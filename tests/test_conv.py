"""Every form of a convolution is the same convolution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legonet_jax.encoder.conv import forms, winograd


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
  f = jax.jit(forms.conv2d, static_argnums=(2, 3, 4))
  y = f(x, kernel, stride, padding, train)
  oracle = _oracle(x, kernel, stride, padding)
  assert y.shape == oracle.shape
  assert _error(y, oracle) < 1e-5


def test_jit_is_not_needed():
  x, kernel = _inputs(2, 2, 2, 3, 3)
  assert _error(forms.conv2d(x, kernel, 1, 1), _oracle(x, kernel, 1, 1)) < 1e-5


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
    return jnp.sum(forms.conv2d(x, k, 1, 1, True) ** 2)

  slope = np.vdot(np.asarray(jax.grad(loss)(jnp.asarray(kernel))), direction)
  step = 1e-6
  up = (_oracle(x, kernel + step * direction, 1, 1) ** 2).sum()
  down = (_oracle(x, kernel - step * direction, 1, 1) ** 2).sum()
  assert slope == pytest.approx((up - down) / (2 * step), rel=1e-4)


def _pull(f, x, kernel, delta):
  """f(x, kernel), and both gradients of Σ delta · f."""
  # In float64 all tolerances are wide, so the quickest way to compile will do.
  quick = {"xla_backend_optimization_level": 0} if x.dtype == np.float64 else None

  def run(x, kernel, delta):
    y, back = jax.vjp(f, x, kernel)
    return y, *back(delta)

  return jax.jit(run, compiler_options=quick)(x, kernel, delta)


def _compare(f, height, width, size, stride, dtype, channels=3):
  """The largest relative errors of f and its gradients against XLA's in float64."""
  padding = size // 2
  x, kernel = _inputs(3, height, width, channels, size)
  shape = (3, (height - 1) // stride + 1, (width - 1) // stride + 1, 5)
  delta = np.random.default_rng(9).standard_normal(shape)
  with jax.enable_x64(True):
    wide = [np.asarray(a, np.float64) for a in (x, kernel, delta)]
    truth = _pull(lambda x, k: forms.lax_conv(x, k, stride, padding), *wide)
    found = _pull(f, *(np.asarray(a, dtype) for a in (x, kernel, delta)))
  assert {a.dtype.name for a in found} == {dtype}
  assert [a.shape for a in found] == [a.shape for a in truth]
  return [_error(a, np.asarray(b)) for a, b in zip(found, truth, strict=True)]


MAPS = [
  (2, 2), (3, 3), (4, 4), (5, 5), (7, 7), (8, 8), (16, 16), (5, 9), (1, 6),
]  # fmt: skip


@pytest.mark.parametrize(("height", "width"), MAPS)
def test_tuned_winograd_and_both_gradients_are_exact_in_float64(height, width):
  found = _compare(winograd.tuned_conv3x3, height, width, 3, 1, "float64")
  assert max(found) < 1e-13


@pytest.mark.parametrize(("height", "width"), [(4, 4), (7, 9)])
def test_tuned_winograd_in_float32_loses_no_more_than_a_few_roundings(height, width):
  found = _compare(winograd.tuned_conv3x3, height, width, 3, 1, "float32", channels=64)
  assert max(found) < 1e-5


@pytest.mark.parametrize(("height", "width"), [(29, 29), (32, 30)])
def test_tuned_strided_convolution_has_the_gradients_of_xla(height, width):
  def tuned(x, kernel):
    return forms._tuned_conv(x, kernel, 2, 3)

  assert max(_compare(tuned, height, width, 7, 2, "float64")) < 1e-13


def test_training_uses_the_tuned_forms_on_a_cpu(monkeypatch):
  used = []
  monkeypatch.setattr(
    winograd, "tuned_conv3x3", lambda x, kernel: used.append("winograd")
  )
  monkeypatch.setattr(forms, "_tuned_conv", lambda *args: used.append("strided"))
  forms.cpu_conv(*_inputs(1, 6, 6, 3, 3), 1, 1, train=True)
  forms.cpu_conv(*_inputs(1, 32, 32, 3, 7), 2, 3, train=True)
  assert used == ["winograd", "strided"]


def test_gradients_of_a_batch_in_pieces_equal_those_at_once(monkeypatch):
  x, kernel = (a.astype(np.float64) for a in _inputs(6, 8, 7, 4, 3))
  delta = np.random.default_rng(9).standard_normal((6, 8, 7, 5))
  pieces, scan = [], jax.lax.scan

  def watched(f, init, xs):
    pieces.append(xs[0].shape[:2])
    return scan(f, init, xs)

  monkeypatch.setattr(jax.lax, "scan", watched)
  with jax.enable_x64(True):
    whole = _pull(lambda *a: winograd.tuned_conv3x3(*a), x, kernel, delta)
    monkeypatch.setattr(winograd, "_PIECE_BYTES", 2 * 36 * 4 * 5 * 8)  # two images
    parts = _pull(lambda *a: winograd.tuned_conv3x3(*a), x, kernel, delta)
  assert pieces == [(1, 6), (3, 2)]
  for a, b in zip(parts, whole, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
