"""The closed form: exact sums, right solutions, and no pass over the members."""

import dataclasses
import os
import subprocess
import sys

from conftest import CONFIG, encodings, ids, labels, refit
from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.core import features, single
from legonet_jax.solvers import exact_sums

WHO = np.uint32(0), np.zeros(2, np.uint32)
RIDGE = dataclasses.replace(CONFIG, solver=lego.Ridge(), feature_map="sqrt")


def table(count, dim, seed=0):
  rng = np.random.default_rng(seed)
  cfg = RIDGE
  return lego.make_samples(
    cfg, rng.normal(size=(count, dim)), rng.integers(0, 3, count)
  )


def summed(samples, rows, signs=None, start=None):
  """Sums by blocks, as the solver does it."""
  signs = np.ones(len(rows), np.int8) if signs is None else signs
  return single.carry_rows(RIDGE, samples.data, rows, signs, WHO, start)[0]


def solve(solver, sums):
  cfg = dataclasses.replace(RIDGE, solver=solver)
  return np.asarray(single.solve_carry(cfg, sums).weights)


def whole(sums, dim):
  """A_j [d, d] from its bands."""
  size, gram = exact_sums.padded(dim), np.asarray(sums.gram)
  a = np.zeros((size, size), np.int64)
  for row, at in exact_sums.bands(dim):
    a[row : row + exact_sums.BAND, row:] = gram[:, at : at + size - row]
  a = np.triu(a) + np.triu(a, 1).T
  assert not a[dim:].any()
  return a[:dim, :dim]


@pytest.mark.parametrize("dim", [7, 128, 200])
@pytest.mark.parametrize("count", [1, 16, 17, 300, 1500])
def test_sums_are_the_integers_of_a_float64_oracle(dim, count):
  samples = table(count, dim)
  sums = summed(samples, np.arange(count))
  x = samples.codes.astype(np.int64)
  np.testing.assert_array_equal(whole(sums, dim), x.T @ x)
  np.testing.assert_array_equal(sums.cross, np.eye(3, dtype=int)[samples.labels].T @ x)


def test_sums_stay_exact_for_the_largest_codes_in_the_largest_block():
  codes = np.full((1024, 4), features.MAX_CODE, np.int8)
  codes[1::2] *= -1
  gram, cross = exact_sums.add_block(
    exact_sums.zeros(RIDGE, 4), codes, np.zeros(1024, np.int32), np.ones(1024, np.int8)
  )
  assert (np.asarray(gram)[:4, :4] == 1024 * 127**2).all()
  assert not np.asarray(cross).any()


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 2**20))
def test_subtracting_gives_the_sums_of_the_others(seed):
  rng = np.random.default_rng(seed)
  samples = table(400, 7, seed=1)
  rows = rng.permutation(400)
  gone = rows[: rng.integers(1, 300)]
  less = summed(samples, gone, np.full(len(gone), -1, np.int8), summed(samples, rows))
  rest = summed(samples, np.setdiff1d(rows, gone))
  np.testing.assert_array_equal(less.gram, rest.gram)
  np.testing.assert_array_equal(less.cross, rest.cross)


def test_sums_that_would_not_fit_are_refused_and_those_that_fit_are_not():
  samples = table(3, 7)
  full = exact_sums.zeros(RIDGE, 7)
  square = int(np.max(samples.codes[0].astype(int) ** 2))
  largest = int(np.argmax(np.abs(samples.codes[0])))
  for room, fits in ((square, False), (square + 1, True)):
    gram = jnp.asarray(full.gram).at[largest, largest].set(2**31 - room)
    start = full._replace(gram=gram)
    one = np.zeros(1, np.intp)
    carry = single.carry_rows(RIDGE, samples.data, one, np.ones(1, np.int8), WHO, start)
    assert (single.solve_carry(RIDGE, *carry).undecided >= 0) == fits


@pytest.mark.parametrize(("dim", "count"), [(7, 5), (64, 300), (150, 90)])
def test_solutions_are_those_of_a_float64_oracle(dim, count):
  samples = table(count, dim)
  solver = lego.Ridge(penalty=0.05, scale=3.0)
  got = solve(solver, summed(samples, np.arange(count))) * solver.logit_unit(dim)
  x = samples.codes.astype(np.float64)
  a = x.T @ x
  y = np.eye(3)[samples.labels]
  a += np.rint(0.05 * np.trace(a) / dim) * np.eye(dim)
  want = 3.0 * np.linalg.solve(a, x.T @ y).T
  assert np.abs(got - want).max() <= 0.51 * solver.logit_unit(dim)
  assert solver.logit_unit(dim) < 1e-4 * np.abs(want).max()  # a fine grid


def test_an_adapter_of_zeros_gets_weights_of_zero():
  assert not solve(lego.Ridge(), exact_sums.zeros(RIDGE, 7)).any()


@pytest.fixture(scope="module")
def world():
  samples = lego.make_samples(RIDGE, encodings(), labels(), ids())
  return samples, lego.fit(RIDGE, samples)[0]


