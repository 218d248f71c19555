"""legonet-jax: exact machine unlearning that you can prove."""

from legonet_jax.core.config import LegoConfig
from legonet_jax.core.digest import digest
from legonet_jax.core.prediction import Model, predict
from legonet_jax.core.requests import fit, heal, learn, unlearn, update
from legonet_jax.core.samples import Samples, append, drop, make_samples, select
from legonet_jax.core.state import LegoState
from legonet_jax.core.transition import Info
from legonet_jax.encoder import ImageEncoder, encode_images, open_store, predict_images
from legonet_jax.runtime.environment import environment
from legonet_jax.solvers.ridge import Ridge
from legonet_jax.solvers.sgd import Sgd

__version__ = "0.1.0"

__all__ = [
  "ImageEncoder",
  "Info",
  "LegoConfig",
  "LegoState",
  "Model",
  "Ridge",
  "Samples",
  "Sgd",
  "append",
  "digest",
  "drop",
  "encode_images",
  "environment",
  "fit",
  "heal",
  "learn",
  "make_samples",
  "open_store",
  "predict",
  "predict_images",
  "select",
  "unlearn",
  "update",
]
