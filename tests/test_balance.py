"""How evenly samples spread over the adapters."""

import numpy as np

from legonet_jax.core.balance import balance


def test_balance_equals_its_definition():
  sizes = np.array([0, 3, 9, 4, 4])
  pairs = np.abs(sizes[:, None] - sizes[None]).mean()
  assert balance(sizes) == (0, 4.0, 9, pairs / (2 * sizes.mean()))
  assert balance(np.array([5, 5, 5])).gini == 0
