"""What callers can follow long work with: how far it is, and which step is done."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (samples passed, samples in all)."""

OnStep = Callable[[str], None]
"""Called with the name of a step when it is done."""


def no_step(_: str) -> None:
  """For callers who do not follow the steps."""
