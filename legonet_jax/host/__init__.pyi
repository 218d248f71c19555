from . import (
  advance as advance,
  attach as attach,
  convert as convert,
  digest as digest,
  requests as requests,
  state as state,
  train as train,
  validate as validate,
)
