"""How well a model forgot, always compared with models that never saw the sample.

Pure functions of arrays, computed in float64. docs/measures.md explains what each one
compares, and which value an exact method must have.
"""

from legonet_jax.measures import cost
from legonet_jax.measures.accuracy import Accuracies, accuracy, tow
from legonet_jax.measures.klom import klom, klom_null
from legonet_jax.measures.margins import margins, margins_of_probs
from legonet_jax.measures.mia import mia_efficacy
from legonet_jax.measures.ulira import Ulira, ulira

__all__ = [
  "Accuracies", "Ulira", "accuracy", "cost", "klom", "klom_null", "margins",
  "margins_of_probs", "mia_efficacy", "tow", "ulira",
]  # fmt: skip
