"""SISA: exact, and only what a request hits is trained."""

import dataclasses
import math

from baselines_world import SMALL
from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from legonet_jax import errors
from legonet_jax.baselines import (
  Learner,
  RncConfig,
  SisaConfig,
  sisa,
)
from legonet_jax.encoder import resnet

POOL = np.arange(20) * 10_000_000_019 + 5


def recorder(calls=None):
  """A learner whose model is the list of all that it was ever trained on."""

  def train(model, ids, stream, share):
    if calls is not None:
      calls.append((stream, len(ids)))
    assert len(ids)
    return (*model, (stream, share, tuple(sorted(ids.tolist()))))

  def predict(model, inputs):
    rng = np.random.default_rng(abs(hash(model)))
    p = rng.random((len(inputs), 3)).astype(np.float32)
    return p / p.sum(axis=1, keepdims=True)

  return Learner(lambda stream: (("init", stream),), train, predict)


def seen(state):
  """All ids that a live model was ever trained on, checkpoints included."""
  stages = [stage for shard in state.models for model in shard for stage in model]
  return {i for stage in stages if stage[0] != "init" for i in stage[2]}


def same(a, b):
  return np.array_equal(a.ids, b.ids) and a.models == b.models


SHARDED = st.builds(
  SisaConfig, st.integers(1, 4), st.integers(1, 4), seed=st.integers(0, 3)
)
REQUESTS = st.lists(
  st.sets(st.sampled_from(POOL.tolist()), min_size=1), min_size=1, max_size=5
)


def requests(cfg, learner, state, toggled):
  """Applies each request: what is in goes, what is not in comes; yields the states."""
  for names in toggled:
    names = np.array(sorted(names))
    gone, new = names[np.isin(names, state.ids)], names[~np.isin(names, state.ids)]
    if len(gone) == len(state.ids) and not len(new):
      continue
    if not len(new):
      after, info = sisa.unlearn(cfg, learner, state, gone)
    elif not len(gone):
      after, info = sisa.learn(cfg, learner, state, new)
    else:
      after, info = sisa.update(cfg, learner, state, gone, new)
    yield state, names, after, info
    state = after


