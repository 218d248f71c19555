"""What commands share to talk to a person: lines and progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import sys

import tqdm

import legonet_jax as lego

# A line keeps its end, where messages say what to do.
_LONGEST, _END = 1000, 250


def one_line(text: object) -> str:
  r"""`text` in one line that every terminal can show, long ones cut in the middle.

  Names of files may hold line breaks, codes that steer a terminal, and bytes that are
  no characters. They appear as Python writes them: `\x1b`, `\udcff`.
  """
  words = " ".join(str(text).split())
  line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
  if len(line) <= _LONGEST:
    return line
  return f"{line[: _LONGEST - _END]} ... {line[-_END:]}"


def complain(text: object) -> None:
  """The one line that says why a command did not do what it was asked to."""
  print(f"legonet: error: {one_line(text)}", file=sys.stderr)


def sayer(quiet: bool) -> Callable[[str], None]:
  """A function that prints a line, or nothing where only JSON is wanted."""

  def say(line: str) -> None:
    if not quiet:
      print(line, flush=True)

  return say


@contextlib.contextmanager
def bar(title: str, quiet: bool) -> Iterator[lego.runtime.callbacks.Progress]:
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
