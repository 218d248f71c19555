"""Real weights and real images, where the project's shared folder is at hand.

LEGONET_SHARED names the folder (default: `shared` beside the repository), LEGONET_CIFAR
one with CIFAR-10's official files (`python shared/tools/cifar10_from_npm.py DIR`).
"""

import functools
import os
import pathlib

import numpy as np
import pytest

from legonet_jax import data
from legonet_jax.encoder import encode as encode_lib, resnet, weights

_HERE = pathlib.Path(__file__).resolve().parent
SHARED = pathlib.Path(os.environ.get("LEGONET_SHARED", _HERE.parent.parent / "shared"))
CIFAR = os.environ.get("LEGONET_CIFAR")
COUNT = int(os.environ.get("LEGONET_COUNT", "64"))


@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason=f"needs {SHARED}/data")
@pytest.mark.skipif(not CIFAR, reason="needs CIFAR-10: set LEGONET_CIFAR")
def test_encodings_equal_those_of_pytorch_to_float16_precision():
  net = resnet.build_resnet("resnet34")
  loaded = weights.load(net, SHARED / "data" / "resnet34_imagenet.safetensors")
  spec = encode_lib.ImageEncoder("resnet34", 224)
  params = encode_lib.prepare(spec, loaded.variables)
  images = data.load_dataset("cifar10", 224, folder=pathlib.Path(CIFAR))
  images = data.take(images, "test", COUNT)
  encode = functools.partial(encode_lib.encode_images, spec)
  ours = np.concatenate(list(encode_lib.encode_batches(encode, params, images, 16)))
  folder = SHARED / "data" / "cifar10_resnet34_224"
  theirs = np.load(folder / "test_encodings.npy")[:COUNT]
  np.testing.assert_array_equal(
    images.labels, np.load(folder / "test_labels.npy")[:COUNT]
  )
  # Half a unit in the last place of float16, and float32's own error of a deep network.
  allowed = 0.5 * np.spacing(np.abs(theirs)).astype(np.float64)
  assert np.all(np.abs(ours - theirs.astype(np.float64)) <= allowed + 2e-5)
