"""An encoder of your own, from raw input to probabilities in one jitted function.

    python examples/own_encoder.py

An encoder is any pure function `encode(params, batch) -> [B, d]`. Here it is one random
layer with a ReLU, frozen, and the raw inputs are the rows that come with the package:
put your network and your data in their places. The encoder must not have been trained
on data that you may have to forget.
"""

import functools
import hashlib

import jax
import jax.numpy as jnp
import numpy as np

import legonet_jax as lego
from legonet_jax.data import Dataset
from legonet_jax.data.embedded import load_embedded
from legonet_jax.encoder import encode_batches


def encode(params: jax.Array, batch: jax.Array) -> jax.Array:
  """Encodings e [B, 256] of raw rows [B, 512]."""
  return jax.nn.relu(batch @ params)


def main() -> None:
  """Encodes once, fits, serves, forgets."""
  train, test = load_embedded()
  part = slice(None, None, 4)
  raw, labels, ids = train.encodings[part], train.labels[part], train.ids[part]
  order = np.argsort(ids)
  raw, labels, ids = raw[order], labels[order], ids[order]
  params = jax.random.normal(jax.random.key(0), (512, 256)) / np.sqrt(512)

  # Training inputs are encoded once, at one batch shape, and kept: an encoding may
  # differ in its last bit between batch shapes, and training would notice.
  dataset = Dataset(
    name="raw rows",
    ids=ids,
    labels=labels.astype(np.int32),
    split=np.zeros(len(ids), np.uint8),
    read=lambda start, stop: raw[start:stop],
    fingerprint=hashlib.sha256(raw.tobytes()).hexdigest(),
  )
  encodings = np.concatenate(list(encode_batches(encode, params, dataset, batch=128)))

  # Part of every digest: a model on other weights is another model.
  weights = hashlib.sha256(np.asarray(params).tobytes()).hexdigest()
  cfg = lego.LegoConfig(num_classes=10, num_adapters=50, encoder=weights)
  samples = lego.make_samples(cfg, encodings, labels, ids)
  state, _ = lego.fit(cfg, samples)

  # The whole model is one pure function. Model and parameters are arguments, so an
  # unlearned model is served without compiling again.
  classify = jax.jit(functools.partial(lego.predict_images, encode))

  def accuracy() -> float:
    probs = classify(params, state.model, jnp.asarray(test.encodings))
    return float(np.mean(np.argmax(probs, axis=1) == test.labels))

  print(f"test accuracy {accuracy():.1%}")
  dogs = ids[labels == 5]
  state, info = lego.unlearn(state, samples, dogs)
  print(f"forgot {len(dogs)} dogs in {info.seconds:.2f} s, accuracy {accuracy():.1%}")
  refit, _ = lego.fit(cfg, lego.drop(samples, dogs))
  assert lego.digest(state) == lego.digest(refit)
  print("equal to a refit, bit for bit")


if __name__ == "__main__":
  main()
