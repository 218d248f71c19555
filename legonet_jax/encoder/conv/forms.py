"""One convolution, in the form that is fastest on the device that runs it.

On a GPU or TPU that is `lax.conv`. XLA's convolution on a CPU is slow on small maps (a
3×3 on 2×2×512 runs at a hundredth of the speed of the same arithmetic as matrix
products), so there the form follows from the shape:

    1×1                  one matrix product
    3×3, stride 1        Winograd: fewer products, all of them large (except when
                         training on 2×2 maps: transforming the kernel costs more)
    k×k on a small map   im2col: patches side by side, one matrix product
    anything else        `lax.conv`

In training the gradients have forms of their own, because jax's gradient of a Winograd
transform and XLA's gradient of a strided kernel are several times slower. All forms
give the same numbers up to float32 rounding (tests/test_conv.py).
"""

import functools

import jax
import jax.numpy as jnp

from legonet_jax.encoder.conv import winograd

# Up to this input size im2col is faster than XLA's convolution.
_SMALL_STRIDED = 28
_SMALL = 8


def conv2d(
  x: jax.Array,
  kernel: jax.Array,
  stride: int = 1,
  padding: int = 0,
  train: bool = False,
) -> jax.Array:
  """A 2-D convolution without bias, padded equally with zeros on all sides.

  Args:
    x: [B, H, W, I].
    kernel: [k, k, I, O].
    stride: of both axes.
    padding: zeros on each side, as in PyTorch.
    train: whether to choose forms with fast gradients; gradients work either way.

  Returns:
    [B, H', W', O] with H' = (H + 2 padding - k) // stride + 1.
  """
  y: jax.Array = jax.lax.platform_dependent(
    x,
    kernel,
    cpu=lambda x, kernel: cpu_conv(x, kernel, stride, padding, train),
    default=lambda x, kernel: lax_conv(x, kernel, stride, padding),
  )
  return y


def cpu_conv(
  x: jax.Array, kernel: jax.Array, stride: int, padding: int, train: bool = False
) -> jax.Array:
  """`conv2d` in the form that suits a CPU."""
  size, longest = kernel.shape[0], max(x.shape[1:3])
  if (size, padding) == (1, 0):
    return x[:, ::stride, ::stride] @ kernel[0, 0]
  if (size, stride, padding) == (3, 1, 1) and not (train and longest == 2):
    if longest == 1:  # the other taps see only padding
      return x @ kernel[1, 1]
    if train:
      return winograd.tuned_conv3x3(x, kernel)
    m = winograd.tile_size(longest)
    return winograd.conv3x3(x, winograd.transform_kernel(kernel, m))
  if longest <= (_SMALL_STRIDED if stride > 1 else _SMALL):
    return im2col(x, kernel, stride, padding)
  if train and stride > 1:
    return _tuned_conv(x, kernel, stride, padding)
  return lax_conv(x, kernel, stride, padding)


def im2col(x: jax.Array, kernel: jax.Array, stride: int, padding: int) -> jax.Array:
  """`conv2d` as one product of all patches with the kernel."""
  size, _, channels, features = kernel.shape
  batch, height, width, _ = x.shape
  high = (height + 2 * padding - size) // stride + 1
  wide = (width + 2 * padding - size) // stride + 1
  x = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
  patches = [
    x[
      :,
      i : i + stride * (high - 1) + 1 : stride,
      j : j + stride * (wide - 1) + 1 : stride,
    ]
    for i in range(size)
    for j in range(size)
  ]
  columns = jnp.concatenate(patches, axis=-1).reshape(-1, size * size * channels)
  return (columns @ kernel.reshape(-1, features)).reshape(batch, high, wide, features)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _tuned_conv(
  x: jax.Array, kernel: jax.Array, stride: int, padding: int
) -> jax.Array:
  """`lax_conv` whose kernel gradient comes from patches: a third of XLA's time."""
  return lax_conv(x, kernel, stride, padding)


def _tuned_forward(
  x: jax.Array, kernel: jax.Array, stride: int, padding: int
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
  return lax_conv(x, kernel, stride, padding), (x, kernel)


def _tuned_backward(
  stride: int, padding: int, saved: tuple[jax.Array, jax.Array], delta: jax.Array
) -> tuple[jax.Array, jax.Array]:
  x, kernel = saved
  (of_x,) = jax.vjp(lambda x: lax_conv(x, kernel, stride, padding), x)[1](delta)
  (of_kernel,) = jax.vjp(lambda w: im2col(x, w, stride, padding), kernel)[1](delta)
  return of_x, of_kernel


_tuned_conv.defvjp(_tuned_forward, _tuned_backward)


def lax_conv(x: jax.Array, kernel: jax.Array, stride: int, padding: int) -> jax.Array:
  """`conv2d` as XLA's own convolution."""
  return jax.lax.conv_general_dilated(
    x,
    kernel,
    window_strides=(stride, stride),
    padding=((padding, padding), (padding, padding)),
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
  )
