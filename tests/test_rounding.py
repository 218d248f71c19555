"""Weights are the rational solution, correctly rounded: FLINT is the oracle."""

from fractions import Fraction
import math

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from experiments import rounding_oracle as oracle
import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.solvers import rounding

pytest.importorskip("flint")

LARGEST = 2**31 - 1
PENALTIES = [Fraction(p) for p in ("1e-6", "0.01", "0.01", "1", "1e6")]


def from_members(rng, codes, classes, penalty):
  labels = rng.integers(0, classes, len(codes))
  return oracle.make_problem(codes, labels, classes, penalty)


def draw(rng, kind):
  """One small system of a kind; see `KINDS`."""
  dim, classes = int(rng.integers(1, 13)), int(rng.integers(1, 5))
  penalty = PENALTIES[rng.integers(len(PENALTIES))]
  count = int(rng.integers(1, 40))
  if kind == "one member":
    count = 1
  if kind == "as many members as numbers":
    count = dim
  codes = rng.integers(-127, 128, (count, dim))
  if kind == "zeros":
    codes[:] = 0
  if kind == "duplicates":
    codes = codes[rng.integers(0, min(2, count), count)]
  if kind == "small codes":
    codes = rng.integers(-1, 2, (count, dim))
  if kind == "nearly dependent":
    codes[:] = codes[:, :1]
    codes[0, -1] = -codes[0, -1]
  if kind == "largest sums":
    return largest(rng, dim, classes, penalty)
  return from_members(rng, codes.astype(np.int8), classes, penalty)


