"""What the tests of the baselines share."""

import numpy as np
import pytest

from legonet_jax.baselines import (
  ImageTable,
)
from legonet_jax.encoder import resnet

# A ResNet-18 with half of its blocks: every kind of layer, half of the compilation.
SMALL = resnet.ResNet((1, 1, 1, 1))


@pytest.fixture(scope="module")
def table():
  rng = np.random.default_rng(0)
  labels = (np.arange(12) % 3).astype(np.int32)
  images = rng.integers(0, 120, (12, 32, 32, 3)) + 60 * labels[:, None, None, None]
  return ImageTable(np.arange(12) * 5 + 1, images.astype(np.uint8), labels)
