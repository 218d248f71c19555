"""`legonet doctor`: checks by known answers whether this JAX computes correctly."""

from __future__ import annotations

import argparse

import legonet_jax as lego
from legonet_jax.cli import common, console

TEXT = """\
Sends small problems with known answers through this library's own functions on the
default device: codes, keys, routes, integer sums, a ridge solution, training steps, a
prediction, and a sum of squares that jax 0.10.2 gets wrong on CPU. Exit code 1 if an
answer is wrong: then no digest made here proves anything.

examples:
  legonet doctor
  legonet doctor --json
  JAX_PLATFORMS=cpu legonet doctor
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""


def run(args: argparse.Namespace) -> int:
  """Runs the command; 0 if every answer is right, else 1."""
  say = console.sayer(args.json)
  environment = _environment()
  for name, value in environment.items():
    say(f"{name:12} {value}")
  say("")
  checks = []
  for check in lego.doctor.examine():
    checks.append(check)
    say(f"{'ok  ' if check.passed else 'FAIL'}  {check.name:10}  {check.detail}")
  wrong = [check.name for check in checks if not check.passed]
  passed = not wrong
  report = {
    "passed": passed,
    "environment": environment,
    "checks": [check._asdict() for check in checks],
  }
  common.show(args, report, f"\nall {len(checks)} answers are right" if passed else "")
  if wrong:
    number = f"{len(wrong)} of {len(checks)} known answers"
    console.complain(
      f"this JAX gets {number} wrong: {', '.join(wrong)}; {lego.doctor.CURE}"
    )
  return 0 if passed else 1


def _environment() -> dict[str, str]:
  """The environment, or the error if the backend does not even start."""
  try:
    return lego.environment()
  except Exception as e:
    return {"error": console.one_line(f"{type(e).__name__}: {e}")}
