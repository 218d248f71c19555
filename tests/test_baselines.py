"""SISA, FixSISA and RNC: exact where they say so, and only the work they need."""

import collections
import dataclasses
import math

from conftest import CONFIG, encodings, ids as all_ids, labels
from hypothesis import given, settings, strategies as st
import jax
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.baselines import (
  ImageTable,
  Learner,
  RncConfig,
  SisaConfig,
  linear_learner,
  rnc,
  rnc_learner,
  sisa,
)
from legonet_jax.baselines.images import augment, batches
from legonet_jax.core.digest import digest_tree
from legonet_jax.core.ids import hash_ids
from legonet_jax.core.prediction import predict_array
from legonet_jax.encoder import ImageEncoder, resnet

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
  apart = [predict_array(one, layer.model, x) for layer in layers]
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


def numbered(count):
  """A table whose images say which row they are."""
  images = (
    np.zeros((count, 4, 4, 3), np.uint8)
    + np.arange(count, dtype=np.uint8)[:, None, None, None]
  )
  labels = (np.arange(count) * 3 % 7).astype(np.int32)
  return ImageTable(np.arange(count) * 11 + 2, images, labels)


def rows(table, ids, size, epochs=1, seed=0):
  """(row, label, word) of every sample of every batch."""
  found = []
  for batch in batches(table, ids, size, epochs, seed):
    assert batch.images.shape == (size, 4, 4, 3)
    which = batch.images[:, 0, 0, 0].tolist()
    found.append(
      list(zip(which, batch.labels.tolist(), batch.words.tolist(), strict=True))
    )
  return found


def test_batches_do_not_depend_on_the_order_of_ids_nor_on_the_rest_of_the_table():
  table = numbered(30)
  ids = table.ids[:21]
  wanted = rows(table, ids, 5, epochs=2, seed=9)
  shuffled = np.random.default_rng(0).permutation(ids)
  assert rows(table, shuffled, 5, epochs=2, seed=9) == wanted
  part = ImageTable(*(column[:21] for column in table))
  assert rows(part, ids, 5, epochs=2, seed=9) == wanted
  assert all(label == table.labels[row] for batch in wanted for row, label, _ in batch)


def test_an_epoch_has_every_sample_once_and_is_filled_up_from_its_beginning():
  table = numbered(10)
  order = np.argsort(hash_ids(3, table.ids)).tolist()
  first, second, last = (
    [row for row, _, _ in b] for b in rows(table, table.ids, 4, 1, 3)
  )
  assert [*first, *second, *last] == [*order, *order[:2]]
  (few,) = rows(table, table.ids[:3], 8)
  assert sorted(collections.Counter(row for row, _, _ in few).values()) == [2, 3, 3]


