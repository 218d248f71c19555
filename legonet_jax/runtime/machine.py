"""The host's memory and processor name.

Linux tells more than macOS does; each function has a fallback for what is not told.
"""

import os
import pathlib
import platform
import subprocess


def memory_bytes() -> int | None:
  """Bytes of memory that the machine has; None if the system does not tell."""
  try:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
  except (AttributeError, ValueError, OSError):
    return None
  return memory if memory > 0 else None


def processor_name() -> str:
  """The processor's model name, as exact as the system tells it."""
  if platform.system() == "Darwin":  # `platform.processor` says "arm" for all of them
    command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
      told = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
      return platform.processor()
    return told.stdout.strip() or platform.processor()
  try:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
  except OSError:
    return platform.processor()
  return next(
    (s.split(":")[1].strip() for s in lines if s.startswith("model name")), ""
  )
