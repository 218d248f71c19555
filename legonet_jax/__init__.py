"""legonet-jax: exact machine unlearning that you can prove."""

from legonet_jax.config import LegoConfig
from legonet_jax.digests import digest, environment
from legonet_jax.encoder import ImageEncoder, encode_images, open_store, predict_images
from legonet_jax.prediction import Model, predict
from legonet_jax.rebuild import Info
from legonet_jax.ridge import Ridge
from legonet_jax.samples import Samples, append, drop, make_samples, select
from legonet_jax.sgd import Sgd
from legonet_jax.state import LegoState
from legonet_jax.unlearning import fit, heal, learn, unlearn, update

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
