"""Certified rounding inside jit: never wrong, seldom undecided, on any device."""

from fractions import Fraction
import functools

import flint
import jax
from jax import export
import jax.numpy as jnp
import numpy as np
import pytest

from legonet_jax.solvers import limbs, rounding, rounding_limbs

CLASSES = 3
USUAL = Fraction("0.01")
PENALTIES = [Fraction(p) for p in ("0.000001", "0.01", "1", "1000000")]
KINDS = ["dense", "positive", "sparse", "few", "zeros", "one", "largest"]


def make_system(dim, kind, seed, classes=CLASSES):
  """A_j and B_j of made-up members, int32."""
  rng = np.random.default_rng([dim, seed, KINDS.index(kind)])
  size = {"zeros": 0, "one": 1, "few": 1 + dim // 2}.get(kind, 3 * dim + 5)
  x = rng.integers(-127, 128, (size, dim))
  if kind == "positive":
    x = np.rint(40 * rng.gamma(0.5, size=(size, dim)) ** 0.5).astype(np.int64)
  if kind == "sparse":
    x *= rng.random((size, dim)) < 0.1
  times = np.ones(size, np.int64)
  if kind == "largest":  # the diagonal comes as near to 2^31 as members allow
    x = np.where(rng.random((4, dim)) < 0.5, 127, -127)
    times = np.array([133_140, 2, 1, 0])
  y = np.eye(classes, dtype=np.int64)[rng.integers(0, classes, len(x))]
  gram, cross = (x.T * times) @ x, (y.T * times) @ x
  assert np.abs(gram).max(initial=0) < 2**31
  return gram.astype(np.int32), cross.astype(np.int32)


def make_systems(dim, count=2, kinds=KINDS):
  pairs = [make_system(dim, kind, seed) for kind in kinds for seed in range(count)]
  return [np.stack(arrays) for arrays in zip(*pairs, strict=True)]


def solve_on_host(penalty, gram, cross):
  dim = len(gram)
  shift = rounding.choose_shift(penalty, sum(gram.diagonal().tolist()), dim)
  grid = rounding.choose_grid(penalty, dim)
  system = rounding.System(gram.astype(np.float64), shift, cross, grid)
  return rounding.solve_rounded(system)


@functools.cache
def compiled(penalty):
  return jax.jit(jax.vmap(functools.partial(rounding_limbs.solve_rounded, penalty)))


def check(penalty, gram, cross, solve=None):
  """Asserts that no certain entry is wrong; returns the share of the undecided."""
  weights, undecided = map(np.asarray, (solve or compiled(penalty))(gram, cross))
  assert weights.dtype == np.int32
  assert undecided.dtype == bool
  assert weights.shape == undecided.shape == cross.shape
  for i in range(len(gram)):
    truth = solve_on_host(penalty, gram[i], cross[i]).weights
    np.testing.assert_array_equal(weights[i][~undecided[i]], truth[~undecided[i]])
  return undecided.mean()


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 10, 17, 32, 40])
def test_it_equals_the_host_form(dim):
  assert check(USUAL, *make_systems(dim)) == 0


@pytest.mark.parametrize("penalty", PENALTIES, ids=float)
@pytest.mark.parametrize("dim", [1, 6])
def test_it_equals_the_host_form_for_any_penalty(dim, penalty):
  assert check(penalty, *make_systems(dim, 4)) < 0.2


@pytest.mark.parametrize("kind", ["positive", "few"])
def test_it_equals_the_host_form_at_width_256(kind):
  gram, cross = make_system(256, kind, 0, 10)
  assert check(USUAL, gram[None], cross[None]) == 0


