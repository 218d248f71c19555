"""The environment: what float weights depend on besides settings and samples.

States of a portable solver (`Ridge`) are the same on every environment; for them it is
information only.
"""

from collections.abc import Mapping
import importlib.metadata
import os
import pathlib
import platform
import re

import jax

from legonet_jax.runtime import flags, machine

_NOT_IN_BITS = ("python",)
# The names of all entries that any machine has.
NAME = re.compile(
  "jax|jaxlib|optax|numpy|scipy|platform|device|machine|processor|cpu_threads|xla_flags"
  "|python|backend|driver|compiler_options|(nvidia|jax-cuda)[a-z0-9-]*"
)


def environment() -> dict[str, str]:
  """All that the bits of float weights may depend on besides settings and samples."""
  device = jax.devices()[0]
  packages = ("jax", "jaxlib", "optax", "numpy", "scipy")  # jax uses scipy's LAPACK
  return {
    **{name: importlib.metadata.version(name) for name in packages},
    "platform": device.platform,
    "device": device.device_kind,
    "machine": platform.machine(),
    "processor": machine.processor_name(),
    "cpu_threads": str(os.cpu_count()),
    "xla_flags": os.environ.get("XLA_FLAGS", ""),
    **_gpu(device),
    "python": platform.python_version(),
  }


def _gpu(device: jax.Device) -> dict[str, str]:
  """What the bits of a GPU depend on besides: its libraries and its driver."""
  if device.platform not in ("gpu", "cuda", "rocm"):
    return {}
  packages = ("nvidia-cublas", "nvidia-cusolver", "nvidia-cuda-runtime", "nvidia-cudnn")
  found = {"backend": device.client.platform_version.replace("\n", " ")}
  for dist in importlib.metadata.distributions():
    name = dist.metadata["Name"] or ""
    if name.startswith(packages) or name.startswith("jax-cuda"):
      found[name] = dist.version
  try:
    told = pathlib.Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
  except (OSError, IndexError):
    told = ""
  return {**found, "driver": told, "compiler_options": str(flags.DETERMINISTIC)}


def differences(there: Mapping[str, str]) -> dict[str, tuple[str, str]]:
  """How this environment differs from the one `there`: name -> (there, here).

  Leaves out entries that cannot change a bit, such as Python's version.
  """
  here = {k: v for k, v in environment().items() if k not in _NOT_IN_BITS}
  return {k: (there.get(k, ""), v) for k, v in here.items() if there.get(k) != v}
