"""The encoder: a pretrained ResNet in Flax, its weights, and stores of encodings."""

from legonet_jax.encoder.encode import (
  ImageEncoder,
  encode_batches,
  encode_images,
  predict_images,
  prepare,
  preprocess,
)
from legonet_jax.encoder.resnet import (
  ResNet,
  apply,
  apply_folded,
  apply_train,
  apply_tune,
  build_resnet,
  fold,
  init,
)
from legonet_jax.encoder.weights import Weights, from_torchvision, load, pretrained_path
from legonet_jax.store.read import Encodings, open_store

__all__ = [
  "Encodings",
  "ImageEncoder",
  "ResNet",
  "Weights",
  "apply",
  "apply_folded",
  "apply_train",
  "apply_tune",
  "build_resnet",
  "encode_batches",
  "encode_images",
  "fold",
  "from_torchvision",
  "init",
  "load",
  "open_store",
  "predict_images",
  "prepare",
  "preprocess",
  "pretrained_path",
]  # fmt: skip
