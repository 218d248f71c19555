"""A sweep over seeds: accuracy with an interval, and all models in one call.

    python examples/sweep_seeds.py

The seed decides anchors, noise and order. It is not part of any compiled program, so
only the first fit compiles.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import legonet_jax as lego
from legonet_jax.data.embedded import load_embedded

SEEDS = range(5)


def main() -> None:
  """Fits a model per seed, forgets the same samples in all, and evaluates them."""
  train, test = load_embedded()
  part = slice(None, None, 4)
  cfg = lego.LegoConfig(num_classes=10, num_adapters=50)
  # The table does not depend on the seed: make it once.
  samples = lego.make_samples(
    cfg, train.encodings[part], train.labels[part], train.ids[part]
  )
  forget = train.ids[part][:20]

  models = []
  for seed in SEEDS:
    seeded = dataclasses.replace(cfg, seed=seed)
    state, first = lego.fit(seeded, samples)
    state, info = lego.unlearn(state, samples, forget)
    models.append(state.model)
    print(f"seed {seed}: fit {first.seconds:.2f} s, forget {info.seconds:.3f} s")

  # Models of one shape stack; `vmap` predicts with all of them.
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
  predict = jax.jit(jax.vmap(lego.predict, in_axes=(0, None)))
  probs = np.asarray(predict(stacked, jnp.asarray(test.encodings)))
  accuracy = 100 * np.mean(probs.argmax(axis=2) == test.labels, axis=1)
  t = 2.776  # Student's t: 95 %, 4 degrees of freedom
  margin = t * accuracy.std(ddof=1) / np.sqrt(len(accuracy))
  print(f"test accuracy {accuracy.mean():.2f} ± {margin:.2f} % ({len(accuracy)} seeds)")


if __name__ == "__main__":
  main()
