"""The real encodings that come with the package: 6,000 + 1,000 of CIFAR-10.

ResNet-34 encodings (d = 512) at 224 px of 600 training and 100 test images per class,
8 bits per number. `embedded_files/README.md` says where they come from. An id is the
image's number in the official order; test images start at 50,000.
"""

import pathlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PATH = pathlib.Path(__file__).parent / "embedded_files" / "cifar10_resnet34.npz"
CLASSES = (
  "airplane",
  "automobile",
  "bird",
  "cat",
  "deer",
  "dog",
  "frog",
  "horse",
  "ship",
  "truck",
)


class EmbeddedSplit(NamedTuple):
  """Encodings [N, 512] float32, labels [N] and ids [N] int64."""

  encodings: NDArray[np.float32]
  labels: NDArray[np.int64]
  ids: NDArray[np.int64]


def load_embedded() -> tuple[EmbeddedSplit, EmbeddedSplit]:
  """The training and the test samples."""
  with np.load(PATH) as file:
    train, test = (
      EmbeddedSplit(
        encodings=file[f"{split}_scales"][:, None]
        * np.square(file[f"{split}_codes"].astype(np.float32) / 255),
        labels=file[f"{split}_labels"].astype(np.int64),
        ids=file[f"{split}_ids"],
      )
      for split in ("train", "test")
    )
  return train, test
