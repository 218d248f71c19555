"""The published digests: what every machine must get from the embedded data."""

import numpy as np

import legonet_jax as lego


def test_the_embedded_data_has_the_published_digests():
  """As `legonet quickstart` does it, but in three requests."""
  train, _ = lego.data.embedded.load_embedded()
  cfg = lego.LegoConfig(num_classes=10, num_adapters=100, top_k=10, seed=0)
  samples = lego.make_samples(cfg, train.encodings, train.labels, train.ids)
  state, _ = lego.fit(cfg, samples)
  found = {"fit": lego.digest(state)}
  gone = np.random.default_rng(0).choice(train.ids, 100, replace=False)
  state, _ = lego.unlearn(state, samples, gone)
  found["forget 100 samples"] = lego.digest(state)
  one_class = np.setdiff1d(train.ids[train.labels == 5], gone)
  state, _ = lego.unlearn(state, samples, one_class)
  found["forget a class"] = lego.digest(state)
  assert found == lego.known_answers.PUBLISHED
