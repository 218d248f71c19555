from . import (
  certified as certified,
  exact_sums as exact_sums,
  limbs as limbs,
  optimizers as optimizers,
  ridge as ridge,
  rounding as rounding,
  rounding_f64 as rounding_f64,
  rounding_limbs as rounding_limbs,
  settings as settings,
  sgd as sgd,
)
