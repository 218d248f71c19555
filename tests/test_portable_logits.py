"""Sums of integer logits are Python's integers, on the host and under `jit`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legonet_jax.core import logits
from legonet_jax.core.weights import Weights


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


@pytest.mark.parametrize(
  ("dim", "k"), [(1, 1), (3, 40), (512, 10), (1024, 3), (1025, 2), (1500, 40)]
)
def test_integer_logits_are_exact_on_the_host_and_under_jit(dim, k):
  rng = np.random.default_rng([dim, k])
  w, codes, active, counted, sums = draw_logits(rng, dim, k, classes=3)
  on_host = logits.sum_on_host(Weights(w), codes, active, counted)
  assert on_host.tolist() == sums

  @jax.jit
  def on_device(w, codes, active, counted):
    terms = logits.of_adapters(w, codes, active)
    total = logits.sum_terms(*terms, counted)
    return *total, logits.find_largest(*total)

  high, low, best = (np.asarray(a) for a in on_device(w, codes, active, counted))
  assert (high.astype(object) * 2**logits.LOW_BITS + low).tolist() == sums
  assert best.tolist() == [z.index(max(z)) for z in sums]


@pytest.mark.parametrize("dim", [1024, 1501])
def test_integer_logits_are_exact_where_every_byte_and_code_is_largest(dim):
  w = np.full((1, 4, dim), 0x3F7F7F7F, np.int32)
  w[0, 1] *= -1
  w[0, 2, 1::2] = -0x3F808080
  w[0, 3] = 0x3F7F7F7F - np.arange(dim) % 2
  codes = np.full((2, dim), 127, np.int8)
  codes[1, 1::2] = -127
  high, low = jax.jit(logits.of_adapters)(w, codes, np.zeros((2, 1), np.int32))
  got = np.asarray(high).astype(object) * 2**logits.LOW_BITS + np.asarray(low)
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
