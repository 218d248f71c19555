"""How well a model forgot, always against models that never saw the sample.

Pure functions of arrays, float64 inside. docs/measures.md has what each compares with
what, and the value that an exact method must have.
"""

from legonet_jax.measures.accuracy import Accuracies, accuracy, tow
from legonet_jax.measures.klom import klom, klom_null
from legonet_jax.measures.margins import margins, margins_of_probs
from legonet_jax.measures.mia import mia_efficacy
from legonet_jax.measures.ulira import Ulira, ulira

__all__ = [
  "Accuracies", "Ulira", "accuracy", "klom", "klom_null", "margins", "margins_of_probs",
  "mia_efficacy", "tow", "ulira",
]  # fmt: skip
