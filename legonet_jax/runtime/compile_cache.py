"""Keeps executables on disk, so that the next process does not compile again.

The command line does this for its own process. In your own program, call
`lego.use_compile_cache()`.
"""

import os
import pathlib
import stat
from typing import Any

import jax

from legonet_jax import errors
from legonet_jax.io import download, hashing
from legonet_jax.io.files import PathLike
from legonet_jax.runtime.environment import environment


def use_compile_cache(folder: PathLike | None = None) -> bool:
  """Keeps compiled executables on disk, in a folder for each environment.

  It is JAX's own cache (`jax_compilation_cache_dir`); if that is set already, nothing
  changes.

  An executable holds instructions for the processor that it was compiled on, and
  several machines may share a home folder: hence a folder for each environment.
  Executables are run unchecked: so a folder that others can write to is not used.

  Args:
    folder: where; `~/.cache/legonet-jax/xla`, or below $LEGONET_CACHE, if not given.

  Returns:
    Whether executables are kept.
  """
  if getattr(jax.config, "jax_compilation_cache_dir", None):
    return True
  try:
    name = hashing.sha256_of_json(environment())[:16]
    root = download.cache_dir() / "xla" if folder is None else pathlib.Path(folder)
    place = root.absolute() / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
  except (errors.DownloadError, OSError, RuntimeError):
    return False  # no home to write to, or a backend that does not start
  if not (os.access(place, os.W_OK) and _is_ours_alone(place)):
    return False
  update: Any = jax.config.update
  update("jax_compilation_cache_dir", str(place))
  update("jax_persistent_cache_min_compile_time_secs", 0.0)
  return True


def _is_ours_alone(folder: pathlib.Path) -> bool:
  """Whether nobody else can put an executable into `folder`, nor swap the folder.

  Its parent folders may belong to the system or be sticky, as /tmp is.
  """
  for path in (folder, *folder.parents):
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0):
      return False
    open_to_others = found.st_mode & 0o022
    if open_to_others and (path == folder or not found.st_mode & stat.S_ISVTX):
      return False
  return True