@given(st.sets(st.integers(0, 29), max_size=28), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_a_sample_left_out_moves_no_other_and_no_random_number(gone, seed):
  table = numbered(30)
  left = np.delete(table.ids, sorted(gone))

  def epochs(ids):
    whole = [sample for batch in rows(table, ids, 1, 2, seed) for sample in batch]
    return whole[: len(ids)], whole[len(ids) :]

  for every, some in zip(epochs(table.ids), epochs(left), strict=True):
    assert some == [sample for sample in every if sample[0] not in gone]


def test_epochs_seeds_and_streams_have_orders_and_augmentations_of_their_own():
  table = numbered(30)
  found = [
    tuple(sample for batch in half for sample in batch)
    for seed in (0, 1, 1 << 32, 2 << 32)
    for whole in [rows(table, table.ids, 10, 2, seed)]
    for half in (whole[:3], whole[3:])
  ]
  for column in (0, 2):
    assert len({tuple(s[column] for s in epoch) for epoch in found}) == 8
  words = np.array([word for epoch in found for _, _, word in epoch])
  assert abs((words & 1).mean() - 0.5) < 0.15


def test_batches_of_an_unknown_id_are_refused():
  table = numbered(5)
  for unknown in (1, 10**6):
    with pytest.raises(errors.UnknownIdError, match=f"id {unknown}"):
      next(batches(table, np.array([2, unknown]), 2, 1, 0))


@pytest.mark.parametrize("kind", ["none", "flip", "flip_shift"])
def test_augmentation_is_that_of_a_slow_loop(kind):
  rng = np.random.default_rng(1)
  images = rng.integers(1, 256, (40, 6, 9, 3), np.uint8)
  words = rng.integers(0, 2**32, 40, np.uint32)
  slow = np.zeros_like(images)
  for b, word in enumerate(words.tolist()):
    down, across = (word >> 1) % 9 - 4, (word >> 8) % 9 - 4
    for i in range(6):
      for j in range(9):
        y, x = (i + down, j + across) if kind == "flip_shift" else (i, j)
        if 0 <= y < 6 and 0 <= x < 9:
          flipped = kind != "none" and word & 1
          slow[b, i, j] = images[b, y, 8 - x if flipped else x]
  found = jax.jit(augment, static_argnums=0)(kind, images, words)
  assert found.dtype == np.uint8
  np.testing.assert_array_equal(found, slow)


def rates(cfg, total):
  rate = rnc.schedule(cfg, total)
  return np.array([rate(step + 1) for step in range(total)])


def test_the_rate_rises_linearly_and_then_stays_or_falls_as_a_cosine():
  cfg = RncConfig(3, learning_rate=0.4, schedule="constant", warmup=0.2)
  steps = np.arange(1, 51)
  rising = 0.4 * steps / 10
  np.testing.assert_allclose(rates(cfg, 50), np.minimum(rising, 0.4), rtol=1e-6)
  found = rates(dataclasses.replace(cfg, schedule="cosine"), 50)
  np.testing.assert_allclose(found[:10], rising[:10], rtol=1e-6)

  def cosine(horizon):
    return 0.2 * (1 + np.cos(np.pi * (steps[10:] - 10) / (horizon - 10)))

  # Whether 0 is reached at the last step or would be at the next is left open.
  assert (found[10:] >= cosine(50) - 1e-7).all()
  assert (found[10:] <= cosine(51) + 1e-7).all()
  assert found[-1] < 0.001


@pytest.mark.parametrize("total", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_every_step_of_a_schedule_moves_the_weights(schedule, total):
  cfg = RncConfig(3, learning_rate=0.1, schedule=schedule)
  assert (rates(cfg, total) > 0).all()


# A ResNet-18 with half of its blocks: every kind of layer, half of the compilation.
SMALL = resnet.ResNet((1, 1, 1, 1))
RNC = RncConfig(3, ImageEncoder("small", 32), epochs=1, batch_size=8, seed=1)


@pytest.fixture(scope="module", autouse=True)
def _small():
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(resnet.RESNETS, "small", SMALL)
    yield


@pytest.fixture(scope="module")
def table():
  rng = np.random.default_rng(0)
  labels = (np.arange(12) % 3).astype(np.int32)
  images = rng.integers(0, 120, (12, 32, 32, 3)) + 60 * labels[:, None, None, None]
  return ImageTable(np.arange(12) * 5 + 1, images.astype(np.uint8), labels)


@pytest.fixture(scope="module")
def pretrained():
  """Random weights; numpy draws them because `init` compiles every layer by itself."""
  init = SMALL.clone(mode="train").init
  shapes = jax.eval_shape(init, jax.random.key(0), np.zeros((1, 32, 32, 3)))
  rng = np.random.default_rng(0)

  def draw(path, leaf):
    name = path[-1].key
    if name == "kernel":
      size = math.sqrt(2 / math.prod(leaf.shape[:3]))
      return (rng.standard_normal(leaf.shape) * size).astype(np.float32)
    return np.full(leaf.shape, name in ("scale", "var"), np.float32)

  return jax.tree_util.tree_map_with_path(draw, shapes)


@pytest.fixture(scope="module")
def trained(table, pretrained):
  cfg = dataclasses.replace(RNC, epochs=6)
  return rnc.train(cfg, rnc.init(cfg, pretrained), table, table.ids)


def changed(table, ids):
  """The table with other images and labels under `ids`."""
  images, labels = table.images.copy(), table.labels.copy()
  hit = np.isin(table.ids, ids)
  images[hit] ^= 0xFF
  labels[hit] = (labels[hit] + 1) % 3
  return ImageTable(table.ids, images, labels)


def loss(model, table, ids):
  hit = np.isin(table.ids, ids)
  p = rnc.predict(RNC, model, table.images[hit])
  return -np.log(p[np.arange(hit.sum()), table.labels[hit]]).mean()


def test_rnc_starts_from_the_pretrained_network_and_a_layer_of_zeros(pretrained, table):
  model = rnc.init(RNC, pretrained)
  assert digest_tree(model.params) == digest_tree(pretrained["params"])
  p = rnc.predict(RNC, model, table.images[:2])
  np.testing.assert_allclose(p, np.full((2, 3), 1 / 3), rtol=1e-6)


def test_rnc_is_a_function_of_the_set_of_samples_bit_for_bit(pretrained, table):
  start = rnc.init(RNC, pretrained)
  once = rnc.train(RNC, start, table, table.ids)
  again = rnc.train(RNC, start, table, table.ids[::-1].copy())
  assert digest_tree(once) == digest_tree(again) != digest_tree(start)
  assert digest_tree(rnc.train(RNC, start, table, table.ids[:11])) != digest_tree(once)
  other = rnc.train(RNC, start, table, table.ids, stream=3)
  assert digest_tree(other) != digest_tree(once)


def test_the_callers_flags_change_nothing_of_rnc(pretrained, table):
  def both():
    model = rnc.train(RNC, rnc.init(RNC, pretrained), table, table.ids)
    return digest_tree((model, rnc.predict(RNC, model, table.images)))

  plain = both()
  with jax.enable_x64(True), jax.default_matmul_precision("bfloat16"):
    assert both() == plain


def test_training_brings_the_loss_down(pretrained, trained, table):
  assert loss(trained, table, table.ids) < 0.7 * math.log(3)


def test_with_running_statistics_training_moves_weights_alone(pretrained, table):
  cfg = dataclasses.replace(RNC, epochs=6, norm="running", learning_rate=0.002)
  start = rnc.init(cfg, pretrained)
  model = rnc.train(cfg, start, table, table.ids)
  assert digest_tree(model.batch_stats) == digest_tree(start.batch_stats)
  assert digest_tree(model.params) != digest_tree(start.params)
  assert loss(model, table, table.ids) < 0.9 * loss(start, table, table.ids)


@pytest.mark.parametrize("way", ["retrain", "tune"])
def test_what_is_forgotten_is_never_read(pretrained, trained, table, way):
  retain, gone = table.ids[:9], table.ids[9:]

  def run(table):
    if way == "tune":
      return digest_tree(rnc.tune(RNC, trained, table, retain))
    return digest_tree(rnc.train(RNC, rnc.init(RNC, pretrained), table, retain))

  assert run(changed(table, gone)) == run(table)
  assert run(changed(table, retain[:1])) != run(table)


@pytest.mark.parametrize("count", [3, 12])
def test_ngrad_raises_the_loss_on_what_is_forgotten(trained, table, count):
  up = dataclasses.replace(RNC, epochs=4, schedule="constant", warmup=0.0)
  # The running statistics of BatchNorm move in both, and by the same.
  moved, still = (
    rnc.ngrad(cfg, trained, table, table.ids[:count])
    for cfg in (up, dataclasses.replace(up, learning_rate=1e-12))
  )
  gone = table.ids[:count]
  assert loss(moved, table, gone) > loss(still, table, gone) + 0.02


def test_a_small_shard_has_a_small_batch_and_a_large_one_the_full():
  cfg = dataclasses.replace(RNC, batch_size=64)
  sizes = [rnc.batch_size(cfg, count) for count in (1, 3, 8, 9, 1000)]
  assert sizes == [8, 8, 8, 16, 64]


def test_ngrad_reads_nothing_but_what_is_forgotten(trained, table):
  gone = table.ids[:3]
  found = [
    digest_tree(rnc.ngrad(RNC, trained, t, gone))
    for t in (table, changed(table, table.ids[3:]), changed(table, gone))
  ]
  assert found[0] == found[1] != found[2]


def test_one_image_has_the_probabilities_that_it_has_among_many(trained, table):
  many = np.concatenate([table.images] * 9)[:105]  # more than one call's
  whole = rnc.predict(RNC, trained, many)
  assert whole.shape == (105, 3)
  np.testing.assert_allclose(whole.sum(axis=1), 1, rtol=1e-5)
  np.testing.assert_array_equal(whole[[0, 96]], whole[[0, 0]])
  np.testing.assert_array_equal(rnc.predict(RNC, trained, many[7:8]), whole[7:8])


def test_sisa_of_whole_networks_equals_its_refit_bit_for_bit(pretrained, table):
  learner = rnc_learner(RNC, pretrained, table)
  split = SisaConfig(shards=2, slices=2)
  state, _ = sisa.fit(split, learner, table.ids)
  for gone in (table.ids[:1], table.ids[[4, 7]]):
    state, _ = sisa.unlearn(split, learner, state, gone)
  hidden = rnc_learner(RNC, pretrained, changed(table, table.ids[[0, 4, 7]]))
  refit, _ = sisa.fit(split, hidden, np.delete(table.ids, [0, 4, 7]))
  assert sisa.digest(state) == sisa.digest(refit)


def test_a_stage_has_its_share_of_the_epochs(monkeypatch, pretrained, table):
  epochs = []
  monkeypatch.setattr(rnc, "train", lambda cfg, *_: epochs.append(cfg.epochs))
  learner = rnc_learner(dataclasses.replace(RNC, epochs=9), pretrained, table)
  for share in (1.0, 2 / 3, 0.5, 0.01):
    learner.train(None, table.ids, 0, share)
  assert epochs == [9, 6, 4, 1]
