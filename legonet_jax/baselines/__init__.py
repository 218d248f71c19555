"""Baselines of the paper: RNC (Re-train, Tune, NGrad), SISA, FixSISA.

LegoNet with k = 1 is `LegoConfig(top_k=1)`.
"""

from legonet_jax.baselines import fixsisa, rnc, sisa
from legonet_jax.baselines.fixsisa import linear_learner
from legonet_jax.baselines.images import ImageTable, load_table
from legonet_jax.baselines.learner import Learner
from legonet_jax.baselines.rnc import RncConfig, RncModel, rnc_learner
from legonet_jax.baselines.sisa import SisaConfig, SisaInfo, SisaState

__all__ = [
  "ImageTable",
  "Learner",
  "RncConfig",
  "RncModel",
  "SisaConfig",
  "SisaInfo",
  "SisaState",
  "fixsisa",
  "linear_learner",
  "load_table",
  "rnc",
  "rnc_learner",
  "sisa",
]
