"""Batches of images and learning rates, in an order that ids alone decide."""

import collections
import dataclasses

from baselines_world import (
  SMALL,
  table,  # noqa: F401 (a fixture)
)
from hypothesis import given, settings, strategies as st
import jax
import numpy as np
import pytest

from legonet_jax import errors
from legonet_jax.baselines import (
  ImageTable,
  RncConfig,
  rnc,
)
from legonet_jax.baselines.images import augment, batches
from legonet_jax.core.ids import hash_ids
from legonet_jax.encoder import resnet


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


@pytest.fixture(scope="module", autouse=True)
def _small():
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(resnet.RESNETS, "small", SMALL)
    yield
