from . import (
  exact_sums as exact_sums,
  lanes as lanes,
  optimizers as optimizers,
  ridge as ridge,
  rounding as rounding,
  settings as settings,
  sgd as sgd,
)
