"""What commands share to talk to a person: lines and progress bars."""

from collections.abc import Callable, Iterator
import contextlib
import sys

import tqdm

from legonet_jax.task import Progress


def sayer(quiet: bool) -> Callable[[str], None]:
  """A function that prints a line, or nothing where only JSON is wanted."""

  def say(line: str) -> None:
    if not quiet:
      print(line, flush=True)

  return say


@contextlib.contextmanager
def bar(title: str, quiet: bool) -> Iterator[Progress]:
  """A progress bar on standard error; only where a person can see it move."""
  with tqdm.tqdm(
    desc=title,
    disable=quiet or not sys.stderr.isatty(),
    leave=False,
    unit_scale=True,
  ) as line:

    def progress(done: int, total: int) -> None:
      line.total = total
      line.update(done - line.n)

    yield progress
