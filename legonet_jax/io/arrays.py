"""Arrays in a folder of orbax's, which speaks by its exceptions only.

    save(path, arrays)        load(path) -> arrays

One plain folder per array. Orbax is imported on first use.
"""

from collections.abc import Iterator, Mapping
import contextlib
import functools
import logging
import os
import pathlib
import re
import sys
import threading
from typing import Any

from numpy.typing import NDArray


def save(path: pathlib.Path, arrays: Mapping[str, NDArray[Any]]) -> None:
  """Writes arrays into a new folder."""
  with _quiet():
    _checkpointer().save(path.absolute(), dict(arrays))


def load(path: pathlib.Path) -> dict[str, NDArray[Any]]:
  """The arrays in a folder that `save` wrote; orbax raises many types of errors."""
  with _quiet():
    found: dict[str, NDArray[Any]] = _checkpointer().restore(path.absolute())
  return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Hides what orbax says besides its exceptions, also what its threads say."""
  log = logging.getLogger("absl")
  level = log.level
  log.setLevel(logging.CRITICAL + 1)
  _hide_late_writes()
  try:
    yield
  finally:
    for thread in threading.enumerate():  # each of them reports a failure by itself
      if type(thread).__module__.startswith("orbax."):
        thread.join()
    log.setLevel(level)


@functools.cache
def _hide_late_writes() -> None:
  """Hides, from now on, that a write ended after another one had failed.

  orbax closes its event loop at the first failure, and tensorstore tells the closed
  loop of the other writes whenever they end.
  """
  tell = sys.unraisablehook

  def hook(found: "sys.UnraisableHookArgs") -> None:
    if str(found.exc_value) != "Event loop is closed":
      tell(found)

  sys.unraisablehook = hook


def reason(e: Exception) -> str:
  """The system's error, if that is the reason, else the beginning of the message."""
  code = re.search(r"\[os_error_code='(\d+)'\]", str(e))
  told = os.strerror(int(code[1])) if code else getattr(e, "strerror", None)
  return told or " ".join(str(e).split())[:200]


def _checkpointer() -> Any:
  import orbax.checkpoint as ocp  # takes half a second; most commands do not need it

  # One plain folder per array; OCDBT would add databases and take twice the time.
  return ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False))
