"""One digest and the same classes, whatever the processor, flags or float solver are.

`python -m benchmarks.portable` does this at full size in all environments.
"""

import json

import pytest

from benchmarks import portable

_TINY = ["--thin", "20", "--adapters", "12", "--requests", "4"]


@pytest.fixture(scope="module")
def machine():
  return portable.run_here("machine", _TINY)


@pytest.mark.parametrize("name", ["blas-prescott", "xla-sse4.2", "noise-1e-6"])
def test_one_digest_and_the_same_classes_in_another_environment(machine, name):
  reason = portable.why_not(portable.ENVIRONMENTS[name])
  if reason:
    pytest.skip(reason)
  other = portable.run_here(name, _TINY)
  assert portable.compare(machine, other) == []
  assert machine["anchors_forgotten"] > 0
  if name.startswith("noise"):  # the rounding had to see through it
    assert other["rounding"]["solves"] > machine["rounding"]["solves"]


def test_a_difference_is_found_and_named(machine):
  other = json.loads(json.dumps(machine))
  other["parts"]["requests"]["weights"] = "another"
  other["digests"]["requests"] = "another"
  wrong = portable.compare(machine, other)
  assert wrong == ["weights after requests", "digests after requests"]
