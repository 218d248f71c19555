"""Memberships and their balance."""

from conftest import CONFIG
import numpy as np

from legonet_jax.core import membership


def test_members_are_the_samples_whose_routes_name_the_adapter(state):
  wanted = np.array([0, 3, 4, 7])
  members = membership.members_of(state.routes, CONFIG.num_adapters, wanted)
  for i, j in enumerate(wanted):
    got = members.positions[members.offsets[i] : members.offsets[i + 1]]
    np.testing.assert_array_equal(got, np.flatnonzero((state.routes == j).any(1)))
  np.testing.assert_array_equal(
    members.sizes, membership.sizes_of(state.routes, CONFIG.num_adapters)[wanted]
  )


def test_all_memberships_together_have_k_entries_per_sample(state):
  n = CONFIG.num_adapters
  members = membership.members_of(state.routes, n, np.arange(n))
  assert len(members.positions) == len(state.ids) * CONFIG.top_k
  assert members.offsets.shape == (n + 1,)


def test_balance_equals_its_definition():
  sizes = np.array([0, 3, 9, 4, 4])
  got = membership.balance(sizes)
  pairs = np.abs(sizes[:, None] - sizes[None]).mean()
  assert got == (0, 4.0, 9, pairs / (2 * sizes.mean()))
  assert membership.balance(np.array([5, 5, 5])).gini == 0