def largest(rng, dim, classes, penalty):
  """A [d, d] with a diagonal up to 2^31 - 1, of many equal members."""
  codes = 127 * rng.choice([-1, 1], (3, dim))
  times = rng.integers(1, LARGEST // 127**2 // 3, 3)
  times[0] = LARGEST // 127**2 - times[1:].sum()
  gram = (codes.T * times) @ codes
  hit = np.eye(classes, dtype=np.int64)[rng.integers(0, classes, 3)].T
  cross = (hit * times) @ codes
  assert LARGEST - 127**2 < gram.diagonal().max() <= LARGEST
  shift = rounding.choose_shift(penalty, int(np.trace(gram)), dim)
  return oracle.Problem(gram, cross, shift, rounding.choose_grid(penalty, dim))


KINDS = (
  "any",
  "one member",
  "as many members as numbers",
  "zeros",
  "duplicates",
  "small codes",
  "nearly dependent",
  "largest sums",
)


def check(problem, solve=None):
  """Asserts that every entry is right; returns how it was found."""
  found = rounding.solve_rounded(oracle.to_system(problem), solve)
  expected, ties = oracle.round_exactly(problem)
  np.testing.assert_array_equal(found.weights, expected)
  assert found.ties == ties
  return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_of_random_systems_is_correctly_rounded(kind):
  for seed in range(125):
    check(draw(np.random.default_rng([seed, KINDS.index(kind)]), kind))


def test_the_oracle_rounds_as_fractions_do():
  for seed in range(20):
    problem = draw(np.random.default_rng(seed), "small codes")
    exact = oracle.solve_exactly(problem)
    half = Fraction(1, 2)
    want = [[math.floor(x + half) for x in row] for row in exact]
    assert oracle.round_exactly(problem)[0].tolist() == want
    # B = X M / 2^g, by the definition of a solution
    m = problem.gram + problem.shift * np.eye(len(problem.gram), dtype=int)
    for row, b in zip(exact, problem.cross.tolist(), strict=True):
      back = [
        sum(x * a for x, a in zip(row, column, strict=True)) for column in m.T.tolist()
      ]
      assert back == [Fraction(v << problem.grid) for v in b]


def tie_systems():
  """Systems with entries on a half-integer, of either sign, alone and coupled."""
  whole, one = np.array, 1
  for b in (1, -1, 3, -7, 2**20 + 1, -(2**20) - 1):
    # 2^g b / (a + s) with a + s = 2^(g+1)
    yield oracle.Problem(whole([[2**11 - 1]]), whole([[b]]), one, 10)
    yield oracle.Problem(whole([[2**23 - 3]]), whole([[b]]), 3, 22)
    # W = (b + 1/2, b) for M = [[4, 2], [2, 4]]: B = W M is a row of integers.
    m = whole([[4, 2], [2, 4]])
    row = whole([2 * b + 1, 2 * b]) @ m // 2
    yield oracle.Problem(m - np.eye(2, dtype=int), row[None], one, 0)
    # Both are ties, and so is none of the second row.
    rows = whole([[2 * b + 1, -2 * b - 1], [2 * b, 2 * b + 2]]) @ m // 2
    yield oracle.Problem(m - np.eye(2, dtype=int), rows, one, 0)
  rng = np.random.default_rng(0)
  for dim in (3, 8, 12):
    x = rng.integers(-9, 10, (2 * dim, dim))
    gram = 2 * x.T @ x  # even, like s = 2, so that half-integers times M are integers
    m = gram + 2 * np.eye(dim, dtype=int)
    w = rng.integers(-1000, 1000, (3, dim))  # W = w / 2: about half of it are ties
    yield oracle.Problem(gram, w @ m // 2, 2, 0)


def test_an_entry_on_a_boundary_is_found_and_goes_up():
  total = 0
  for problem in tie_systems():
    total += check(problem).ties
  assert total > 50


def test_both_signs_of_a_tie_go_up():
  for b, want in ((1, 1), (-1, 0), (3, 2), (-3, -1)):
    gram, cross = np.array([[1.0]]), np.array([[b]], np.int32)
    found = rounding.solve_rounded(rounding.System(gram, 1, cross, 0))
    assert found.weights.tolist() == [[want]]
    assert found.ties == 1


def test_rounding_without_a_certificate_would_be_wrong_next_to_a_boundary():
  """The exact entry is h + 1/2 - 1/(2 m); the nearest float64 number is h + 1/2."""
  grid = 30
  for m in range(2**31 - 101, 2**31 - 1, 2):
    b = pow(2 ** (grid + 1), -1, m) * (m - 1) % m  # 2^(g+1) b = -1 modulo m
    b -= m if b > m // 2 else 0
    problem = oracle.Problem(np.array([[m - 1]]), np.array([[b]]), 1, grid)
    exact = oracle.solve_exactly(problem)[0][0]
    below = math.floor(exact)
    assert exact == below + Fraction(1, 2) - Fraction(1, 2 * m)
    assert math.floor(b * 2.0**grid / m + 0.5) == below + 1  # wrong
    assert check(problem).weights[0, 0] == below
    assert check(problem, lambda right, m=m: right / m).weights[0, 0] == below


def perturbed(system, size, rng):
  good = rounding.make_solver(system)

  def solve(right):
    v = good(right)
    return v * (1 + size * rng.uniform(-1, 1, v.shape))

  return solve


def in_float32(system, keep_type):
  """A float32 inverse; a row is scaled first, because float32 ends at 2^128."""
  upper = np.triu(system.gram)
  m = upper + np.triu(system.gram, 1).T + system.shift * np.eye(len(upper))
  inverse = np.linalg.inv(m).astype(np.float32)

  def solve(right):
    scale = np.maximum(np.abs(right).max(axis=1, keepdims=True), 1e-300)
    v = (right / scale).astype(np.float32) @ inverse
    return v * scale.astype(np.float32) if keep_type else v * scale

  return solve


@pytest.mark.parametrize("size", [1e-9, 1e-6, 1e-3])
def test_a_perturbed_solver_gives_the_same_integers(size):
  rng = np.random.default_rng(0)
  problems = [draw(rng, kind) for kind in KINDS for _ in range(8)]
  rounds = 0
  for problem in [*problems, *tie_systems()]:
    found = check(problem, perturbed(oracle.to_system(problem), size, rng))
    rounds += found.refined + found.exact
  assert rounds > 10


@pytest.mark.parametrize("keep_type", [False, True])
def test_a_solver_in_float32_gives_the_same_integers(keep_type):
  rng = np.random.default_rng(1)
  kinds = ("any", "one member", "small codes", "duplicates", "zeros", "largest sums")
  problems = [draw(rng, kind) for kind in kinds for _ in range(10)]
  rounds = 0
  for problem in [*problems, *tie_systems()]:
    found = check(problem, in_float32(oracle.to_system(problem), keep_type))
    rounds += found.refined + found.exact
  assert rounds > 10


NONSENSE = {
  "zeros": np.zeros_like,
  "NaN": lambda right: np.full_like(right, np.nan),
  "infinity": lambda right: np.full_like(right, np.inf),
  "huge": lambda right: np.full_like(right, 1e300),
  "constant": np.ones_like,
  "wrong sign": lambda right: -right,
}


@pytest.mark.parametrize("name", NONSENSE)
@pytest.mark.parametrize("dim", [1, 5, 20])
def test_a_solver_that_returns_nonsense_ends_in_an_error(name, dim):
  rng = np.random.default_rng(2)
  codes = rng.integers(-127, 128, (2 * dim, dim)).astype(np.int8)
  problem = from_members(rng, codes, 2, Fraction("0.01"))
  with pytest.raises(errors.ConfigError, match=r"raise solver\.penalty"):
    rounding.solve_rounded(oracle.to_system(problem), NONSENSE[name])


def test_a_solver_that_makes_no_progress_is_refused_soon():
  """Every round in integers makes them longer; d = 512 would take minutes."""
  dim, calls = 512, []
  codes = np.random.default_rng(3).integers(-127, 128, (dim, dim)).astype(np.int8)
  labels = np.arange(dim) % 2
  problem = oracle.make_problem(codes, labels, 2, Fraction("0.01"))

  def solve(right):
    calls.append(right)
    assert len(calls) < 50
    return np.zeros_like(right)

  with pytest.raises(errors.ConfigError, match=r"raise solver\.penalty"):
    rounding.solve_rounded(oracle.to_system(problem), solve)


def test_a_solver_that_returns_or_changes_its_argument_does_no_harm():
  """Nobody may certify a residual against a right side that has changed."""
  problem = oracle.Problem(np.array([[1]]), np.array([[5]]), 1, 3)
  system = oracle.to_system(problem)
  expected = oracle.round_exactly(problem)[0]

  def returns_it(right):
    return right

  def changes_it(right):
    right /= 4.0
    return right.copy()

  for solve in (returns_it, changes_it):
    try:
      found = rounding.solve_rounded(system, solve)
    except errors.ConfigError:
      continue  # it may be refused, but not give wrong weights
    np.testing.assert_array_equal(found.weights, expected)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_no_weight_exceeds_30_bits(data):
  dim = data.draw(st.integers(1, 8))
  most = data.draw(st.sampled_from([1, 2, 127]))
  row = st.lists(st.integers(-most, most), min_size=dim, max_size=dim)
  members = data.draw(st.lists(st.tuples(row, st.integers(0, 1)), min_size=1))
  penalty = Fraction(repr(data.draw(st.floats(1e-6, 1e6))))
  codes = np.array([x for x, _ in members], np.int8)
  labels = np.array([y for _, y in members])
  problem = oracle.make_problem(codes, labels, 2, penalty)
  rows = oracle.solve_exactly(problem)
  assert all(sum(x * x for x in row) <= 4**30 for row in rows)
  assert np.abs(check(problem).weights).max() <= 2**30


def test_a_weight_may_come_near_30_bits():
  problem = oracle.make_problem(
    np.ones((2, 1), np.int8), np.zeros(2, int), 2, Fraction("0.5")
  )  # A = 2, s = 1, g = 30
  assert check(problem).weights.tolist() == [[round(2**30 * 2 / 3)], [0]]


def test_real_adapters_of_the_embedded_data_are_correctly_rounded():
  samples, classes = oracle.load_samples(None, 0.01)
  cfg = lego.LegoConfig(classes, num_adapters=100)
  state, _ = lego.fit(cfg, samples)
  by_size = np.argsort(state.sizes, kind="stable")
  for j in by_size[[0, 50, 99]].tolist():
    mine = oracle.members_of(state, samples, j)
    problem = oracle.make_problem(
      samples.codes[mine], samples.labels[mine], classes, cfg.solver.exact_penalty
    )
    expected, _ = oracle.round_exactly(problem)
    np.testing.assert_array_equal(state.solutions[j].weights, expected)


def tie_of_one_member(dim):
  """V = 2^g a x / (x·x + s) = a / 2, of one dense member with odd codes a."""
  gram = np.full((dim, dim), 49.0)
  return rounding.System(gram, 2**21 - 49 * dim, np.full((2, dim), 7), 20, members=1)


def tie_of_a_coordinate_of_its_own(dim):
  """An isolated coordinate with a tie, beside dense members."""
  x = np.random.default_rng(0).integers(-127, 128, (3 * dim, dim)).astype(float)
  x[:, 0] = 0
  gram, shift = x.T @ x, 5000
  gram[0, 0] = 2**21 - shift
  cross = np.full((2, dim), 7)
  return rounding.System(gram, shift, cross, 20, members=3 * dim)


@pytest.mark.parametrize("make", [tie_of_one_member, tie_of_a_coordinate_of_its_own])
@pytest.mark.parametrize("dim", [16, 150])
def test_a_tie_that_can_be_crafted_takes_few_rounds_at_any_width(
  make, dim, monkeypatch
):
  calls, real = [], rounding._multiply_exactly
  monkeypatch.setattr(
    rounding, "_multiply_exactly", lambda *args: calls.append(1) or real(*args)
  )
  found = rounding.solve_rounded(make(dim))
  assert found.ties > 0
  assert (found.weights[:, 0] == 4).all()  # 3.5 goes up
  assert len(calls) <= 8