def test_a_request_does_not_look_at_members(world, monkeypatch):
  samples, state = world

  def fail(*args):
    raise AssertionError("all rows were looked at")

  monkeypatch.setattr("legonet_jax.host.advance._all", fail)
  after, _ = lego.unlearn(state, samples, state.ids[-2:])
  lego.learn(after, samples, state.ids[-2:])


def test_notes_are_the_sums_over_the_members(world):
  samples, state = world
  after, _ = lego.unlearn(state, samples, state.ids[[0, 20, 40]])  # an anchor
  again = refit(RIDGE, samples, after.ids)
  for a, b in zip(after.solutions, again.solutions, strict=True):
    jax.tree.map(np.testing.assert_array_equal, a.statistics, b.statistics)


def test_without_notes_or_rows_a_request_gives_the_same_bits(world):
  samples, state = world
  gone = state.ids[[0, 30, 31]]
  want = lego.digest(lego.unlearn(state, samples, gone)[0])
  forgetful = tuple(s._replace(statistics=None) for s in state.solutions)
  forgetful = dataclasses.replace(state, solutions=forgetful)
  assert lego.digest(lego.unlearn(forgetful, samples, gone)[0]) == want
  left = lego.drop(samples, gone)
  assert lego.digest(lego.unlearn(state, left, gone)[0]) == want
  mended = lego.make_samples(RIDGE, encodings(3, seed=9), labels(3), gone)
  other = lego.append(left, mended)  # other samples under the forgotten ids
  assert lego.digest(lego.unlearn(state, other, gone)[0]) == want


def test_a_request_shares_the_weights_of_all_other_adapters(world):
  """At n = 1000 and C = 100, copying them would take longer than the request."""
  samples, state = world
  after, info = lego.unlearn(state, samples, state.ids[-1:])
  pairs = zip(state.solutions, after.solutions, strict=True)
  assert sum(a is not b for a, b in pairs) == info.adapters_retrained


_DIGEST = """
import sys
sys.path.insert(0, "tests")
from conftest import CLASSES
import dataclasses, numpy as np, legonet_jax as lego
rng = np.random.default_rng(0)
x, y = rng.gamma(0.5, 1.0, (400, 300)), rng.integers(0, CLASSES, 400)
for solver in (lego.Ridge(), lego.Sgd(epochs=2)):
  cfg = lego.LegoConfig(CLASSES, num_adapters=8, top_k=3, solver=solver)
  samples = lego.make_samples(cfg, x, y)
  print(lego.digest(lego.fit(cfg, samples)[0]))
"""


@pytest.mark.skipif(
  not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
  reason="needs two cores, and a system that can take one away",
)
def test_the_number_of_cores_changes_no_bit():
  everywhere = os.sched_getaffinity(0)
  found = []
  for cores in (everywhere, {min(everywhere)}):
    os.sched_setaffinity(0, cores)
    try:
      done = subprocess.run(
        [sys.executable, "-c", _DIGEST], capture_output=True, text=True, check=True
      )
    finally:
      os.sched_setaffinity(0, everywhere)
    found.append(done.stdout.split())
  assert found[0] == found[1]
  assert len(found[0]) == 2


def test_keep_is_free_to_change_and_saves_the_memory(world):
  samples, state = world
  cfg = dataclasses.replace(RIDGE, solver=lego.Ridge(keep=False))
  slim = dataclasses.replace(state, cfg=cfg)
  after, _ = lego.unlearn(slim, samples, state.ids[-1:])
  touched = np.unique(state.routes[-1])
  assert all(after.solutions[j].statistics is None for j in touched)
  want, _ = lego.unlearn(state, samples, state.ids[-1:])
  assert lego.digest(after) == lego.digest(want)


@pytest.mark.parametrize(
  "bad", [{"penalty": 0}, {"penalty": np.nan}, {"scale": -1}, {"scale": "x"}]
)
def test_bad_settings_are_refused(bad):
  with pytest.raises(errors.ConfigError, match=next(iter(bad))):
    lego.Ridge(**bad)


def test_an_unknown_solver_is_refused():
  @dataclasses.dataclass(frozen=True)
  class Guess:
    """It cannot train."""

  with pytest.raises(lego.errors.ConfigError, match="has no method train"):
    dataclasses.replace(RIDGE, solver=Guess())


def test_a_solver_of_ones_own_takes_part(world):
  samples, _ = world

  @dataclasses.dataclass(frozen=True)
  class Mean(lego.Solver):
    """Nearest class mean, from integer sums."""

    def train(self, cfg, codes, labels, mask, adapter):
      hit = (labels[None, :] == jnp.arange(3)[:, None]).astype(jnp.float32)
      return (hit @ codes.astype(jnp.float32)) / mask.sum()

  cfg = dataclasses.replace(RIDGE, solver=Mean())
  state, _ = lego.fit(cfg, samples)
  after, _ = lego.unlearn(state, samples, state.ids[:4])
  assert lego.digest(after) == lego.digest(refit(cfg, samples, after.ids))
