"""The retained set: in hash order, in chunks that share nothing with the forgotten."""

from hypothesis import given, settings, strategies as st
import numpy as np

from legonet_jax.core import ids as ids_lib, retained as retained_lib
from legonet_jax.core.retained import RetainedRows

SEED = 3
IDS = st.sets(st.integers(0, 2**62), min_size=1, max_size=60)


def rows_of(ids):
  """Rows whose columns can be told from each other and from other ids'."""
  ids = np.array(sorted(ids), np.int64)
  prints = np.stack([ids] * 2, axis=1).view(np.uint8)
  return RetainedRows(
    ids, np.stack([ids % 7, ids % 5], axis=1).astype(np.int32), prints
  )


def made(ids):
  start = retained_lib.empty(top_k=2)
  return retained_lib.exchange(SEED, start, np.zeros(0, np.int64), rows_of(ids))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(IDS, IDS, st.randoms())
def test_an_exchange_gives_the_same_set_as_a_fresh_start(first, second, random):
  removed = set(random.sample(sorted(first), random.randint(0, len(first))))
  added = second - first
  changed = retained_lib.exchange(
    SEED, made(first), np.array(sorted(removed), np.int64), rows_of(added)
  )
  afresh = made(first - removed | added)
  for a, b in zip(changed, afresh, strict=True):
    for x, y in zip(a, b, strict=True):
      np.testing.assert_array_equal(x, y, strict=True)
  whole = retained_lib.join(changed)
  assert set(whole.ids.tolist()) == first - removed | added
  hashes = ids_lib.hash_ids(SEED, whole.ids)
  assert (hashes[1:] > hashes[:-1]).all()
  np.testing.assert_array_equal(retained_lib.first(changed, 9), whole.ids[:9])
  assert retained_lib.count(changed) == len(whole.ids)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(IDS, IDS)
def test_look_up_finds_what_is_held_in_the_order_of_the_request(held, others):
  wanted = np.array(sorted(held | others, key=lambda i: i % 97), np.int64)
  found, rows = retained_lib.look_up(SEED, made(held), wanted)
  np.testing.assert_array_equal(found, [i in held for i in wanted.tolist()])
  np.testing.assert_array_equal(rows.ids, wanted[found])
  np.testing.assert_array_equal(rows.prints.view(np.int64)[:, 0], wanted[found])


def test_split_undoes_join():
  chunks = made(range(0, 10**6, 997))
  again = retained_lib.split(retained_lib.join(chunks), retained_lib.counts(chunks))
  for a, b in zip(chunks, again, strict=True):
    np.testing.assert_array_equal(a.ids, b.ids)


def test_untouched_chunks_are_shared_and_touched_ones_own_their_memory():
  before = made(range(0, 10**6, 997))
  gone = before[10].ids[:1]
  after = retained_lib.exchange(SEED, before, gone, rows_of([]))
  shared = [a is b or a.ids is b.ids for a, b in zip(before, after, strict=True)]
  assert shared.count(False) == 1
  # A view would keep the forgotten row alive in the array that it looks into.
  for chunk in after:
    assert all(array.base is None for array in chunk)
    assert all(not array.flags.writeable for array in chunk)
