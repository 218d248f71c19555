from . import (
  blocks as blocks,
  callbacks as callbacks,
  checks as checks,
  compile_cache as compile_cache,
  environment as environment,
  flags as flags,
  machine as machine,
  parallel as parallel,
)
