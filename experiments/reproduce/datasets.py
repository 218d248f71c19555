"""The registry of datasets, and the data of a run: read when first asked for.

A new dataset is one entry of `DATASETS`. Where `paper.toml` has no numbers for it, the
report shows ours alone.
"""

from collections.abc import Callable
import dataclasses
import functools
import hashlib
import pathlib
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from experiments import common
from experiments.reproduce.scales import Scale
from legonet_jax import data, encoder, errors
from legonet_jax.baselines import load_table
from legonet_jax.baselines.images import in_blocks
from legonet_jax.core.ids import Ids, hash_order
from legonet_jax.data import embedded
from legonet_jax.encoder.resnet import Variables
from legonet_jax.store.read import open_store

SOURCES = ("encodings", "images")
Splits = tuple[common.RawSplit, common.RawSplit]  # training, test
_encode = jax.jit(encoder.encode_images, static_argnums=0)


@dataclasses.dataclass(frozen=True)
class DatasetEntry:
  """One dataset.

  Attributes:
    title: as the report writes it.
    classes: C.
    smoke_encodings: a few encodings for the scale `smoke`; None if `--encodings` must
      be given there, too.
    load_images: `load_images(name, size, folder=folder)`; without a folder it may
      download.
  """

  title: str
  classes: int
  smoke_encodings: Callable[[], Splits] | None = None
  load_images: Callable[..., data.Dataset] = data.load_dataset


def _load_embedded() -> Splits:
  train, test = (
    common.RawSplit(split.encodings.astype(np.float16), split.labels)
    for split in embedded.load_embedded()
  )
  return train, test


