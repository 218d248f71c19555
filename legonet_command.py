"""The command `legonet`, as it begins: before JAX is imported.

It stands outside the package because importing any part of that imports JAX, which
reads its log level once, at that moment.
"""

from collections.abc import Sequence
import os
import sys


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns its exit code."""
  # XLA takes executables from its own cache for foreign ones on most Intel processors
  # and says so in pages of text (openxla/xla 44565). What really fails is an exception.
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
  try:
    from legonet_jax.cli.main import main as run
  except KeyboardInterrupt:
    print("legonet: interrupted, nothing was begun", file=sys.stderr)
    return 130
  return run(argv)
