"""The encoder: a pretrained ResNet in Flax, and its weights."""

from legonet_jax.encoder.encode import (
  ImageEncoder,
  encode_batches,
  encode_images,
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

__all__ = [
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
  "prepare",
  "preprocess",
  "pretrained_path",
]  # fmt: skip
