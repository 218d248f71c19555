"""Makes the encodings that come with the package from the full CIFAR-10 encodings.

    python -m experiments.embed_subset --encodings DIR

DIR has {train,test}_{encodings,labels}.npy in the official order. Takes 600 training
and 100 test samples of each class, drawn with a fixed seed, and writes them as 8-bit
codes c with one scale s per sample: e ≈ s (c / 255)². The square keeps the small values
of these non-negative encodings as precise as the large ones.
"""

import argparse
import pathlib

import numpy as np
from numpy.typing import NDArray

from legonet_jax.data import embedded

_PER_CLASS = {"train": 600, "test": 100}
_TEST_IDS_FROM = 50_000  # test sample i has id 50,000 + i, so that ids never meet


def main() -> None:
  """Writes the file."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--encodings", type=pathlib.Path, required=True, metavar="DIR")
  parser.add_argument("--out", type=pathlib.Path, default=embedded.PATH)
  args = parser.parse_args()
  rng = np.random.default_rng(0)
  columns: dict[str, NDArray[np.generic]] = {}
  for split, per_class in _PER_CLASS.items():
    encodings = np.load(args.encodings / f"{split}_encodings.npy")
    labels = np.load(args.encodings / f"{split}_labels.npy")
    rows = np.sort(
      np.concatenate(
        [
          rng.choice(np.flatnonzero(labels == c), per_class, replace=False)
          for c in range(10)
        ]
      )
    )
    e = encodings[rows].astype(np.float32)
    scale = e.max(axis=1)
    codes = np.rint(255 * np.sqrt(e / scale[:, None])).astype(np.uint8)
    columns |= {
      f"{split}_codes": codes,
      f"{split}_scales": scale,
      f"{split}_labels": labels[rows].astype(np.uint8),
      f"{split}_ids": (rows + _TEST_IDS_FROM * (split == "test")).astype(np.int64),
    }
  args.out.parent.mkdir(parents=True, exist_ok=True)
  np.savez(args.out, **columns)  # type: ignore[arg-type]
  print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
  main()
