from . import (
  cholesky as cholesky,
  exact_sums as exact_sums,
  lanes as lanes,
  optimizers as optimizers,
  ridge as ridge,
  settings as settings,
  sgd as sgd,
)
