"""Errors in a caller's input: one exception class for each remedy.

Every message is one line that says what is wrong and what to do. The command line
prints it unchanged and exits with 2. Every function of this library checks its input
before it changes anything.
"""

import operator


class LegoError(ValueError):
  """Base of all errors that a caller can correct."""


class ConfigError(LegoError):
  """A setting is out of range or contradicts another one."""


class UnknownSolverError(ConfigError):
  """Settings name a solver whose module is not imported; nothing is damaged."""


class TracedError(LegoError):
  """A host function was called inside `jit`, `vmap` or another transformation."""


class SampleError(LegoError):
  """Encodings, labels or keys have a wrong shape, type or value."""


class DuplicateIdError(LegoError):
  """A sample id occurs twice, or exists already."""


class UnknownIdError(LegoError):
  """A request names an id that no given sample has."""


class ForgottenIdError(LegoError):
  """A request names a sample that the model does not hold, or no longer holds."""


class EmptyRequestError(LegoError):
  """A request names no sample at all."""


class TooFewSamplesError(LegoError):
  """Fewer samples than adapters would remain, so some keys would have no anchor."""


class SamplesMismatchError(LegoError):
  """The given samples are not the ones that the state was trained on."""


class WeightsError(LegoError):
  """A weights file is missing, damaged, unsafe or belongs to another network."""


class DownloadError(LegoError):
  """A file could not be fetched, or is not the expected one."""


class DataError(LegoError):
  """A dataset is missing, damaged or not in a form that can be read."""


class StoreError(LegoError):
  """An encoding store is missing, incomplete, damaged or made with other settings."""


class RunError(LegoError):
  """A run folder is missing, unfinished, damaged or in use by another process."""


class OldRunError(RunError):
  """The run was made by an earlier version, whose numbers are defined otherwise."""


class RunBusyError(RunError):
  """Another process is working on the run."""


class LinkError(RunError):
  """A run or a store holds a link, a FIFO or a device where a plain file belongs."""


class RelearnError(LegoError):
  """A request would bring back a sample that the run was asked to forget."""


class DamagedRequestError(RunError):
  """The file of a waiting request is damaged or missing."""


def brief(value: object, limit: int = 100) -> str:
  """`repr(value)`, in one line of at most `limit` characters."""
  try:
    text = " ".join(repr(value).split())
  except Exception:  # an int of thousands of digits, or somebody else's `__repr__`
    text = f"a value of type {type(value).__name__}"
  return text if len(text) <= limit else f"{text[: limit - 3]}..."


def whole_number(name: str, value: int, low: int, high: int | None = None) -> int:
  """`value` as an int; ConfigError if it is not a whole number in [low, high]."""
  try:
    sound = not isinstance(value, bool)
    value = operator.index(value)
    sound = sound and low <= value and (high is None or value <= high)
  except TypeError:
    sound = False
  if not sound:
    bounds = f"of at least {low}" if high is None else f"between {low} and {high}"
    raise ConfigError(f"{name} is {brief(value)}; it must be a whole number {bounds}")
  return value
