"""Files that are written whole or not at all."""

import os
import pathlib


def write(path: pathlib.Path, data: bytes) -> None:
  """Writes `data` under another name, makes it safe on disk, then renames it."""
  temporary = path.with_name(path.name + ".tmp")
  try:
    with temporary.open("wb") as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    temporary.replace(path)
  except BaseException:
    temporary.unlink(missing_ok=True)
    raise
