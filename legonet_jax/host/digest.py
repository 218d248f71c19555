"""One sha256 over everything that determines predictions and future requests.

Two states with the same digest give the same predictions and stay equal under the same
requests. The digest covers the settings, the retained set with fingerprints of every
encoding and label, the routes, the anchors, the keys and all weights, bit by bit.
"""

import hashlib
from typing import Any

import jax
import numpy as np

from legonet_jax.host.state import LegoState, require_state
from legonet_jax.runtime import flags

VERSION = "legonet-jax state 2"
OLD_VERSION = "legonet-jax state 1"


@flags.host_only()
def digest(state: LegoState, version: str = VERSION) -> str:
  """The sha256 of a state, in hexadecimal.

  Args:
    state: the state.
    version: what the digest begins with; another one is needed only to recognise a
      state of an earlier version of this library.
  """
  require_state(state)
  net, weights = state.net, state.weights
  parts = (
    net.keys, weights, net.live, state.anchors, state.ids, state.routes, state.prints,
    state.settings,
  )  # fmt: skip
  return digest_tree(parts, version.encode())


def digest_tree(tree: Any, prefix: bytes = b"") -> str:
  """The sha256 of all arrays of a tree, bit by bit, with their shapes and types."""
  sha = hashlib.sha256(prefix)
  for leaf in jax.tree.leaves(tree):
    array = np.ascontiguousarray(leaf)
    if array.dtype.hasobject:  # it holds addresses, which differ between processes
      raise TypeError(f"a digest takes arrays; this tree has a {type(leaf).__name__}")
    sha.update(f"{array.dtype.str}{array.shape}".encode())
    sha.update(array.data)
  return sha.hexdigest()
