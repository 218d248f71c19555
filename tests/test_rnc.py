"""RNC: whole networks, fine-tuned, forgotten by Tune, NGrad and SISA."""

import dataclasses
import math

from baselines_world import (
  SMALL,
  table,  # noqa: F401 (a fixture)
)
import jax
import numpy as np
import pytest

from legonet_jax.baselines import (
  ImageTable,
  RncConfig,
  SisaConfig,
  rnc,
  rnc_learner,
  sisa,
)
from legonet_jax.encoder import ImageEncoder, resnet
from legonet_jax.host.digest import digest_tree

RNC = RncConfig(3, ImageEncoder("small", 32), epochs=1, batch_size=8, seed=1)


@pytest.fixture(scope="module", autouse=True)
def _small():
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(resnet.RESNETS, "small", SMALL)
    yield


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
