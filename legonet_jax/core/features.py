r"""The fixed map of one encoding: e [d] float -> codes [d], small integers.

Every sample is mapped on its own, with constants that do not depend on the data, so the
map remembers no sample. The result is rounded to at most 8 bits. Integers make routing
exact: sums of their products are the same in any order, on any device, in any batch, so
rounding errors never decide which k keys are nearest.

Codes of host arrays (`encode_array`) are the same on every machine: the norm is that of
integers, and every other step is a single IEEE operation on one element, in the order
that docs/portable.md gives. Under `jit`, `encode_features` computes the same formula in
float32, where a code that lies next to a rounding boundary may come out one off.

    l2     x = u,  u = e / ||e||                     (the default for `Sgd`)
    sqrt   x = sign(u) sqrt(|u|)                     (the default for `Ridge`)
    none   x = e

    codes = round(m · clip(x / r, -1, 1))            m = `levels`, r = `feature_range`

The bound that `levels` keeps: with ||codes||² ≤ M for samples and keys, a score
q·K - ||K||²/2 and all its partial sums are multiples of 1/2 below 1.5 M < 2^23, and
float32 holds every such number exactly.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig
from legonet_jax.runtime import parallel

MAX_CODE = 127
EXACT_SCORE = 2**23
MAX_DIM = 2**18  # Σ q² of that many integers of 22 bits stays below 2^62
_BITS = 22
_BLOCK = 256  # rows; their float64 numbers stay in a core's cache
_TOO_LARGE = 1e30  # its reciprocal is still a normal float32


def feature_range(cfg: LegoConfig, dim: int) -> float:
  """r: the largest |x| that the codes can hold."""
  if cfg.feature_range is not None:
    return cfg.feature_range
  # A component of a unit vector is about 1/sqrt(d); 16 times that is rarely reached.
  return 1.0 if cfg.feature_map == "sqrt" else min(1.0, 16 / math.sqrt(dim))


def levels(cfg: LegoConfig, dim: int) -> int:
  """m: codes lie in -m ... m; 127, or less if scores would otherwise not be exact."""
  r = feature_range(cfg, dim)
  norm2 = {"sqrt": math.sqrt(dim), "l2": 1.0, "none": math.inf}[cfg.feature_map]
  norm2 = min(norm2 / (r * r), float(dim))
  for m in range(MAX_CODE, 0, -1):
    longest = m * math.sqrt(norm2) + 0.5 * math.sqrt(dim)
    if dim <= MAX_DIM and 1.5 * (longest * longest) < EXACT_SCORE:
      return m
  raise errors.ConfigError(f"encodings of width {dim} are too wide for exact routing")


def unit(cfg: LegoConfig, dim: int) -> float:
  """The value of one code step: x ≈ codes · unit."""
  return feature_range(cfg, dim) / levels(cfg, dim)


def transform(cfg: LegoConfig, encodings: jax.Array) -> jax.Array:
  """x [..., d] float32 from e [..., d], before rounding."""
  e = encodings.astype(jnp.float32)
  if cfg.feature_map == "none":
    return e
  peak = jnp.max(jnp.abs(e), axis=-1, keepdims=True)
  u = e / jnp.where(peak > 0, peak, 1)  # keeps the squares below from overflowing
  norm = jnp.linalg.norm(u, axis=-1, keepdims=True)
  u = u / jnp.where(norm > 0, norm, 1)
  return u if cfg.feature_map == "l2" else jnp.sign(u) * jnp.sqrt(jnp.abs(u))


def quantize(cfg: LegoConfig, x: jax.Array) -> jax.Array:
  """Codes [..., d] int8 of mapped encodings x [..., d]."""
  dim = x.shape[-1]
  m, r = levels(cfg, dim), feature_range(cfg, dim)
  return jnp.round(m * jnp.clip(x / r, -1, 1)).astype(jnp.int8)


def encode_features(cfg: LegoConfig, encodings: jax.Array) -> jax.Array:
  """Codes [..., d] int8 of encodings [..., d]; pure, for use under jit and vmap."""
  return quantize(cfg, transform(cfg, encodings))


def to_float32(
  rows: NDArray[Any],
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
  """Encodings [m, d] in float32, and which of them [m] can be mapped.

  A row with a value that is NaN, infinite or over 1e30 cannot be mapped.
  """
  with np.errstate(over="ignore"):  # values that are too large become infinity
    part = rows.astype(np.float32)
  return part, np.asarray((np.abs(part) < _TOO_LARGE).all(axis=1))  # False for NaN


def encode_array(cfg: LegoConfig, encodings: ArrayLike) -> NDArray[np.int8]:
  """Codes [N, d] of a host array, the same on every machine.

  Raises:
    SampleError: if a value is NaN, infinite or over 1e30.
  """
  try:
    rows = np.asarray(encodings)
  except ValueError as e:
    raise errors.SampleError(f"encodings are not an array: {e}") from e
  codes, sane = encode_sane(cfg, rows)
  if not sane.all():
    raise errors.SampleError(
      f"encoding in row {int(np.argmin(sane))} has a value that is NaN,"
      " infinite or over 1e30; drop or re-encode that sample"
    )
  return codes


def encode_sane(
  cfg: LegoConfig, rows: NDArray[Any]
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
  """Codes [N, d] of encodings [N, d], and which rows [N] could be mapped.

  A row that cannot gets codes of zero.
  """
  if rows.ndim != 2 or not rows.shape[1] or rows.dtype.kind not in "fiu":
    raise errors.SampleError(
      f"encodings have shape {rows.shape} and type {rows.dtype};"
      " give real numbers [samples, width]"
    )
  codes, sane = np.empty(rows.shape, np.int8), np.empty(len(rows), bool)
  m, r = levels(cfg, rows.shape[1]), feature_range(cfg, rows.shape[1])

  def encode(start: int) -> None:
    block = slice(start, start + _BLOCK)
    part, sane[block] = to_float32(rows[block])
    part[~sane[block]] = 0
    codes[block] = _encode_rows(cfg.feature_map, m, r, part)

  for _ in parallel.on_cores(encode, range(0, len(rows), _BLOCK)):
    pass
  return codes, sane


def _encode_rows(
  feature_map: str, m: int, r: float, e: NDArray[np.float32]
) -> NDArray[np.float64]:
  """Codes [B, d] of encodings [B, d], as docs/portable.md defines them."""
  x = e.astype(np.float64)
  if feature_map != "none":
    _, exponent = np.frexp(np.abs(e).max(axis=1, keepdims=True))
    x = np.rint(np.ldexp(x, _BITS - exponent, out=x), out=x)
    whole = x.astype(np.int64)
    # A row of zeros has codes of zero; 1 only avoids 0 / 0.
    norm2 = np.maximum(np.einsum("bd,bd->b", whole, whole), 1)
    x /= np.sqrt(norm2.astype(np.float64))[:, None]
    if feature_map == "sqrt":
      sign = np.sign(x)
      np.sqrt(np.abs(x, out=x), out=x)
      x *= sign
  x /= r
  np.clip(x, -1, 1, out=x)
  x *= m
  return np.rint(x, out=x)
