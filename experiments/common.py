"""What the experiments share: real encodings, accuracy, result files."""

import argparse
import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.core.prediction import predict_array
from legonet_jax.io import files

RESULTS = pathlib.Path(__file__).parent / "results"


class RawSplit(NamedTuple):
  """Encodings [N, d] float16 and labels [N] int64 in the official order."""

  encodings: NDArray[np.float16]
  labels: NDArray[np.int64]


def add_encodings(parser: argparse.ArgumentParser) -> None:
  """Adds `--encodings` and `--out` to a command."""
  parser.add_argument(
    "--encodings",
    type=pathlib.Path,
    required=True,
    metavar="DIR",
    help="folder with {train,test}_{encodings,labels}.npy",
  )
  parser.add_argument(
    "--out", type=pathlib.Path, default=RESULTS, metavar="DIR", help="for result files"
  )


def load(folder: pathlib.Path, split: str) -> RawSplit:
  """One split of a folder of encodings."""
  try:
    encodings = np.load(folder / f"{split}_encodings.npy", mmap_mode="r")
    labels = np.load(folder / f"{split}_labels.npy").astype(np.int64)
  except (OSError, ValueError) as e:
    raise errors.SampleError(f"cannot read the {split} split in {folder}: {e}") from e
  return RawSplit(encodings, labels)


def accuracy(state: lego.LegoState | lego.Model, split: RawSplit) -> float:
  """Share of right predictions, in percent."""
  p = predict_array(state, split.encodings)
  return 100 * float((p.argmax(axis=1) == split.labels).mean())


def save(folder: pathlib.Path, name: str, result: dict[str, Any]) -> pathlib.Path:
  """Writes a result with its environment as JSON."""
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / f"{name}.json"
  with files.atomic(path) as temporary:
    whole = {"environment": lego.environment(), **result}
    temporary.write_text(json.dumps(whole, indent=2) + "\n")
  return path
