"""Executables on disk, so that the second process does not compile again.

Library users set `jax_compilation_cache_dir` themselves; the command does it for its
own process, unless the user has.
"""

import hashlib
import json
import os
from typing import Any

import jax

from legonet_jax import digests, fetch


def use_cache() -> None:
  """Keeps compiled executables in the cache folder, one folder per environment.

  An executable holds the instructions of the processor that it was made on; a home
  folder may be shared by several.
  """
  if getattr(jax.config, "jax_compilation_cache_dir", None):
    return
  environment = json.dumps(digests.environment(), sort_keys=True)
  name = hashlib.sha256(environment.encode()).hexdigest()[:16]
  folder = fetch.cache_dir() / "xla" / name
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError:  # no home to write to: compile as usual
    return
  if os.access(folder, os.W_OK):
    update: Any = jax.config.update
    update("jax_compilation_cache_dir", str(folder))
    update("jax_persistent_cache_min_compile_time_secs", 0.0)
