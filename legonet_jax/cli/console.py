"""Lines and progress bars for people, shared by all commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import sys

import tqdm

import legonet_jax as lego

# A cut line keeps its end, because messages end with the cure.
_LONGEST, _END = 1000, 250


def one_line(text: object) -> str:
  r"""`text` as one line that every terminal can show; a long one is cut in the middle.

  File names may hold line breaks, terminal escape codes, and bytes that are no
  characters. They appear as Python writes them: `\x1b`, `\udcff`.
  """
  words = " ".join(str(text).split())
  line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
  if len(line) <= _LONGEST:
    return line
  return f"{line[: _LONGEST - _END]} ... {line[-_END:]}"


def complain(text: object) -> None:
  """Prints the one line that says why a command failed."""
  print(f"legonet: error: {one_line(text)}", file=sys.stderr)


def sayer(quiet: bool) -> Callable[[str], None]:
  """A function that prints a line, or does nothing if `quiet` (JSON output)."""

  def say(line: str) -> None:
    if not quiet:
      print(line, flush=True)

  return say


@contextlib.contextmanager
def bar(title: str, quiet: bool) -> Iterator[lego.runtime.callbacks.Progress]:
  """A progress bar on standard error, shown only if that is a terminal."""
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
