"""Your own encodings in an .npz file: fit, forget, prove.

    python examples/own_npz.py my_encodings.npz

The file holds `encodings` [N, d] (float) and `labels` [N] (integers from 0); `ids` [N]
if your samples have numbers of their own; `split` [N] (0 train, 1 test) if some are to
be left out. Without an argument the script writes such a file from the data that comes
with the package, and uses that.
"""

import argparse
import pathlib
import tempfile

import numpy as np

import legonet_jax as lego
from legonet_jax.data.embedded import load_embedded


def write_demo(path: pathlib.Path) -> None:
  """Writes 1,500 of the embedded encodings as a user would have them."""
  train, _ = load_embedded()
  part = slice(None, None, 4)
  np.savez(
    path,
    encodings=train.encodings[part],
    labels=train.labels[part],
    ids=train.ids[part],
  )


def run(path: pathlib.Path) -> None:
  """Fits on `path`, forgets three samples, and compares with a refit."""
  with np.load(path) as file:  # pickles are off by default; keep it so
    encodings, labels = file["encodings"], file["labels"]
    ids = file["ids"] if "ids" in file else np.arange(len(labels))
    train = file["split"] == 0 if "split" in file else np.full(len(labels), True)
  encodings, labels, ids = encodings[train], labels[train], ids[train]

  cfg = lego.LegoConfig(num_classes=int(labels.max()) + 1, num_adapters=50)
  samples = lego.make_samples(cfg, encodings, labels, ids)
  state, info = lego.fit(cfg, samples)
  print(f"fit on {len(ids):,} samples: {info.seconds:.2f} s")

  forget = ids[:3]
  state, info = lego.unlearn(state, samples, forget)
  samples = lego.drop(samples, forget)  # the rows leave the memory as well
  print(f"forgot {len(forget)}: {info.adapters_retrained} of 50 adapters mended")

  refit, _ = lego.fit(cfg, samples)
  assert lego.digest(state) == lego.digest(refit)
  print(f"equal to a refit, bit for bit: {lego.digest(state)[:16]}")


def main(argv: list[str] | None = None) -> None:
  """Reads the command line."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("file", type=pathlib.Path, nargs="?")
  file = parser.parse_args(argv).file
  if file is not None:
    run(file)
    return
  with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "encodings.npz"
    write_demo(file)
    run(file)


if __name__ == "__main__":
  main()
