from . import (
  exact_sums as exact_sums,
  lanes as lanes,
  limbs as limbs,
  optimizers as optimizers,
  ridge as ridge,
  rounding as rounding,
  rounding_jit as rounding_jit,
  settings as settings,
  sgd as sgd,
)
