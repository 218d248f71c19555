"""Certified rounding inside jit: float64 where there is one, limbs where there is none.

Both give the same integers, so the choice is about speed only: an adapter of d = 512
takes float64 2 to 4 ms on a CPU, and limbs 5 to 50. TPUs have no float64.
"""

from fractions import Fraction
import functools
from typing import Literal

import jax

from legonet_jax.runtime import flags
from legonet_jax.solvers import rounding_f64, rounding_limbs

Arithmetic = Literal["auto", "float64", "limbs"]


def solve_rounded(
  penalty: Fraction, gram: jax.Array, cross: jax.Array, arithmetic: Arithmetic = "auto"
) -> tuple[jax.Array, jax.Array]:
  """W_j [C, d] int32 and undecided [C, d] bool of A_j [d, d] and B_j [C, d] int32.

  Args:
    penalty: λ, static.
    gram: A_j, both halves.
    cross: B_j.
    arithmetic: `auto` chooses by the platform that the program is lowered for, and
      avoids float64 if this release of JAX loses it (`flags.float64_works`).
  """
  in_float64 = functools.partial(rounding_f64.solve_rounded, penalty)
  in_limbs = functools.partial(rounding_limbs.solve_rounded, penalty)
  if arithmetic == "float64":
    return in_float64(gram, cross)
  if arithmetic == "limbs" or not flags.float64_works():
    return in_limbs(gram, cross)
  found: tuple[jax.Array, jax.Array] = jax.lax.platform_dependent(
    gram, cross, tpu=in_limbs, default=in_float64
  )
  return found
