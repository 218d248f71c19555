"""The result of one check: of a run, of a certificate, or of this machine."""

from typing import NamedTuple


class Check(NamedTuple):
  """One thing that was looked at."""

  name: str
  passed: bool
  detail: str