@given(SHARDED, REQUESTS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_after_any_requests_sisa_is_a_fresh_fit_on_what_remains(cfg, toggled):
  learner = recorder()
  state, _ = sisa.fit(cfg, learner, POOL[::2])
  for before, names, after, _ in requests(cfg, learner, state, toggled):
    assert set(after.ids.tolist()) == set(before.ids.tolist()) ^ set(names.tolist())
    assert same(after, sisa.fit(cfg, learner, after.ids)[0])


@given(SHARDED, REQUESTS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_a_removed_sample_is_in_no_checkpoint_and_never_comes_back(cfg, toggled):
  learner = recorder()
  state, _ = sisa.fit(cfg, learner, POOL[::2])
  assert seen(state) == set(POOL[::2].tolist())
  for _, _, after, _ in requests(cfg, learner, state, toggled):
    assert seen(after) == set(after.ids.tolist())


@given(SHARDED, REQUESTS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_only_shards_that_are_hit_are_trained_and_from_the_first_changed_slice(
  cfg, toggled
):
  calls = []
  learner = recorder(calls)
  state, _ = sisa.fit(cfg, learner, POOL[::2])
  calls.clear()
  for before, names, after, info in requests(cfg, learner, state, toggled):
    wanted, kept = [], after.ids.tolist()
    place = dict(zip(POOL.tolist(), _places(cfg), strict=True))
    for shard in range(cfg.shards):
      hit = [place[i][1] for i in names.tolist() if place[i][0] == shard]
      if not hit:
        pairs = zip(after.models[shard], before.models[shard], strict=True)
        assert all(a is b for a, b in pairs)
        continue
      for stage in range(min(hit), cfg.slices):
        upto = sum(place[i][0] == shard and place[i][1] <= stage for i in kept)
        wanted += [(shard * cfg.slices + stage, upto)] if upto else []
    assert calls == wanted
    assert info.samples_passed == sum(count for _, count in wanted)
    calls.clear()


def _places(cfg):
  return zip(
    sisa.shard_of(cfg, POOL).tolist(), sisa.slice_of(cfg, POOL).tolist(), strict=True
  )


def test_a_shard_can_become_empty_and_be_filled_again():
  cfg, calls = SisaConfig(shards=3, slices=2), []
  learner = recorder(calls)
  state, _ = sisa.fit(cfg, learner, POOL)
  gone = POOL[sisa.shard_of(cfg, POOL) == 1]
  calls.clear()
  emptied, info = sisa.unlearn(cfg, learner, state, gone)
  assert emptied.models[1] == ()
  assert calls == []
  assert info.samples_passed == info.shards_trained == 0
  again, info = sisa.learn(cfg, learner, emptied, gone[::-1])
  assert {stream // cfg.slices for stream, _ in calls} == {1}
  assert info.shards_trained == 1
  assert same(again, state)


@pytest.mark.parametrize("other", [{"seed": 1}, {"shards": 4}, {"slices": 1}])
def test_a_request_with_the_settings_of_another_fit_is_refused(other):
  cfg, learner = SisaConfig(shards=3, slices=2), recorder()
  state, _ = sisa.fit(cfg, learner, POOL)
  with pytest.raises(errors.ConfigError, match="other shards"):
    sisa.unlearn(dataclasses.replace(cfg, **other), learner, state, POOL[:1])


def test_shards_and_slices_follow_from_the_id_and_are_about_equal():
  ids = np.arange(6000) * 7 + 3
  cfg = SisaConfig(shards=4, slices=3, seed=1)
  cell = 3 * sisa.shard_of(cfg, ids) + sisa.slice_of(cfg, ids)
  counts = np.bincount(cell, minlength=12)
  assert abs(counts - 500).max() < 5 * math.sqrt(500)
  np.testing.assert_array_equal(
    sisa.shard_of(cfg, ids[::-5]), sisa.shard_of(cfg, ids)[::-5]
  )
  other = dataclasses.replace(cfg, seed=2)
  assert (sisa.shard_of(other, ids) != sisa.shard_of(cfg, ids)).mean() > 0.6


def test_epochs_are_shared_among_slices_so_that_the_work_stays_the_same():
  for slices in (1, 2, 4):
    cfg = SisaConfig(shards=1, slices=slices)
    state, _ = sisa.fit(cfg, recorder(), np.arange(4000))
    stages = state.models[0][-1][1:]
    work = sum(share * len(ids) for _, share, ids in stages)
    assert work == pytest.approx(4000, rel=0.1)


@pytest.mark.parametrize("aggregate", ["probs", "vote"])
def test_prediction_is_the_mean_or_the_votes_of_live_shards(aggregate):
  cfg = SisaConfig(shards=4, aggregate=aggregate)
  learner, x = recorder(), np.zeros((7, 2))
  state, _ = sisa.fit(cfg, learner, POOL[sisa.shard_of(cfg, POOL) != 2])
  assert state.models[2] == ()
  slow = np.zeros((7, 3))
  for shard in (0, 1, 3):
    p = learner.predict(state.models[shard][-1], x)
    for row in range(7):
      if aggregate == "vote":
        slow[row, p[row].tolist().index(max(p[row]))] += 1 / 3
      else:
        slow[row] += p[row].astype(np.float64) / 3
  found = sisa.predict(cfg, learner, state, x)
  np.testing.assert_allclose(found, slow, rtol=1e-12)
  np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)


BAD = {
  "unknown": ([123456], [], errors.ForgottenIdError),
  "gone already": ([int(POOL[1])], [], errors.ForgottenIdError),
  "one of two unknown": ([int(POOL[0]), 7], [], errors.ForgottenIdError),
  "twice": ([int(POOL[0])] * 2, [], errors.DuplicateIdError),
  "empty": ([], [], errors.EmptyRequestError),
  "all": (POOL[::2], [], errors.TooFewSamplesError),
  "known": ([], [int(POOL[0])], errors.DuplicateIdError),
  "new twice": ([], [1, 1], errors.DuplicateIdError),
  "forget and learn": ([int(POOL[0])], [int(POOL[0])], errors.DuplicateIdError),
  "no integer": ([0.5], [], errors.SampleError),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_raise_and_train_nothing(name):
  gone, new, error = BAD[name]
  cfg, calls = SisaConfig(shards=3, slices=2), []
  learner = recorder(calls)
  state, _ = sisa.fit(cfg, learner, POOL[::2])
  calls.clear()
  with pytest.raises(error) as caught:
    sisa.update(cfg, learner, state, gone, new)
  assert "\n" not in str(caught.value)
  assert calls == []
  assert same(state, sisa.fit(cfg, learner, POOL[::2])[0])


@pytest.mark.parametrize(
  ("make", "setting"),
  [
    (SisaConfig, {"shards": 0}),
    (SisaConfig, {"slices": 0}),
    (SisaConfig, {"aggregate": "mean"}),
    (RncConfig, {"num_classes": 3, "epochs": 0}),
    (RncConfig, {"num_classes": 3, "batch_size": 0}),
    (RncConfig, {"num_classes": 3, "learning_rate": 0.0}),
    (RncConfig, {"num_classes": 3, "norm": "layer"}),
    (RncConfig, {"num_classes": 3, "learning_rate": math.nan}),
    (RncConfig, {"num_classes": 3, "learning_rate": math.inf}),
    (RncConfig, {"num_classes": 3, "augment": "crop"}),
    (RncConfig, {"num_classes": 3, "schedule": "linear"}),
  ],
)
def test_settings_that_cannot_work_are_named(make, setting):
  with pytest.raises(errors.ConfigError, match=list(setting)[-1]):
    make(**setting)


@pytest.fixture(scope="module", autouse=True)
def _small():
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(resnet.RESNETS, "small", SMALL)
    yield
