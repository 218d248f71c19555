"""One sha256 over everything that determines predictions and future requests.

Two states with the same digest answer every encoding alike and stay alike under the
same requests. The digest covers the settings, the retained set with fingerprints of
every encoding and label, the routes, the anchors, the keys and all weights, bit by bit.
"""

import hashlib
import importlib.metadata
import platform

import jax
import numpy as np

from legonet_jax.rebuild import LegoState

_VERSION = b"legonet-jax state 1"


def digest(state: LegoState) -> str:
  """The sha256 of a state, in hexadecimal."""
  sha = hashlib.sha256(_VERSION)
  for leaf in jax.tree.leaves(state):
    array = np.ascontiguousarray(leaf)
    sha.update(f"{array.dtype.str}{array.shape}".encode())
    sha.update(array.data)
  return sha.hexdigest()


def adapter_digests(state: LegoState) -> list[str]:
  """The sha256 of each adapter's key and weights [n], to see which ones differ."""
  keys, weights = np.asarray(state.model.keys), np.asarray(state.model.weights)
  return [
    hashlib.sha256(k.tobytes() + w.tobytes()).hexdigest()
    for k, w in zip(keys, weights, strict=True)
  ]


def environment() -> dict[str, str]:
  """What the bits of a state depend on besides its settings and samples."""
  device = jax.devices()[0]
  return {
    "jax": jax.__version__,
    "jaxlib": importlib.metadata.version("jaxlib"),
    "platform": device.platform,
    "device": device.device_kind,
    "machine": platform.machine(),
    "python": platform.python_version(),
    "numpy": np.__version__,
  }
