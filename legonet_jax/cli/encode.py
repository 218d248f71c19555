"""`legonet encode`: computes a dataset's encodings once and keeps them in a store."""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import sys
import time
from typing import Any

import tqdm

import legonet_jax as lego
from legonet_jax import errors

TEXT = """\
Encodes every image of a dataset once and keeps the encodings in a store.

examples:
  legonet encode --dataset cifar10 --encoder resnet34 --size 224 --out cifar10_224
  legonet encode --dataset photos/ --weights my_resnet50.pth --encoder resnet50 --out e
  legonet encode --dataset cifar10 --data ~/cifar --split test --limit 1000 --out small

Stop it whenever you like: the same command continues where it stopped.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  add = parser.add_argument
  add(
    "--dataset", required=True, help="cifar10, cifar100, FILE.npz or a folder of images"
  )
  add("--out", required=True, type=pathlib.Path, metavar="DIR", help="the new store")
  add("--encoder", default="resnet34", choices=("resnet18", "resnet34", "resnet50"))
  add("--size", type=int, default=224, help="images are scaled to this (default 224)")
  add("--weights", type=pathlib.Path, metavar="FILE",
      help=".pth or .safetensors (default: torchvision's, ImageNet)")  # fmt: skip
  add("--data", type=pathlib.Path, metavar="DIR", help="where CIFAR's files are")
  add("--source", choices=("archive", "tfds"), default="archive",
      help="CIFAR from its official archive or from tensorflow-datasets")  # fmt: skip
  add("--split", choices=("train", "test"), help="only this split")
  add("--limit", type=int, metavar="N", help="only the first N samples")
  add(
    "--batch", type=int, help="images per step (default on a CPU: 16 at 224, 128 at 64)"
  )
  add("--compute", choices=("float32", "bfloat16"), default="float32")
  add("--storage", choices=("float32", "float16"), default="float32",
      help="type of the stored encodings (float32)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
  """Runs the command; 0 when the store is complete."""
  spec = lego.encoder.encode.ImageEncoder(args.encoder, args.size, args.compute)
  lego.encoder.encode.check(spec)
  if args.limit is not None and args.limit < 1:
    raise errors.ConfigError(f"--limit is {args.limit}; it must be at least 1")
  import jax  # here, because --help does not need it

  devices = len(jax.devices())
  batch = _default_batch(args.size, devices) if args.batch is None else args.batch
  lego.encoder.encode.check_batch(batch, devices)
  net = lego.encoder.resnet.build_resnet(args.encoder)
  progress = not args.json and sys.stderr.isatty()
  path = args.weights or lego.encoder.weights.pretrained_path(
    args.encoder, progress=progress
  )
  loaded = lego.encoder.weights.load(net, path)
  dataset = lego.data.load_dataset(
    args.dataset, args.size, folder=args.data, source=args.source, progress=progress
  )
  dataset = lego.data.take(dataset, args.split, args.limit)
  shape = (len(dataset.ids), net.dim)
  how = describe(spec, loaded, dataset, batch, devices, args.storage)
  done, began = 0, time.perf_counter()
  with lego.io.files.folders_for(args.out):
    writer = lego.store.write.start(args.out, how, shape, args.storage)
    if writer is not None:
      params = lego.encoder.encode.prepare(spec, loaded.variables)
      encode = functools.partial(lego.encoder.encode.encode_images, spec)
      done = _encode_all(writer, encode, params, dataset, batch, progress)
  _report(args, shape, done, time.perf_counter() - began)
  return 0


def describe(
  spec: lego.encoder.encode.ImageEncoder,
  loaded: lego.encoder.weights.Weights,
  dataset: lego.data.Dataset,
  batch: int,
  devices: int,
  storage: str,
) -> dict[str, Any]:
  """Everything that a store's arrays depend on, and names for people; no times."""
  how: dict[str, Any] = {
    "encoder": spec.name,
    "size": spec.size,
    "compute": spec.compute,
    "storage": storage,
    "batch": batch,
    "devices": devices,
    "weights": loaded.source,
    "weights_sha256": loaded.sha256,
    "resize": "bilinear, half-pixel centres",
    "mean": list(lego.encoder.encode.MEAN),
    "std": list(lego.encoder.encode.STD),
    "dataset": dataset.name,
    "dataset_sha256": dataset.fingerprint,
    "samples": len(dataset.ids),
    "environment": lego.runtime.environment.environment(),
  }
  if dataset.classes is not None:
    how["classes"] = list(dataset.classes)
  if dataset.source:
    how["sources"] = [dataset.source]
  return how


def _encode_all(
  writer: lego.store.write.Writer,
  encode: lego.encoder.encode.Encode,
  params: lego.encoder.encode.Params,
  dataset: lego.data.Dataset,
  batch: int,
  progress: bool,
) -> int:
  """Encodes the missing rows and completes the store; returns how many they were."""
  first, total = writer.rows, len(dataset.ids)
  bar = tqdm.tqdm(
    total=total, initial=first, unit=" images", disable=not progress, smoothing=0.05
  )
  batches = lego.encoder.encode.encode_batches(
    encode, params, dataset, batch, start=first
  )
  try:
    with bar:
      for rows in batches:
        writer = lego.store.write.put(writer, rows)
        bar.update(len(rows))
    lego.store.write.finish(writer, dataset.ids, dataset.labels, dataset.split)
  except errors.LegoError:
    # A damaged image, or numbers too large for the storage type: the corrected input
    # makes another store, so this beginning is useless.
    lego.store.write.discard(writer)
    raise
  return total - first


def _report(
  args: argparse.Namespace, shape: tuple[int, int], done: int, seconds: float
) -> None:
  rate = done / seconds if done else 0.0
  if args.json:
    result = {
      "store": str(args.out), "samples": shape[0], "dim": shape[1], "encoded": done,
      "seconds": round(seconds, 3), "images_per_second": round(rate, 2),
    }  # fmt: skip
    print(json.dumps(result))
  elif done:
    print(f"{args.out}: {shape[0]} encodings of width {shape[1]} ({rate:.1f} images/s)")
  else:
    print(f"{args.out}: complete already, {shape[0]} encodings of width {shape[1]}")


def _default_batch(size: int, devices: int) -> int:
  """Images per step; about the same number of pixels at any image size."""
  images = min(128, max(8, 16 * 224**2 // size**2 // 8 * 8))
  import jax

  return devices * images * (1 if jax.default_backend() == "cpu" else 8)