def test_it_equals_exact_fractions():
  dim, penalty = 6, PENALTIES[1]
  gram, cross = make_systems(dim, kinds=["dense", "sparse", "largest"])
  weights, undecided = compiled(penalty)(gram, cross)
  assert not undecided.any()
  half = flint.fmpq(1, 2)
  for a, b, w in zip(gram.tolist(), cross.tolist(), weights.tolist(), strict=True):
    shift = rounding.choose_shift(penalty, sum(a[i][i] for i in range(dim)), dim)
    matrix = [[a[i][j] + shift * (i == j) for j in range(dim)] for i in range(dim)]
    right = flint.fmpq_mat(flint.fmpz_mat(b).transpose())
    solution = flint.fmpq_mat(flint.fmpz_mat(matrix)).solve(right).tolist()
    power = 2 ** rounding.choose_grid(penalty, dim)
    truth = [[int((power * v + half).floor()) for v in row] for row in solution]
    assert np.array(truth).T.tolist() == w


def test_it_is_the_same_without_vmap_and_without_jit():
  gram, cross = make_systems(2, 1)
  weights, undecided = compiled(USUAL)(gram, cross)
  for i in range(len(gram)):
    alone = rounding_limbs.solve_rounded(USUAL, jnp.array(gram[i]), jnp.array(cross[i]))
    np.testing.assert_array_equal(alone[0], weights[i])
    np.testing.assert_array_equal(alone[1], undecided[i])
  with jax.disable_jit():
    plain = rounding_limbs.solve_rounded(USUAL, jnp.array(gram[0]), jnp.array(cross[0]))
  np.testing.assert_array_equal(plain[0], weights[0])


