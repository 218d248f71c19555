"""Executables on disk, so that the second process does not compile again.

Library users set `jax_compilation_cache_dir` themselves; the command does it for its
own process, unless the user has.
"""

import os
import pathlib
import stat
from typing import Any

import jax

from legonet_jax import errors
from legonet_jax.io import download, hashing
from legonet_jax.runtime.environment import environment


def use_cache() -> None:
  """Keeps compiled executables in the cache folder, one folder per environment.

  An executable holds the instructions of the processor that it was made on; a home
  folder may be shared by several. And it is run as it is: a folder that somebody else
  can write is not used.
  """
  if getattr(jax.config, "jax_compilation_cache_dir", None):
    return
  try:
    name = hashing.sha256_of_json(environment())[:16]
    folder = download.cache_dir() / "xla" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
  except (errors.DownloadError, OSError, RuntimeError):
    return  # no home to write to, or a backend that does not start: as without us
  if os.access(folder, os.W_OK) and _is_ours_alone(folder):
    update: Any = jax.config.update
    update("jax_compilation_cache_dir", str(folder))
    update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _is_ours_alone(folder: pathlib.Path) -> bool:
  """Whether nobody else can put an executable into `folder`, nor swap the folder.

  Folders above it may belong to the system or be sticky, as /tmp is.
  """
  for path in (folder, *folder.parents):
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0):
      return False
    open_to_others = found.st_mode & 0o022
    if open_to_others and (path == folder or not found.st_mode & stat.S_ISVTX):
      return False
  return True
