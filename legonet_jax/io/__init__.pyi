from . import (
  arrays as arrays,
  download as download,
  durable as durable,
  exact as exact,
  files as files,
  hashing as hashing,
  lock as lock,
  untrusted as untrusted,
  zips as zips,
)
