"""One sha256 over everything that determines predictions and future requests.

Two states with the same digest answer every encoding alike and stay alike under the
same requests. The digest covers the settings, the retained set with fingerprints of
every encoding and label, the routes, the anchors, the keys and all weights, bit by bit.
"""

import hashlib
import importlib.metadata
import os
import pathlib
import platform
from typing import Any

import jax
import numpy as np

from legonet_jax.core.retained import join
from legonet_jax.core.state import LegoState

_VERSION = b"legonet-jax state 1"


def digest(state: LegoState) -> str:
  """The sha256 of a state, in hexadecimal."""
  parts = (state.model, state.anchors, join(state.retained), state.settings)
  return digest_tree(parts, _VERSION)


def digest_tree(tree: Any, prefix: bytes = b"") -> str:
  """The sha256 of all arrays of a tree, bit by bit, with their shapes and types."""
  sha = hashlib.sha256(prefix)
  for leaf in jax.tree.leaves(tree):
    array = np.ascontiguousarray(leaf)
    if array.dtype.hasobject:  # its bytes are addresses: another process has others
      raise TypeError(f"a digest is of arrays; this tree has a {type(leaf).__name__}")
    sha.update(f"{array.dtype.str}{array.shape}".encode())
    sha.update(array.data)
  return sha.hexdigest()


def environment() -> dict[str, str]:
  """What the bits of a state depend on besides its settings and samples."""
  device = jax.devices()[0]
  packages = ("jax", "jaxlib", "optax", "numpy", "scipy")  # jax has scipy's LAPACK
  return {
    **{name: importlib.metadata.version(name) for name in packages},
    "platform": device.platform,
    "device": device.device_kind,
    "machine": platform.machine(),
    "processor": _processor(),
    "cpu_threads": str(os.cpu_count()),
    "xla_flags": os.environ.get("XLA_FLAGS", ""),
    "python": platform.python_version(),
  }


def _processor() -> str:
  """The CPU's model name where the system tells it."""
  try:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
  except OSError:
    return platform.processor()
  return next(
    (s.split(":")[1].strip() for s in lines if s.startswith("model name")), ""
  )
