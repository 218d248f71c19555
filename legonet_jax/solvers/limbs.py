r"""Long integers inside jit, exact on devices that have no integers beyond int32.

    x = Σ_l 256^l x_l            x [n, ...] int32, one limb per step of the first axis

Limbs have signs. A number is *tidy* if each limb lies in -128 ... 127. Every step is
exact modulo 256^n, and a number below 256^n / 4, which `count` sees to, has one tidy
form. Two facts follow. The limbs below limb l amount to at most 128 · 256^l / 255 <
0.51 · 256^l, so the highest limb that is not 0 decides the sign. And Σ 256^l |x_l| <=
1.51 / 0.49 |x| < 4 |x|, so a float32 sum of n <= 32 terms 256^l x_l, in any order, is
off by less than 4 · 32 · 2^-24 |x| = 2^-17 |x|.

Digits of at most 128 fit in bfloat16, and 1,024 products of two of them add up to 2^24
at most. So a float32 matmul of digits is exact, whatever the order of its sums, and
even if the device reads the factors as TF32 or bfloat16.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

BITS = 8
MOST = 30  # limbs; their signs fit in one int32
BLOCK = 1024  # products of digits whose sum float32 holds


def count(bound: int) -> int:
  """n for numbers of at most `bound`, a limb more than they need."""
  return bound.bit_length() // BITS + 2


def split(x: jax.Array, digits: int) -> jax.Array:
  """Digits [digits, ...] of int32 x, each in -128 ... 127; the top one is the rest.

  For 4 digits of any int32, and 3 of |x| <= 2^23, the top one is at most 128 as well.
  """
  parts = []
  for _ in range(digits - 1):
    carry = (x >> BITS) + ((x >> (BITS - 1)) & 1)  # (x + 128) >> 8 would overflow
    parts.append(x - (carry << BITS))
    x = carry
  return jnp.stack([*parts, x])


def constant(value: int, limbs: int) -> jax.Array:
  """A tidy constant [limbs]."""
  parts = []
  for _ in range(limbs):
    digit = (value + 128) % 256 - 128
    parts.append(digit)
    value = (value - digit) >> BITS
  assert value == 0
  return jnp.array(parts, jnp.int32)


def resize(x: jax.Array, limbs: int) -> jax.Array:
  """x with more limbs, or modulo 256^limbs with fewer."""
  more = [(0, max(0, limbs - x.shape[0]))] + [(0, 0)] * (x.ndim - 1)
  return jnp.pad(x, more)[:limbs]


def raise_limbs(x: jax.Array, places: int) -> jax.Array:
  """256^places x, modulo 256^n."""
  return jnp.pad(x, [(places, 0)] + [(0, 0)] * (x.ndim - 1))[: x.shape[0]]


def tidy(x: jax.Array) -> jax.Array:
  """The tidy form of a number with limbs below 2^30.

  A scan, because XLA would fuse a chain of carries into what reads them, and compute it
  again for each limb.
  """

  def carry_on(carry: jax.Array, limb: jax.Array) -> tuple[jax.Array, jax.Array]:
    limb = limb + carry
    carry = (limb + 128) >> BITS
    return carry, limb - (carry << BITS)

  return jax.lax.scan(carry_on, jnp.zeros_like(x[0]), x)[1]


def shift_left(x: jax.Array, bits: jax.Array, most: int) -> jax.Array:
  """2^bits x, not tidy: limbs grow up to 128 times.

  Args:
    x: a tidy number [n, ...].
    bits: [...] int32 in 0 ... most, as many axes as x has behind its first.
    most: a static bound.
  """
  bits = bits[None]
  x = x << (bits & (BITS - 1))
  places, step = bits >> (BITS.bit_length() - 1), 1
  while step <= most // BITS:
    x = jnp.where((places & step) != 0, raise_limbs(x, step), x)
    step *= 2
  return x


def multiply(x: jax.Array, y: jax.Array, limbs: int) -> jax.Array:
  """The tidy product [limbs] of tidy numbers without further axes."""
  out = jnp.zeros(limbs, jnp.int32)
  for i in range(y.shape[0]):
    out = out + raise_limbs(resize(x, limbs), i) * y[i]
  return tidy(out)


def sign(x: jax.Array) -> jax.Array:
  """An int32 with the sign of a tidy number [n] of at most `MOST` limbs."""
  # The highest limb that is not 0 outweighs those below it, here as in x.
  powers = jnp.array([1 << i for i in range(x.shape[0])], jnp.int32)
  return jnp.sum(jnp.sign(x) * powers, dtype=jnp.int32)


def to_float(x: jax.Array, exponent: int = 0) -> jax.Array:
  """2^exponent x [...] in float32, off by less than a part in 2^17."""
  powers = [math.ldexp(1.0, BITS * i + exponent) for i in range(x.shape[0])]
  weights = np.array(powers, np.float32).reshape([-1] + [1] * (x.ndim - 1))
  return jnp.sum(x.astype(jnp.float32) * weights, axis=0)


def sum_diagonal(matrix: jax.Array, limbs: int) -> jax.Array:
  """The trace of an int32 matrix [d, d], as a tidy number [limbs]."""
  digits = split(jnp.diagonal(matrix), 4)
  return tidy(resize(jnp.sum(digits, axis=1, dtype=jnp.int32), limbs))


def divide(x: jax.Array, divisor: int) -> tuple[jax.Array, jax.Array]:
  """floor(x / divisor) [n] of a tidy x [n] >= 0, and whether that is certain.

  Long division, from the top limb down. Digits of the quotient may have either sign: a
  float32 estimate of at most 131, off by less than 0.01, is rounded to nearest, which
  leaves |rest| <= 0.51 divisor. The rest is exact, so its last value is the proof.
  """
  n, scale = count(512 * divisor), divisor.bit_length()
  d = constant(divisor, n)
  reciprocal = math.ldexp(1.0, scale) / divisor

  def bring_down(rest: jax.Array, limb: jax.Array) -> tuple[jax.Array, jax.Array]:
    rest = raise_limbs(rest, 1).at[0].add(limb)
    guess = jnp.round(to_float(rest, -scale) * reciprocal)
    digit = clip(guess, -256, 256).astype(jnp.int32)
    return tidy(rest - d * digit), digit

  rest, digits = jax.lax.scan(bring_down, jnp.zeros(n, jnp.int32), x, reverse=True)
  low = (sign(rest) < 0).astype(jnp.int32)
  rest = tidy(rest + d * low)
  certain = (sign(rest) >= 0) & (sign(tidy(rest - d)) < 0)
  return tidy(digits.at[0].add(-low)), certain


def clip(x: jax.Array, low: int, high: int) -> jax.Array:
  """x within bounds of its own type; under x64, `jnp.clip` reads 2.0 as float64."""
  return jax.lax.clamp(x.dtype.type(low), x, x.dtype.type(high))


def to_digits(matrix: jax.Array) -> tuple[jax.Array, ...]:
  """The four digits [d, e] float32 of an int32 matrix [d, e]."""
  return tuple(digit.astype(jnp.float32) for digit in split(matrix, 4))


def multiply_digits(x: jax.Array, matrix: tuple[jax.Array, ...], n: int) -> jax.Array:
  """The product [n, C, e] of x [C, d] and a matrix [d, e], not tidy.

  A limb is the sum of at most 3 d products of digits, below 2^28 for d = 4096.

  Args:
    x: int32, at most 2^23.
    matrix: its `to_digits`.
    n: enough limbs for the product.
  """
  rows, dim = x.shape
  digits = split(x, 3).reshape(3 * rows, dim).astype(jnp.float32)
  total = jnp.zeros((n, rows, matrix[0].shape[1]), jnp.int32)
  for j, other in enumerate(matrix):
    for at in range(0, dim, BLOCK):
      product = jax.lax.dot(
        digits[:, at : at + BLOCK],
        other[at : at + BLOCK],
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
      )
      parts = product.astype(jnp.int32).reshape(3, rows, -1)
      total = total + raise_limbs(resize(parts, n), j)
  return total