DATASETS = {
  "cifar10": DatasetEntry("CIFAR-10", 10, _load_embedded),
  "cifar100": DatasetEntry("CIFAR-100", 100),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
  """What a method sees: training ids, inputs and labels, row by row; the test set.

  Two are equal only if they are the same object, so that a cache can be keyed by them.
  """

  ids: Ids
  inputs: NDArray[Any]
  labels: NDArray[Any]
  test: NDArray[Any]
  test_labels: NDArray[Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Bench:
  """One dataset at one scale, and the folders that it is read from, if given."""

  scale: Scale
  name: str
  encodings_folder: pathlib.Path | None = None
  images_folder: pathlib.Path | None = None
  weights_file: pathlib.Path | None = None

  @property
  def dataset(self) -> DatasetEntry:
    """Its entry in the registry."""
    return DATASETS[self.name]

  @functools.cached_property
  def encodings(self) -> Splits:
    """Encodings and labels, as many rows and features as the scale has."""
    smoke = self.dataset.smoke_encodings if self.scale.name == "smoke" else None
    if self.encodings_folder is not None:
      found = _read_encodings(self.encodings_folder)
    elif smoke is not None:
      found = smoke()
    else:
      raise errors.DataError(
        f"the encodings of {self.name} are needed: give --encodings DIR, made by"
        f" `legonet encode --dataset {self.name} --out DIR`"
      )
    classes = len(np.unique(found[0].labels))
    if classes != self.dataset.classes:
      raise errors.DataError(
        f"the encodings have {classes} classes and {self.name} has"
        f" {self.dataset.classes}; give --dataset and --encodings that belong together"
      )
    rows, columns = slice(self.scale.samples), slice(self.scale.features)
    train, test = (
      common.RawSplit(s.encodings[rows, columns], s.labels[rows].astype(np.int64))
      for s in found
    )
    return train, test

  @functools.cached_property
  def encoded(self) -> Data:
    """The same as methods see it."""
    train, test = self.encodings
    return Data(np.arange(len(train.labels)), *train, *test)

  @functools.cached_property
  def encodings_hash(self) -> str:
    """Of all encodings and labels."""
    sha = hashlib.sha256()
    for column in (*self.encodings[0], *self.encodings[1]):
      sha.update(np.ascontiguousarray(column).data)
    return sha.hexdigest()[:16]

  @functools.cached_property
  def images(self) -> data.Dataset:
    """All images of the dataset, or drawn ones."""
    tune = self.scale.images
    if tune.drawn and self.images_folder is None:
      return draw_images(self.dataset.classes)
    load, size = self.dataset.load_images, tune.encoder.size
    return load(self.name, size, folder=self.images_folder)

  @functools.cached_property
  def pretrained(self) -> tuple[Variables, str]:
    """The weights that fine-tuning starts from, and their sha256."""
    name = self.scale.images.encoder.name
    net = encoder.build_resnet(name)
    if self.scale.images.drawn and self.weights_file is None:
      return _draw_weights(net), "random"
    found = encoder.load(net, self.weights_file or encoder.pretrained_path(name))
    return found.variables, found.sha256

  def describe(self, source: str) -> dict[str, Any]:
    """What the settings of a cell say about its data."""
    named = {"dataset": self.name, "scale": self.scale.name, "source": source}
    if source == "encodings":
      return {**named, "data": self.encodings_hash, "N": len(self.encodings[0].labels)}
    tune, both = self.scale.images, self.images.fingerprint + self.pretrained[1]
    train, test = np.bincount(self.images.split, minlength=2).tolist()
    return {
      **named,
      "data": hashlib.sha256(both.encode()).hexdigest()[:16],
      "N": min(train, tune.samples or train),
      "test": min(test, tune.test or test),
      "size": tune.encoder.size,
      "encoder": tune.encoder.name,
    }


def load_data(bench: Bench, source: str, reads: str, seed: int) -> Data:
  """The data of a cell; on images for a method that `reads` images or encodings."""
  return _load_images(bench, reads, seed) if source == "images" else bench.encoded


@functools.lru_cache(maxsize=2)
def _load_images(bench: Bench, reads: str, seed: int) -> Data:
  """Those with the smallest hash(seed, id), as they are or through the encoder."""
  tune, ids, tables = bench.scale.images, bench.images.ids, []
  for split, count in ((data.TRAIN, tune.samples), (data.TEST, tune.test)):
    rows = np.flatnonzero(bench.images.split == split)
    drawn = rows[hash_order(seed, ids[rows])][:count]
    tables.append(load_table(bench.images, drawn))
  train, test = tables
  inputs: list[NDArray[Any]] = [train.images, test.images]
  if reads == "encodings":
    params = encoder.prepare(tune.encoder, bench.pretrained[0])
    call = functools.partial(_encode, tune.encoder, params)
    inputs = [in_blocks(call, images)[:, : bench.scale.features] for images in inputs]
  return Data(train.ids, inputs[0], train.labels, inputs[1], test.labels)


def _read_encodings(folder: pathlib.Path) -> Splits:
  """A store of `legonet encode`, or a folder of .npy files."""
  if not (folder / "meta.json").is_file():
    return common.load(folder, "train"), common.load(folder, "test")
  store = open_store(folder)
  train, test = (
    common.RawSplit(store.encodings[store.split == s], store.labels[store.split == s])
    for s in (data.TRAIN, data.TEST)
  )
  return train, test


def draw_images(classes: int) -> data.Dataset:
  """For smoke: noisy images, at least twelve of each class, in a colour of its own."""
  rng, count = np.random.default_rng(0), max(120, 12 * classes)
  labels = np.arange(count) % classes
  colours = rng.uniform(40, 215, (classes, 1, 1, 3))
  noisy = colours[labels] + rng.normal(0, 30, (count, 32, 32, 3))
  images = np.clip(noisy, 0, 255).astype(np.uint8)
  split = (np.arange(count) >= count * 2 // 3).astype(np.int64)
  return data.make_dataset("drawn", images, labels, np.arange(count), split)


def _draw_weights(net: encoder.ResNet) -> Variables:
  """Random weights for smoke, drawn on the host: there is nothing to compile."""
  rng = np.random.default_rng(0)

  def draw(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> NDArray[np.float32]:
    if path[-1].key == "kernel":
      size = np.sqrt(2 / np.prod(leaf.shape[:-1]))
      return np.asarray(size * rng.standard_normal(leaf.shape), np.float32)
    return np.full(leaf.shape, path[-1].key in ("scale", "var"), np.float32)

  shapes = jax.eval_shape(functools.partial(encoder.init, net), jax.random.key(0))
  drawn: Variables = jax.tree_util.tree_map_with_path(draw, shapes)
  return drawn
