"""FixSISA: SISA of linear layers on shared encodings."""

import dataclasses

from baselines_world import SMALL
from conftest import CONFIG, encodings, ids as all_ids, labels
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.baselines import (
  SisaConfig,
  linear_learner,
  sisa,
)
from legonet_jax.core.prediction import predict_array
from legonet_jax.encoder import resnet
from legonet_jax.host.digest import digest_tree

SOLVERS = pytest.mark.parametrize(
  "solver", [lego.Ridge(), CONFIG.solver], ids=["ridge", "sgd"]
)


def fixsisa(solver, slices=1):
  cfg = dataclasses.replace(CONFIG, solver=solver, feature_map="l2", aggregate="probs")
  samples = lego.make_samples(cfg, encodings(), labels(), all_ids())
  return cfg, samples, SisaConfig(3, slices, seed=4), linear_learner(cfg, samples)


@SOLVERS
def test_fixsisa_forgets_in_turns_bit_for_bit_as_a_refit(solver):
  _, samples, split, learner = fixsisa(solver)
  state, _ = sisa.fit(split, learner, samples.ids)
  for gone in (samples.ids[:1], samples.ids[[3, 9, 40, 59]]):
    state, _ = sisa.unlearn(split, learner, state, gone)
    refit, _ = sisa.fit(split, learner, state.ids)
    assert sisa.digest(state) == sisa.digest(refit)
  whole, _ = sisa.fit(split, learner, samples.ids)
  assert sisa.digest(state) != sisa.digest(whole)
  back, _ = sisa.learn(split, learner, state, np.setdiff1d(samples.ids, state.ids))
  assert sisa.digest(back) == sisa.digest(whole)


def test_a_digest_of_sisa_is_of_values_not_of_addresses():
  _, samples, split, learner = fixsisa(lego.Ridge())
  state, _ = sisa.fit(split, learner, samples.ids)
  other = state._replace(settings=dataclasses.replace(split))
  assert other.settings is not state.settings
  assert sisa.digest(other) == sisa.digest(state)
  moved = state._replace(settings=dataclasses.replace(split, seed=5))
  assert sisa.digest(moved) != sisa.digest(state)
  with pytest.raises(TypeError, match="SisaConfig"):
    digest_tree(state)


@SOLVERS
def test_fixsisa_is_the_mean_of_a_linear_layer_on_each_shard(solver):
  cfg, samples, split, learner = fixsisa(solver)
  state, _ = sisa.fit(split, learner, samples.ids)
  one = dataclasses.replace(cfg, num_adapters=1, top_k=1)
  x, shards = encodings(9, seed=5), sisa.shard_of(split, samples.ids)
  # Through the same function: the last bit of a probability may depend on the shape of
  # the batch that it is computed in, and the promise is about the mean.
  layers = [
    lego.fit(one, lego.select(samples, samples.ids[shards == s]))[0] for s in range(3)
  ]
  apart = [predict_array(layer.model, x) for layer in layers]
  found = sisa.predict(split, learner, state, x)
  np.testing.assert_allclose(found, np.mean(apart, axis=0, dtype=np.float64), rtol=1e-7)


def test_slices_change_no_layer_of_fixsisa():
  _, samples, split, learner = fixsisa(lego.Ridge())
  sliced = dataclasses.replace(split, slices=3)
  whole, _ = sisa.fit(split, learner, samples.ids)
  staged, _ = sisa.fit(sliced, learner, samples.ids)
  assert [len(models) for models in staged.models] == [3, 3, 3]
  last = [models[-1] for models in staged.models]
  assert digest_tree(last) == digest_tree(whole.models)


def test_fixsisa_cannot_learn_what_is_not_in_the_table():
  _, samples, split, learner = fixsisa(lego.Ridge())
  state, _ = sisa.fit(split, learner, samples.ids[:20])
  with pytest.raises(errors.UnknownIdError):
    sisa.learn(split, learner, state, [123])


@pytest.fixture(scope="module", autouse=True)
def _small():
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(resnet.RESNETS, "small", SMALL)
    yield
