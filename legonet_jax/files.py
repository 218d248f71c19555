"""Files that are either whole or not there."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import tempfile


@contextlib.contextmanager
def atomic(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """A temporary file beside `path` that takes its place if nothing goes wrong.

  The bytes are on disk before the name is, so a crash or a full disk leaves the old
  file, or none.
  """
  handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
  os.close(handle)
  temporary = pathlib.Path(name)
  try:
    yield temporary
    with temporary.open("rb") as file:
      os.fsync(file.fileno())
    temporary.chmod(0o644)
    temporary.replace(path)
  finally:
    temporary.unlink(missing_ok=True)


def write(path: pathlib.Path, data: bytes) -> None:
  """Writes `data` to `path`, whole or not at all."""
  with atomic(path) as temporary:
    temporary.write_bytes(data)
