"""The way to a state leaves no trace: solver, threads, batches and kept sums."""

import dataclasses

from conftest import CLASSES, encodings, ids, labels
import numpy as np
import portable_reference as reference
import pytest

from experiments import portable_fuzz as fuzz
import legonet_jax as lego
from legonet_jax.core import requests as requests_lib
from legonet_jax.runtime import parallel
from legonet_jax.solvers import rounding


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


def test_the_other_way_is_really_another(monkeypatch):
  """The stand-ins are called, and they compute other estimates of the weights."""
  system = rounding.System(
    np.array([[5.0, 3.0, 1.0], [3.0, 7.0, 2.0], [1.0, 2.0, 9.0]]),
    1,
    np.array([[1, 2, 3]], np.int32),
    30,
  )
  target = system.cross * 2.0**30
  ours, theirs = rounding.make_solver(system), fuzz.make_lu_solver(system)
  assert not np.array_equal(ours(target), theirs(target))
  calls = []

  def counted(system):
    calls.append(parallel.count())
    return theirs_for(system)

  theirs_for = fuzz.make_lu_solver
  monkeypatch.setattr(fuzz, "make_lu_solver", counted)
  fuzz.run(0)
  assert calls
  assert set(calls) == {1}


def test_a_fuzz_that_forgets_too_little_is_noticed(monkeypatch):
  """A library that leaves one sample in must not pass."""
  honest = requests_lib.rebuild

  def dishonest(cfg, samples, old, removed, added, *rest):
    kept = removed[1:] if len(removed) > 1 else removed
    return honest(cfg, samples, old, kept, added, *rest)

  cfg = lego.LegoConfig(CLASSES, num_adapters=8, top_k=2)
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  state, _ = lego.fit(cfg, samples)
  gone = state.ids[-3:]
  refit, _ = lego.fit(cfg, lego.drop(samples, gone))
  right, _ = lego.unlearn(cfg, state, samples, gone)
  assert lego.digest(right) == lego.digest(refit)
  monkeypatch.setattr(requests_lib, "rebuild", dishonest)
  wrong, _ = lego.unlearn(cfg, state, samples, gone)
  assert lego.digest(wrong) != lego.digest(refit)


def test_a_weight_that_is_one_off_changes_the_digest(monkeypatch):
  cfg = lego.LegoConfig(CLASSES, num_adapters=8, top_k=2)
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  expected = lego.digest(lego.fit(cfg, samples)[0])
  honest = rounding.solve_rounded

  def off(system, solve=None):
    found = honest(system, solve)
    found.weights[0, 0] += 1
    return found

  monkeypatch.setattr(rounding, "solve_rounded", off)
  assert lego.digest(lego.fit(cfg, samples)[0]) != expected


def test_keep_is_no_part_of_the_digest():
  solver = lego.Ridge(keep=False)
  cfg = lego.LegoConfig(CLASSES, num_adapters=8, top_k=2)
  other = dataclasses.replace(cfg, solver=solver)
  digests = set()
  for each in (cfg, other):
    samples = lego.make_samples(each, encodings(), labels(), ids())
    state, _ = lego.fit(each, samples)
    state, _ = lego.unlearn(each, state, samples, state.anchors[:2])
    digests.add(lego.digest(state))
  assert len(digests) == 1
