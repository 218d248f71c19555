"""What the tests of measures share."""

from hypothesis import settings
import numpy as np

FAST = settings(max_examples=30, deadline=None)


def normal(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape)
