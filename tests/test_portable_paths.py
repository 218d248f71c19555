"""The way to a state leaves no trace: solver, threads, batches and kept sums."""

import dataclasses

from conftest import CLASSES, encodings, ids, labels
import jax
import numpy as np
import portable_reference as reference
import pytest

from experiments import portable_fuzz as fuzz
import legonet_jax as lego
from legonet_jax.host import requests as requests_lib
from legonet_jax.runtime import parallel
from legonet_jax.solvers import certified, rounding_f64


@pytest.mark.parametrize("seed", range(25))
def test_random_requests_end_in_the_digest_of_another_way(seed):
  found = fuzz.run(seed)
  assert set(found.others) == {"refit", "batched"}
  assert set(found.others.values()) == {found.digest}


@pytest.mark.parametrize("seed", range(4))
def test_random_requests_end_in_the_digest_of_the_reference(seed):
  found = fuzz.run(seed)
  cfg, e, y, i = fuzz.make_world(np.random.default_rng([seed, 77]))
  left = np.isin(i, found.ids)
  s = reference.Settings(
    classes=cfg.num_classes,
    n=cfg.num_adapters,
    k=cfg.top_k,
    seed=cfg.seed,
    key_noise=cfg.key_noise,
    feature_map=cfg.feature_map,
    feature_range=cfg.feature_range,
    penalty=cfg.solver.penalty,
  )
  state = reference.fit(s, e[left].tolist(), y[left].tolist(), i[left].tolist())
  assert reference.digest(s, state) == found.digest


def test_the_fuzz_tries_every_kind_of_request_and_all_settings():
  kinds, penalties, maps, noises = set(), set(), set(), set()
  for seed in range(25):
    cfg = fuzz.make_world(np.random.default_rng([seed, 77])).cfg
    penalties.add(cfg.solver.penalty)
    maps.add(cfg.feature_map)
    noises.add(cfg.key_noise)
    kinds |= set(fuzz.run(seed).requests)
  assert kinds == {"unlearn", "anchor", "defer", "learn", "update", "heal"}
  assert len(penalties) == 4
  assert maps == {"sqrt", "l2", "none"}
  assert len(noises) == 4


@pytest.fixture
def anew():
  """Nothing that is compiled in a test outlives it, and nothing is there before."""
  jax.clear_caches()
  yield
  jax.clear_caches()


def test_the_other_way_is_really_another(monkeypatch, anew):
  """The stand-ins are called, and they compute other estimates of the weights."""
  with jax.enable_x64(True):
    x = jax.random.normal(jax.random.key(0), (9, 6), "float64")
    matrix, right = x.T @ x, x[:2]
    ours = rounding_f64.make_solver(matrix)(right)
    theirs = fuzz.make_lu_solver(matrix)(right)
  np.testing.assert_allclose(ours, theirs, rtol=1e-9)
  assert not np.array_equal(ours, theirs)
  calls = []

  def counted(matrix):
    calls.append(parallel.count())
    return theirs_for(matrix)

  theirs_for = fuzz.make_lu_solver
  monkeypatch.setattr(fuzz, "make_lu_solver", counted)
  fuzz.run(0)
  assert calls
  assert set(calls) == {1}


def test_a_fuzz_that_forgets_too_little_is_noticed(monkeypatch):
  """A library that leaves one sample in must not pass."""
  honest = requests_lib.advance

  def dishonest(state, samples, removed, added, *rest):
    kept = removed[1:] if len(removed) > 1 else removed
    return honest(state, samples, kept, added, *rest)

  cfg = lego.LegoConfig(CLASSES, num_adapters=8, top_k=2)
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  state, _ = lego.fit(cfg, samples)
  gone = state.ids[-3:]
  refit, _ = lego.fit(cfg, lego.drop(samples, gone))
  right, _ = lego.unlearn(state, samples, gone)
  assert lego.digest(right) == lego.digest(refit)
  monkeypatch.setattr(requests_lib, "advance", dishonest)
  wrong, _ = lego.unlearn(state, samples, gone)
  assert lego.digest(wrong) != lego.digest(refit)


def test_a_weight_that_is_one_off_changes_the_digest(monkeypatch, anew):
  cfg = lego.LegoConfig(CLASSES, num_adapters=8, top_k=2)
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  expected = lego.digest(lego.fit(cfg, samples)[0])
  honest = certified.solve_rounded

  def off(*args):
    weights, undecided = honest(*args)
    return weights.at[0, 0].add(1), undecided

  jax.clear_caches()
  monkeypatch.setattr(certified, "solve_rounded", off)
  assert lego.digest(lego.fit(cfg, samples)[0]) != expected


def test_keep_is_no_part_of_the_digest():
  solver = lego.Ridge(keep=False)
  cfg = lego.LegoConfig(CLASSES, num_adapters=8, top_k=2)
  other = dataclasses.replace(cfg, solver=solver)
  digests = set()
  for each in (cfg, other):
    samples = lego.make_samples(each, encodings(), labels(), ids())
    state, _ = lego.fit(each, samples)
    state, _ = lego.unlearn(state, samples, state.anchors[:2])
    digests.add(lego.digest(state))
  assert len(digests) == 1
