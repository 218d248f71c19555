r"""3×3 convolutions as a few large matrix products (Winograd's minimal filtering).

An m×m tile of the output needs (m+2)² products instead of 9 m²:

    Y = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A

where d is an (m+2)×(m+2) tile of the input and g the kernel. Summed over channels, ⊙
becomes (m+2)² matrix products over all tiles at once, which is what a CPU is best at.

The matrices follow from m+1 interpolation points (and infinity): with V_k the rows
1, p, ..., p^{k-1}, A = V_m, G = V_3, Bᵀ = V_{m+2}^{-T}. The points decide the rounding
error. 0, ±3/4, ±3/2 measured 1.2e-6 (rms, relative, 256 channels) against 2.4e-6 of the
textbook's 0, ±1, ±2.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

_POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.75, -0.75, 1.5, -1.5)}
# A batch is cut into pieces, so that a piece's transformed tiles about fit the cache.
_PIECE_BYTES = 8 << 20


class _Matrices(NamedTuple):
  a_t: NDArray[np.float64]  # Aᵀ [m, m + 2]
  g: NDArray[np.float64]  # G [m + 2, 3]
  b_t: NDArray[np.float64]  # Bᵀ [m + 2, m + 2]


def matrices(m: int) -> _Matrices:
  """Aᵀ, G and Bᵀ of F(m×m, 3×3), m = 2 or 4."""

  def vandermonde(width: int) -> NDArray[np.float64]:
    rows = [[p**i for i in range(width)] for p in _POINTS[m]]
    return np.asarray([*rows, [0.0] * (width - 1) + [1.0]])

  b_t = np.linalg.inv(vandermonde(m + 2)).T
  b_t[np.abs(b_t) < 1e-12] = 0
  # Any factor can move between rows of Bᵀ and G; this one keeps the tiles small.
  scale = np.abs(b_t).max(axis=1, keepdims=True)
  return _Matrices(vandermonde(m).T, vandermonde(3) * scale, b_t / scale)


def transform_kernel(kernel: jax.Array, m: int) -> jax.Array:
  """G g Gᵀ [(m+2)², I, O] of a kernel g [3, 3, I, O], column by column."""
  g = matrices(m).g
  u = _mix(g, list(_mix(g, list(kernel)).swapaxes(0, 1)))
  return u.reshape((m + 2) ** 2, *kernel.shape[2:])


def tile_size(longest: int) -> int:
  """The m for a map of this height or width, chosen so that tiles overhang little."""
  return 4 if longest > 2 else 2


def conv3x3(x: jax.Array, u: jax.Array) -> jax.Array:
  """A 3×3 convolution with stride 1 and padding 1.

  Args:
    x: [B, H, W, I].
    u: [(m+2)², I, O], a kernel as `transform_kernel` returns it.

  Returns:
    [B, H, W, O].
  """
  batch, height, width, _ = x.shape
  m = {16: 2, 36: 4}[u.shape[0]]
  tiles = -(-height // m) * -(-width // m)
  size = (m + 2) ** 2 * tiles * max(u.shape[1:]) * x.dtype.itemsize
  piece = _largest_divisor(batch, max(1, _PIECE_BYTES // size))
  if piece == batch:
    return _tiles(x, u, m)
  pieces = x.reshape(batch // piece, piece, *x.shape[1:])
  y: jax.Array = jax.lax.map(lambda part: _tiles(part, u, m), pieces)
  return y.reshape(batch, height, width, u.shape[2])


@jax.custom_vjp
def tuned_conv3x3(x: jax.Array, kernel: jax.Array) -> jax.Array:
  """`conv3x3` of a plain kernel [3, 3, I, O], with both gradients in Winograd's form.

  By default jax differentiates through the tiles, which is slow to compile and to run.
  The gradient of x is a convolution with the rotated kernel; the kernel's gradient is
  Gᵀ [ Σ (Bᵀ d B) ⊙ (A δ Aᵀ) ] G, where matrix products again sum over all tiles.
  """
  return conv3x3(x, transform_kernel(kernel, tile_size(max(x.shape[1:3]))))


def _tuned_forward(
  x: jax.Array, kernel: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
  return tuned_conv3x3(x, kernel), (x, kernel)


def _tuned_backward(
  saved: tuple[jax.Array, jax.Array], delta: jax.Array
) -> tuple[jax.Array, jax.Array]:
  x, kernel = saved
  turned = kernel[::-1, ::-1].swapaxes(2, 3)
  return tuned_conv3x3(delta, turned), kernel_gradient(x, delta)


tuned_conv3x3.defvjp(_tuned_forward, _tuned_backward)


def kernel_gradient(x: jax.Array, delta: jax.Array) -> jax.Array:
  """d loss / d kernel [3, 3, I, O] of a 3×3 convolution, stride 1, padding 1.

  Args:
    x: [B, H, W, I], the input.
    delta: [B, H, W, O], d loss / d output.
  """
  m = tile_size(max(x.shape[1:3]))
  batch, height, width, channels = x.shape
  size = (m + 2) ** 2 * max(channels, delta.shape[3]) * x.dtype.itemsize
  tiles = -(-height // m) * -(-width // m)
  piece = _largest_divisor(batch, max(1, _PIECE_BYTES // (size * tiles)))

  def one(
    total: jax.Array, parts: tuple[jax.Array, jax.Array]
  ) -> tuple[jax.Array, None]:
    v, q = _input_tiles(parts[0], m), _output_tiles(parts[1], m)
    return total + jnp.einsum("tnc,tno->tco", v, q), None

  start = jnp.zeros(((m + 2) ** 2, channels, delta.shape[3]), x.dtype)
  cut = [a.reshape(batch // piece, piece, *a.shape[1:]) for a in (x, delta)]
  u, _ = jax.lax.scan(one, start, (cut[0], cut[1]))
  g_t = matrices(m).g.T
  u = u.reshape(m + 2, m + 2, *u.shape[1:])
  return _mix(g_t, list(_mix(g_t, list(u)).swapaxes(0, 1)))


def _output_tiles(delta: jax.Array, m: int) -> jax.Array:
  """A δ Aᵀ [(m+2)², tiles, O] of δ [B, H, W, O]."""
  a = matrices(m).a_t.T
  down, across = -(-delta.shape[1] // m), -(-delta.shape[2] // m)
  edge = ((0, down * m - delta.shape[1]), (0, across * m - delta.shape[2]))
  delta = jnp.pad(delta, ((0, 0), *edge, (0, 0)))
  q = _mix(a, [delta[:, i::m] for i in range(m)])
  q = _mix(a, [q[:, :, :, j::m] for j in range(m)])  # columns first, as `_input_tiles`
  return q.reshape((m + 2) ** 2, -1, delta.shape[3])


def _input_tiles(x: jax.Array, m: int) -> jax.Array:
  """Bᵀ d B [(m+2)², tiles, I] of x [B, H, W, I]."""
  b_t = matrices(m).b_t
  down, across = -(-x.shape[1] // m), -(-x.shape[2] // m)
  edge = ((1, down * m - x.shape[1] + 1), (1, across * m - x.shape[2] + 1))
  x = jnp.pad(x, ((0, 0), *edge, (0, 0)))
  # One axis at a time, stacked in between: fusing both takes three times as long to
  # compile and runs no faster.
  v = _mix(b_t, [x[:, i : i + down * m : m] for i in range(m + 2)])
  v = _mix(b_t, [v[:, :, :, j : j + across * m : m] for j in range(m + 2)])
  return v.reshape((m + 2) ** 2, -1, x.shape[3])


def _tiles(x: jax.Array, u: jax.Array, m: int) -> jax.Array:
  a_t = matrices(m).a_t
  batch, height, width, _ = x.shape
  down, across = -(-height // m), -(-width // m)
  q = jnp.einsum("tnc,tco->tno", _input_tiles(x, m), u)
  q = q.reshape(m + 2, m + 2, batch, down, across, -1)
  y = _mix(a_t, list(_mix(a_t, list(q)).swapaxes(0, 1)))
  y = y.transpose(2, 3, 0, 4, 1, 5)  # [B, down, m, across, m, O]
  return y.reshape(batch, down * m, across * m, -1)[:, :height, :width]


def _mix(matrix: NDArray[np.float64], parts: Sequence[jax.Array]) -> jax.Array:
  """Matrix [a, b] @ parts [b, ...], written out: XLA fuses it, and skips zeros."""
  out = []
  for row in matrix:
    terms = [
      part if c == 1 else float(c) * part
      for c, part in zip(row, parts, strict=True)
      if c
    ]
    total = terms[0]
    for term in terms[1:]:
      total = total + term
    out.append(total)
  return jnp.stack(out)


def _largest_divisor(number: int, limit: int) -> int:
  return next(d for d in range(min(number, limit), 0, -1) if number % d == 0)
