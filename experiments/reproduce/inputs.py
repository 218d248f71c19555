"""What the cells compute on: encodings and images, loaded when first asked for."""

from collections.abc import Callable
import functools
import hashlib
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from experiments import common
from experiments.reproduce.scales import Scale
import legonet_jax as lego
from legonet_jax import data, embedded, encoder, errors
from legonet_jax.baselines import ImageTable, load_table
from legonet_jax.encoder.resnet import Variables
from legonet_jax.ids import hash_order

CLASSES = {"cifar10": 10, "cifar100": 100}


class Encoded(NamedTuple):
  """Encodings and labels of both splits, and a fingerprint of all of it."""

  train: common.Split
  test: common.Split
  fingerprint: str


class Inputs(NamedTuple):
  """Where data comes from; nothing is read before it is needed.

  Attributes:
    dataset: cifar10 or cifar100.
    classes: C.
    encodings: gives the encodings.
    samples: gives them as a table for these settings; the last one is kept.
    images: gives training and test images of a seed.
    pretrained: gives the weights that fine-tuning starts from, and their sha256.
    fingerprint: of the images and these weights.
  """

  dataset: str
  classes: int
  encodings: Callable[[], Encoded]
  samples: Callable[[lego.LegoConfig], lego.Samples]
  images: Callable[[int], tuple[ImageTable, ImageTable]]
  pretrained: Callable[[], tuple[Variables, str]]
  fingerprint: Callable[[], str]


def make_inputs(
  scale: Scale,
  dataset: str,
  encodings: pathlib.Path | None,
  images: pathlib.Path | None,
  weights: pathlib.Path | None,
) -> Inputs:
  """The inputs of a reproduction; `smoke` of CIFAR-10 needs none of the folders."""
  smoke = scale.name == "smoke"

  @functools.cache
  def encoded() -> Encoded:
    if encodings is not None:
      train, test = _read_encodings(encodings)
      _check_labels(dataset, train)
      return _limited(train, test, scale)
    if not smoke or dataset != "cifar10":
      raise errors.DataError(
        f"the encodings of {dataset} are needed: give --encodings DIR, made by"
        f" `legonet encode --dataset {dataset} --out DIR`"
      )
    own, other = (
      common.Split(split.encodings.astype(np.float16), split.labels)
      for split in embedded.load_embedded()
    )
    return _limited(own, other, scale)

  @functools.lru_cache(maxsize=1)
  def table(feature_map: Any) -> lego.Samples:
    cfg = lego.LegoConfig(CLASSES[dataset], 1, 1, feature_map=feature_map)
    return lego.make_samples(cfg, *encoded().train)

  @functools.cache
  def whole() -> data.Dataset:
    if smoke and images is None:
      return draw_images(CLASSES[dataset])
    return data.load_dataset(dataset, scale.images.encoder.size, folder=images)

  @functools.lru_cache(maxsize=1)
  def tables(seed: int) -> tuple[ImageTable, ImageTable]:
    loaded = whole()
    tune = scale.images
    return tuple(  # type: ignore[return-value]
      _draw(loaded, split, count, seed)
      for split, count in ((data.TRAIN, tune.samples), (data.TEST, tune.test))
    )

  @functools.cache
  def pretrained() -> tuple[Variables, str]:
    name = scale.images.encoder.name
    net = encoder.build_resnet(name)
    if smoke and weights is None:
      return draw_weights(net), "random"
    found = encoder.load(net, weights or encoder.pretrained_path(name))
    return found.variables, found.sha256

  @functools.cache
  def fingerprint() -> str:
    both = whole().fingerprint + pretrained()[1]
    return hashlib.sha256(both.encode()).hexdigest()[:16]

  return Inputs(
    dataset,
    CLASSES[dataset],
    encoded,
    lambda cfg: table(cfg.feature_map),
    tables,
    pretrained,
    fingerprint,
  )


def _read_encodings(folder: pathlib.Path) -> tuple[common.Split, common.Split]:
  """A store of `legonet encode`, or a folder of .npy files."""
  if not (folder / "meta.json").is_file():
    return common.load(folder, "train"), common.load(folder, "test")
  store = encoder.open_store(folder)
  train, test = (
    common.Split(store.encodings[store.split == s], store.labels[store.split == s])
    for s in (data.TRAIN, data.TEST)
  )
  return train, test


def _check_labels(dataset: str, split: common.Split) -> None:
  """Raises if the labels are those of another dataset."""
  found = len(np.unique(split.labels))
  if found != CLASSES[dataset]:
    raise errors.DataError(
      f"the encodings have {found} classes and {dataset} has {CLASSES[dataset]};"
      " give --dataset and --encodings that belong together"
    )


def _limited(train: common.Split, test: common.Split, scale: Scale) -> Encoded:
  rows, columns = slice(scale.samples), slice(scale.features)
  train, test = (
    common.Split(s.encodings[rows, columns], s.labels[rows].astype(np.int64))
    for s in (train, test)
  )
  sha = hashlib.sha256()
  for split in (train, test):
    for column in split:
      sha.update(np.ascontiguousarray(column).data)
  return Encoded(train, test, sha.hexdigest()[:16])


def _draw(
  dataset: data.Dataset, split: int, count: int | None, seed: int
) -> ImageTable:
  """`count` images of a split: those with the smallest hash(seed, id)."""
  rows = np.flatnonzero(dataset.split == split)
  return load_table(dataset, rows[hash_order(seed, dataset.ids[rows])][:count])


def draw_images(classes: int, count: int = 120) -> data.Dataset:
  """Striped images, a direction and colour for each class: for smoke tests alone."""
  rng = np.random.default_rng(0)
  labels = np.arange(count) % classes
  y, x = np.mgrid[:32, :32]
  images = np.zeros((count, 32, 32, 3), np.uint8)
  for i, label in enumerate(labels):
    angle = np.pi * label / classes
    wave = np.sin((np.cos(angle) * x + np.sin(angle) * y) / 2 + rng.uniform(0, 6))
    colour = 128 + 100 * np.sin(label + np.arange(3))
    images[i] = np.clip(wave[..., None] * 60 + colour + rng.normal(0, 9), 0, 255)
  split = (np.arange(count) >= count * 2 // 3).astype(np.int64)
  return data.make_dataset("drawn", images, labels, np.arange(count), split)


def draw_weights(net: encoder.ResNet) -> Variables:
  """Random weights, drawn on the host: there is nothing to compile. For smoke tests."""
  rng = np.random.default_rng(0)

  def draw(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> NDArray[np.float32]:
    if path[-1].key == "kernel":
      size = np.sqrt(2 / np.prod(leaf.shape[:-1]))
      return np.asarray(size * rng.standard_normal(leaf.shape), np.float32)
    return np.full(leaf.shape, path[-1].key in ("scale", "var"), np.float32)

  shapes = jax.eval_shape(functools.partial(encoder.init, net), jax.random.key(0))
  drawn: Variables = jax.tree_util.tree_map_with_path(draw, shapes)
  return drawn


def part(rng: np.random.Generator, rows: NDArray[Any], limit: int | None) -> Any:
  """At most `limit` of the rows, drawn at random, sorted."""
  if limit is None or len(rows) <= limit:
    return rows
  return np.sort(rng.choice(rows, limit, replace=False))
