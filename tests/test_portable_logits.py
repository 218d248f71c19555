"""Sums of integer logits are Python's integers, in groups and gathered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legonet_jax.core import logits


def draw_logits(rng, dim, k, classes):
  """Weights and codes as long as docs/portable.md allows, and exact sums of them."""
  n, batch = 2 * k + 2, 6
  w = rng.normal(size=(n, classes, dim))
  w = (w * (2.0**30 / np.linalg.norm(w, axis=2, keepdims=True))).astype(np.int32)
  w[0] = 0
  w[0, :, -1] = 2**30
  w[1, :, 0] = -(2**30)
  w[1, :, 1:] = 0
  most = int(np.sqrt(2**23 / 1.5 / dim))  # ||codes||² stays below 2^23 / 1.5
  codes = rng.integers(-min(most, 127), min(most, 127) + 1, (batch, dim))
  codes[0], codes[1] = min(most, 127), -min(most, 127)
  codes[2] = np.where(w[2, 0] < 0, -1, 1) * min(most, 127)  # all products positive
  active = np.stack([rng.permutation(n)[:k] for _ in range(batch)])
  active[2, 0] = 2
  counted = rng.random((batch, k)) < 0.8
  sums = [
    [
      sum(
        sum(a * b for a, b in zip(w[j, c].tolist(), x, strict=True))
        for j, use in zip(near, used, strict=True)
        if use
      )
      for c in range(classes)
    ]
    for x, near, used in zip(
      codes.tolist(), active.tolist(), counted.tolist(), strict=True
    )
  ]
  return w, codes.astype(np.int8), active.astype(np.int32), counted, sums


FORMS = (logits.of_adapters, logits._gathered)


def join(limbs):
  total = 0
  for limb in limbs:
    total = total * 2**logits.LOW_BITS + np.asarray(limb).astype(object)
  return total


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
  ("dim", "k"), [(1, 1), (3, 40), (512, 10), (1024, 3), (1025, 2), (5, 600)]
)
def test_integer_logits_are_exact_in_groups_and_gathered(form, dim, k):
  rng = np.random.default_rng([dim, k])
  w, codes, active, counted, sums = draw_logits(rng, dim, k, classes=3)

  @jax.jit
  def add_up(w, codes, active, counted):
    terms = form(w, codes, active)
    total = logits.sum_terms(*terms, counted)
    return *total, logits.find_largest(*total)

  *limbs, best = (np.asarray(a) for a in add_up(w, codes, active, counted))
  assert join(limbs).tolist() == sums
  assert best.tolist() == [z.index(max(z)) for z in sums]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dim", [1024, 1501])
def test_integer_logits_are_exact_where_every_byte_and_code_is_largest(form, dim):
  w = np.full((1, 4, dim), 0x3F7F7F7F, np.int32)
  w[0, 1] *= -1
  w[0, 2, 1::2] = -0x3F808080
  w[0, 3] = 0x3F7F7F7F - np.arange(dim) % 2
  codes = np.full((2, dim), 127, np.int8)
  codes[1, 1::2] = -127
  got = join(jax.jit(form)(w, codes, np.zeros((2, 1), np.int32)))
  want = codes.astype(object) @ w[0].T.astype(object)
  assert got[:, 0].tolist() == want.tolist()


def test_the_lowest_class_wins_a_tie_of_integer_sums():
  w = np.zeros((2, 4, 3), np.int32)
  w[:, 1:3] = 2**29 + 1
  codes = np.array([[127, 1, 0], [-127, 0, 0], [0, 0, 0]], np.int8)
  active = np.array([[0, 1]] * 3, np.int32)
  high, low = jax.jit(logits.of_adapters)(w, codes, active)
  total = logits.sum_terms(high, low, jnp.ones((3, 2), bool))
  assert logits.find_largest(*total).tolist() == [1, 0, 0]


def test_the_largest_of_sums_is_found_in_whatever_limb_they_differ():
  sums = [[2**60, 2**60 + 1, 5], [-(2**60), -(2**60) + 2**21, -(2**60)], [-3, -3, -4]]
  limbs = [[[s >> 40 for s in row] for row in sums]]
  limbs += [[[(s >> b) % 2**20 for s in row] for row in sums] for b in (20, 0)]
  assert logits.find_largest(*(jnp.asarray(a) for a in limbs)).tolist() == [1, 1, 0]


@pytest.mark.parametrize("rows", [0, 1, 5, 300])
def test_stacked_models_and_stacked_samples_have_the_bits_of_single_calls(rows):
  rng = np.random.default_rng(0)
  w = rng.integers(-(2**28), 2**28, (3, 9, 4, 6)).astype(np.int32)
  codes = rng.integers(-100, 100, (3, rows, 6)).astype(np.int8)
  active = rng.integers(0, 9, (3, rows, 2)).astype(np.int32)
  call = logits.of_adapters
  for axes in ((0, 0, 0), (None, 0, 0), (0, None, None), (None, None, 0)):
    args = [
      a if x == 0 else a[0] for a, x in zip((w, codes, active), axes, strict=True)
    ]
    high, low = jax.jit(jax.vmap(call, axes))(*args)
    for i in range(3):
      one = [a[i] if x == 0 else a for a, x in zip(args, axes, strict=True)]
      np.testing.assert_array_equal((high[i], low[i]), call(*one))
