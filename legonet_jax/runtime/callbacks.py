"""Callbacks that tell a caller how far long work is, and which step is done."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (samples passed, samples in all)."""

OnStep = Callable[[str], None]
"""Called with the name of a step when it is done."""


def no_step(_: str) -> None:
  """Ignores the step."""
