"""The result of one check: of a run, of a certificate, or of this machine."""

from typing import NamedTuple


class Check(NamedTuple):
  """The name of a check, whether it passed, and details."""

  name: str
  passed: bool
  detail: str
