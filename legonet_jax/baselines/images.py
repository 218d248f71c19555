"""Batches of images for fine-tuning, in an order that depends on ids only.

An epoch goes through the samples in the order of hash(seed, stream, epoch, id), and
augmentation uses a hash of the same numbers. So training is a function of the set of
samples, not of their rows, and leaving out a sample changes no random number of the
others.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax.core.ids import Ids, find, hash_ids
from legonet_jax.data import Dataset
from legonet_jax.runtime import blocks

Augment = Literal["none", "flip", "flip_shift"]
_SHIFT = 4  # pixels of the stored image, as is usual for CIFAR
_AUGMENT_SALT = 1 << 62
_BLOCK = 100  # images per call of a network that predicts or encodes


class ImageTable(NamedTuple):
  """Images in memory: ids [N] increasing, uint8 images [N, H, W, 3], labels [N]."""

  ids: Ids
  images: NDArray[np.uint8]
  labels: NDArray[np.int32]


class ImageBatch(NamedTuple):
  """B samples: images uint8 [B, H, W, 3], labels [B], augmentation words [B]."""

  images: NDArray[np.uint8]
  labels: NDArray[np.int32]
  words: NDArray[np.uint32]


def load_table(dataset: Dataset, rows: NDArray[np.integer]) -> ImageTable:
  """The images of some rows of a dataset, read into memory."""
  rows = np.sort(rows)
  images = np.concatenate([dataset.read(int(r), int(r) + 1) for r in rows])
  return ImageTable(dataset.ids[rows], images, dataset.labels[rows])


def batches(
  table: ImageTable, ids: Ids, size: int, epochs: int, seed: int
) -> Iterator[ImageBatch]:
  """All batches of all epochs, each of B = `size` samples.

  The last batch of an epoch is filled up from the epoch's beginning: another shape
  would be compiled again, and BatchNorm's statistics of a few samples are noise.
  """
  for epoch in range(epochs):
    hashed = hash_ids(seed + (epoch << 48), ids)
    order = np.argsort(hashed)
    words = hash_ids(seed + (epoch << 48) + _AUGMENT_SALT, ids).astype(np.uint32)
    steps = -(-len(ids) // size)
    picked = np.resize(order, steps * size)
    rows = find(table.ids, ids[picked], "image")
    for at in range(0, len(picked), size):
      part = slice(at, at + size)
      batch = rows[part]
      yield ImageBatch(table.images[batch], table.labels[batch], words[picked[part]])


def in_blocks(
  call: Callable[[NDArray[np.uint8]], jax.Array], images: NDArray[np.uint8]
) -> NDArray[np.float32]:
  """Calls `call` on images [N, H, W, 3] in blocks of one shape; pads the last one."""
  width = jax.eval_shape(call, blocks.pad(images[:0], _BLOCK)).shape[1]
  out = np.empty((len(images), width), np.float32)
  return blocks.fill(out, call, lambda start, end: images[start:end], _BLOCK)


def augment(kind: Augment, images: jax.Array, words: jax.Array) -> jax.Array:
  """Flips and shifts images [B, H, W, 3] by the random bits of `words` [B]."""
  if kind == "none":
    return images
  flip = (words & 1).astype(bool)[:, None, None, None]
  images = jnp.where(flip, images[:, :, ::-1], images)
  if kind == "flip":
    return images
  span = 2 * _SHIFT + 1
  edge = (_SHIFT, _SHIFT)
  padded = jnp.pad(images, ((0, 0), edge, edge, (0, 0)))
  down, across = (words >> 1) % span, (words >> 8) % span

  def cut(image: jax.Array, i: jax.Array, j: jax.Array) -> jax.Array:
    start = (i.astype(jnp.int32), j.astype(jnp.int32), jnp.int32(0))
    return jax.lax.dynamic_slice(image, start, images.shape[1:])

  return jax.vmap(cut)(padded, down, across)