@pytest.mark.parametrize("dim", [1, 2, 8])
def test_exact_ties_are_left_to_the_host(dim):
  penalty = Fraction(1)
  grid = rounding.choose_grid(penalty, dim)
  gram = (np.eye(dim, dtype=np.int64) << grid).astype(np.int32)  # M = 2^(g+1) I
  cross = np.arange(-dim, 2 * dim, dtype=np.int32).reshape(3, dim)
  _, undecided = map(np.asarray, rounding_limbs.solve_rounded(penalty, gram, cross))
  np.testing.assert_array_equal(undecided, cross % 2 == 1)
  on_host = solve_on_host(penalty, gram, cross)
  np.testing.assert_array_equal(on_host.weights, (cross + 1) // 2)
  assert on_host.ties == undecided.sum()


def test_a_poor_float_solver_costs_certainty_never_truth(monkeypatch):
  gram, cross = make_systems(5, kinds=["dense", "few", "largest"])
  good = rounding_limbs._solve
  shares = []
  for error in (1e-3, 0.3, 3.0):

    def solve(factor, right, error=error):
      noise = jnp.cos(jnp.arange(right.size, dtype=jnp.float32)).reshape(right.shape)
      return good(factor, right) * (1 + error * noise)

    monkeypatch.setattr(rounding_limbs, "_solve", solve)
    rounding_limbs.solve_counted.clear_cache()
    afresh = jax.vmap(functools.partial(rounding_limbs.solve_rounded, USUAL))
    shares.append(check(USUAL, gram, cross, afresh))
  rounding_limbs.solve_counted.clear_cache()
  assert shares[0] == 0
  assert shares[-1] > 0.5


def test_a_factor_that_fails_leaves_all_to_the_host():
  """Rank one, and a penalty far below what float32 can resolve."""
  penalty = Fraction(1, 10**12)
  gram = np.full((1, 6, 6), 2**30, np.int32)
  assert check(penalty, gram, np.full((1, 3, 6), 2**15, np.int32)) == 1


@pytest.mark.parametrize(
  "penalty", [Fraction(10) ** 40, Fraction(1, 10**40), Fraction(1, 10**70)], ids=float
)
def test_penalties_beyond_the_limbs_are_left_to_the_host(penalty):
  gram, cross = make_system(2, "dense", 0)
  assert check(penalty, gram[None], cross[None]) in (0, 1)


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_settings_of_jax_do_not_matter(x64, precision):
  gram, cross = make_systems(40, 1)
  before = compiled(USUAL)(gram, cross)
  with jax.enable_x64(x64), jax.default_matmul_precision(precision):
    solve = jax.jit(jax.vmap(lambda *s: rounding_limbs.solve_rounded(USUAL, *s)))
    after = solve(gram, cross)
    text = str(jax.make_jaxpr(solve)(gram, cross))
  np.testing.assert_array_equal(before[0], after[0])
  np.testing.assert_array_equal(before[1], after[1])
  assert "f64" not in text


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_it_lowers_for_every_platform(platform):
  solve = compiled(USUAL)
  gram, cross = (np.zeros((2, *s), np.int32) for s in ((130, 130), (CLASSES, 130)))
  text = export.export(solve, platforms=[platform])(gram, cross).mlir_module()
  assert "f64" not in text


@pytest.mark.parametrize("dim", [1, 3, 40])
@pytest.mark.parametrize(
  "penalty", [*PENALTIES, Fraction("0.012345678901234567")], ids=float
)
def test_the_penalty_of_an_adapter_is_exact(dim, penalty):
  rng = np.random.default_rng(dim)
  grams = np.zeros((200, dim, dim), np.int32)
  entries = 2.0 ** rng.uniform(-2, 30.999, (200, 1)) * rng.uniform(0.5, 1, (200, dim))
  grams[:, range(dim), range(dim)] = entries
  grams[-1, range(dim), range(dim)] = 2**31 - 1
  shifts, sure = jax.jit(jax.vmap(lambda a: rounding_limbs.choose_shift(penalty, a)))(
    grams
  )
  assert sure.all()
  powers = [256**i for i in range(shifts.shape[1])]
  for gram, shift in zip(grams, shifts.tolist(), strict=True):
    found = sum(p * s for p, s in zip(powers, shift, strict=True))
    trace = sum(gram.diagonal().tolist())
    assert found == rounding.choose_shift(penalty, trace, dim)


def test_a_halfway_penalty_goes_up():
  """s = 2.5 -> 3, one below 2.5 -> 2."""
  for trace, shift in ((249, 2), (250, 3), (0, 1), (349, 3), (350, 4)):
    gram = jnp.array([[trace]], jnp.int32)
    found, sure = rounding_limbs.choose_shift(USUAL, gram)
    assert sure
    assert found.tolist() == limbs.constant(shift, found.shape[0]).tolist()


def read(x):
  """Limbs [n, ...] as Python integers [...]."""
  x = np.asarray(x).astype(object)
  return sum(256**i * x[i] for i in range(len(x)))


def test_products_of_digits_are_exact_at_the_largest_values():
  """Beyond one block, with every digit as large as it gets."""
  dim = 2 * limbs.BLOCK + 3
  for value in (2**31 - 1, -(2**31) + 1, -0x7F7F7F80):
    matrix = jnp.full((dim, 2), value, jnp.int32)
    x = jnp.array([[2**23] * dim, [-(2**23)] * dim, [-0x7F7F80] * dim], jnp.int32)
    found = read(limbs.multiply_digits(x, limbs.to_digits(matrix), 11))
    truth = np.array(x[:, :1]).astype(object) * value * dim
    np.testing.assert_array_equal(found, np.repeat(truth, 2, axis=1))


def test_limbs_are_integers():
  rng = np.random.default_rng(0)
  x = jnp.array(rng.integers(-(2**30), 2**30, (9, 50)), jnp.int32)
  wide = limbs.resize(x, 15)
  tidy = limbs.tidy(wide)
  np.testing.assert_array_equal(read(tidy), read(wide))
  assert tidy.min() >= -128
  assert tidy.max() <= 127
  bits = jnp.array(rng.integers(0, 21, 50), jnp.int32)
  shifted = read(limbs.shift_left(tidy, bits, 20))
  np.testing.assert_array_equal(
    shifted, read(wide) * 2 ** np.array(bits).astype(object)
  )
  extremes = jnp.array([2**31 - 1, -(2**31), 0, 1, -1, 128, -129, 2**30], jnp.int32)
  np.testing.assert_array_equal(read(limbs.split(extremes, 4)), extremes)
  signs = jax.vmap(limbs.sign, in_axes=1)(tidy)
  np.testing.assert_array_equal(np.sign(signs), np.sign(read(wide).astype(float)))
  error = np.abs(np.asarray(limbs.to_float(tidy)).astype(float) / read(wide) - 1)
  assert error.max() < 2**-17
