"""Accuracy, ToW, margins and KLoM against slow oracles."""

from fractions import Fraction
import math

from hypothesis import example, given, strategies as st
from measures_world import FAST, normal
import numpy as np
import pytest

from legonet_jax import measures
from legonet_jax.measures import Accuracies


def test_accuracy_is_the_percentage_of_right_classes():
  p, y = normal(37, 5), np.random.default_rng(1).integers(0, 5, 37)
  right = sum(
    max(range(5), key=row.__getitem__) == c for row, c in zip(p, y, strict=True)
  )
  assert measures.accuracy(p, y) == pytest.approx(100 * right / 37)


PERCENT = st.floats(0, 100)
ACCURACIES = st.builds(Accuracies, PERCENT, PERCENT, PERCENT)


@FAST
@given(ACCURACIES, ACCURACIES)
def test_tow_is_the_product_of_three_agreements(a, b):
  agree = [
    1 - max(x - y, y - x) / 100
    for x, y in ((a.unlearn, b.unlearn), (a.retain, b.retain), (a.test, b.test))
  ]
  want = agree[0] * agree[1] * agree[2]
  assert measures.tow(a, b) == pytest.approx(want)
  assert measures.tow(a, b) == measures.tow(b, a)
  assert measures.tow(a, a) == 1


@FAST
@given(st.lists(st.floats(-30, 30), min_size=2, max_size=6), st.data())
def test_margins_are_those_of_a_slow_sum(z, data):
  y = data.draw(st.integers(0, len(z) - 1))
  others = math.fsum(math.exp(v) for c, v in enumerate(z) if c != y)
  want = z[y] - math.log(others)
  assert measures.margins([z], [y])[0] == pytest.approx(want, abs=1e-12)
  total = others + math.exp(z[y])
  p = np.array([[math.exp(v) / total for v in z]])
  with_log = measures.margins(np.log(p), [y])[0]
  assert with_log == pytest.approx(want, abs=1e-9)
  if p.min() > 1e-12:
    assert measures.margins_of_probs(p, [y])[0] == pytest.approx(want, abs=1e-9)


def test_margins_neither_overflow_nor_lose_a_small_difference():
  m = measures.margins([[1000.0, 0.0, -1000.0], [-1000.0, 3000.0, 2000.0]], [0, 0])
  np.testing.assert_array_equal(m, [1000.0, -4000.0])
  # 1 - p would be 0 in float64; the sum of the others is not.
  p = [[1.0, 4e-20, 6e-20]]
  assert measures.margins(np.log(p), [0])[0] == pytest.approx(-math.log(1e-19))


def test_margins_of_certain_predictions_are_finite_and_clipped_at_the_epsilon():
  m = measures.margins_of_probs([[1.0, 0.0], [0.0, 1.0]], [0, 0])
  np.testing.assert_allclose(m, [-math.log(1e-12), math.log(1e-12)])


def slow_klom(unlearned, oracle, bins):
  result = []
  for a, b in zip(np.transpose(unlearned), np.transpose(oracle), strict=True):
    a, b = [Fraction(float(v)) for v in a], [Fraction(float(v)) for v in b]
    low, high = min(a + b), max(a + b)
    if low == high:
      result.append(0.0)
      continue
    edges = [low + (high - low) * i / bins for i in range(bins + 1)]
    kl = []
    for i in range(bins):
      last = i == bins - 1
      shares = [
        sum(edges[i] <= v < edges[i + 1] or (last and v == high) for v in side)
        / len(side)
        for side in (a, b)
      ]
      p, q = ((s + 1e-5) / (1 + bins * 1e-5) for s in shares)
      kl.append(p * (math.log(p) - math.log(q)))
    result.append(math.fsum(kl))
  return result


@pytest.mark.parametrize("bins", [2, 7, 20])
def test_klom_is_that_of_explicit_bins(bins):
  a, b = normal(9, 6), 1.5 * normal(9, 6, seed=1) + 0.5
  np.testing.assert_allclose(measures.klom(a, b, bins), slow_klom(a, b, bins))


@FAST
@given(st.lists(st.integers(-40, 40), min_size=8, max_size=8), st.integers(2, 50))
@example([0, 1, 1, 49, 0, 0, 0, 49], 49)  # in floats 49 * (1 / 49) < 1
def test_klom_bins_are_closed_below_and_the_last_one_above(values, bins):
  a, b = np.reshape(values, (2, 4, 1))
  want = slow_klom(a, b, bins)
  np.testing.assert_allclose(measures.klom(a, b, bins), want, rtol=1e-9, atol=1e-12)


def test_klom_against_itself_is_zero_in_any_order_and_against_others_is_not():
  a = normal(30, 8)
  np.testing.assert_array_equal(measures.klom(a, a[::-1]), np.zeros(8))
  assert (measures.klom(a, a + 3) > 1).all()
  np.testing.assert_array_equal(
    measures.klom(np.ones((4, 2)), np.ones((4, 2))), np.zeros(2)
  )


def test_klom_compares_each_sample_on_its_own():
  a, b = normal(6, 3), normal(6, 3, seed=1)
  alone = [measures.klom(a[:, [s]], b[:, [s]])[0] for s in range(3)]
  np.testing.assert_array_equal(measures.klom(a, b), alone)


def test_klom_is_of_the_unlearned_from_the_oracle_and_not_the_other_way_round():
  # P has all mass in one of Q's two bins: KL(P || Q) = log 2; KL(Q || P) is large.
  p, q = [[0.0]] * 4, [[0.0], [0.0], [1.0], [1.0]]
  assert measures.klom(p, q)[0] == pytest.approx(math.log(2), abs=1e-3)
  assert measures.klom(q, p)[0] > 4


def test_the_null_is_the_first_half_against_the_second():
  a = normal(12, 5)
  np.testing.assert_array_equal(measures.klom_null(a), measures.klom(a[:6], a[6:]))
