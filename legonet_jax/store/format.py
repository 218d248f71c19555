"""The encoding store: every sample's encoding, computed once, in a folder.

    encodings.npy   [N, d] float16, float32 or float64
    ids.npy         [N] int64, increasing
    labels.npy      [N] int32
    split.npy       [N] uint8, 0 train and 1 test
    seals.npy       [N, 32] uint8 and
    salts.npy       [N, 16] uint8, by which a changed row is found (see `seals`)
    erased.marks    which ids were erased, if any were (see `marks`)
    meta.json       how it was made, the names of its classes and the absolute paths of
                    its sources if they are known, and the sha256 of each array

An erased row (see `erase`) has the id and label -1, and zeros in all else but its seal;
`open_store` leaves it out.

`meta.json` is written last and makes the store complete. Until then the folder holds
`partial.json`, which says how the store is being made and how many rows are safely on
disk, and `encodings.part`, which grows. Only a command with the same settings may
continue it. `partial.json` is created first and removed last, so a process may be
killed at any moment: the same command continues, and gives the same rows.

Anyone who can write to a store can put a symbolic link there. So links are never
followed: every file of a store must be a regular file.
"""

from collections.abc import Callable, Mapping, Sequence
import errno
import json
import os
import pathlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.data import names
from legonet_jax.io import files, hashing, untrusted

VERSION = 1
META, PARTIAL, GROWING = "meta.json", "partial.json", "encodings.part"
WHOLE, LOCK = "encodings.npy", "lock"
COLUMNS = ("ids", "labels", "split")
ARRAYS = ("encodings", *COLUMNS)
SEALS, SALTS = "seals", "salts"
_TYPES = {
  "encodings": ("float16", "float32", "float64"),
  "ids": ("int64",),
  "labels": ("int32",),
  "split": ("uint8",),
  SEALS: ("uint8",),
  SALTS: ("uint8",),
}
_WIDTHS = {"encodings": None, SEALS: 32, SALTS: 16}  # of arrays in two axes
ERASED = -1


def identity(meta: Mapping[str, Any]) -> str:
  """The encoder of a store, in one line; equal lines mean equal encoders.

  Args:
    meta: the store's metadata, see `Encodings`.

  Returns:
    For a store of `legonet encode`: the network, how images are prepared for it, the
    type that it computes in, and the sha256 of its weights. For an imported store: the
    name that was given, or "" if there is none.
  """
  if not meta.get("weights_sha256"):
    return str(meta.get("encoder") or "")
  parts = {
    "encoder": meta.get("encoder"),
    "size": f"{meta.get('size')}px",
    "resize": meta.get("resize"),
    "mean": f"mean {_spaced(meta.get('mean', ()))}",
    "std": f"std {_spaced(meta.get('std', ()))}",
    "compute": meta.get("compute"),
    "weights_sha256": f"sha256:{meta['weights_sha256']}",
  }
  return " ".join(str(part) for key, part in parts.items() if key in meta)


def check_meta(file: pathlib.Path, meta: Mapping[str, Any]) -> None:
  """Raises StoreError if a field that is used has a wrong type."""
  version = meta.get("version")
  if type(version) is not int or version != VERSION:
    raise errors.StoreError(
      f"{file} is of version {short(version)}, and only {VERSION} can be read here;"
      " encode again, or use the legonet-jax that made it"
    )
  hashes, erased = meta.get("sha256"), meta.get("erased", 0)
  sound = {
    "sha256": isinstance(hashes, dict)
    and set(hashes) - {SEALS} == set(ARRAYS)
    and all(isinstance(value, str) for value in hashes.values()),
    "erased": type(erased) is int and erased >= 0,
    "size": type(meta.get("size", 0)) is int,
    "classes": isinstance(meta.get("classes", []), list),
    "sources": untrusted.is_a(meta.get("sources", []), list)
    and all(os.path.isabs(path) for path in meta.get("sources", [])),
  }
  for key in ("encoder", "weights_sha256", "resize", "compute"):
    sound[key] = isinstance(meta.get(key, ""), str)
  for key in ("mean", "std"):
    sound[key] = _are_numbers(meta.get(key, []))
  for key, right in sound.items():
    if not right:
      raise damaged(file.parent, f"'{key}' in {file} is missing or of a wrong type")
  line = identity(meta)
  if line and not names.is_one_line(line, 1000):
    raise damaged(file.parent, f"{file} names the encoder {line[:60]!a}, not one line")


def check_type(path: pathlib.Path, name: str, array: NDArray[Any]) -> None:
  """Raises StoreError if an array of a store has a wrong type or number of axes."""
  file, kinds, kind = path / f"{name}.npy", _TYPES[name], array.dtype
  axes = 2 if name in _WIDTHS else 1
  width = array.shape[-1] if array.ndim == 2 else None
  sound = kind.name in kinds and kind.isnative and array.ndim == axes
  if not sound or _WIDTHS.get(name) not in (None, width):
    found = untrusted.one_line(f"{kind}{list(array.shape)}", 60)
    raise damaged(path, f"{file} is {found}, not {' or '.join(kinds)} in {axes}-d")
  if axes == 2 and not array.flags.c_contiguous:  # rows could not be erased in place
    raise damaged(path, f"{file} is in Fortran order")


def find_live(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
  """Which rows [N] are not erased.

  An erasure overwrites the encoding first, then the label, then the id. A row that has
  lost the first two counts as erased, even if a kill came before the third.
  """
  ids, labels = np.asarray(arrays["ids"]), np.asarray(arrays["labels"])
  live: NDArray[np.bool_] = ids != ERASED
  half = np.flatnonzero(live & (labels == ERASED))
  if len(half):
    live[half] = arrays["encodings"][half].any(axis=1)
  return live


def check_columns(
  path: pathlib.Path, arrays: Mapping[str, NDArray[Any]], classes: Any
) -> None:
  """Raises StoreError if a column is wrong; erased rows must be left out before."""
  ids, labels, split = (arrays[name] for name in COLUMNS)
  if not len(ids):
    return
  if ids[0] < 0 or not (ids[1:] > ids[:-1]).all():
    what = f"the ids in {path / 'ids.npy'} are negative, occur twice or do not increase"
    raise damaged(path, what)
  if labels.min() < 0:
    raise damaged(path, f"{path / 'labels.npy'} has the label {labels.min()}")
  if split.max() > 1:
    raise damaged(path, f"{path / 'split.npy'} has a {split.max()}, not only 0 and 1")
  if classes is not None:
    try:
      names.check_classes(str(path / META), classes, int(labels.max()) + 1)
    except errors.DataError as e:
      raise errors.StoreError(str(e)) from None


def damaged(path: pathlib.Path, what: str) -> errors.StoreError:
  """The error for a store with something wrong in it."""
  return errors.StoreError(
    f"{what}; restore {path} from a copy, or delete it and encode again"
  )


def short(value: Any) -> str:
  """A value of a JSON file, for a message."""
  try:
    text = json.dumps(value)
  except RecursionError:
    return "(nested too deeply)"
  return text if len(text) <= 40 else text[:37] + "..."


def read(file: pathlib.Path, how: Callable[..., Any]) -> Any:
  """Returns `how(file, follow=False)`; turns its errors into StoreError."""
  try:
    return how(file, follow=False)
  except FileNotFoundError:
    raise damaged(file.parent, f"{file} is missing") from None
  except errors.DataError as e:
    raise damaged(file.parent, str(e)) from None
  except OSError as e:
    if e.errno != errno.ELOOP:
      raise
    raise damaged(file.parent, f"{file} is a symbolic link") from None


def read_json(file: pathlib.Path) -> dict[str, Any] | None:
  """The object in a JSON file of a store, or None if there is no such file."""
  if not os.path.lexists(file):
    return None
  value: dict[str, Any] = read(file, untrusted.read_json)
  return value


def write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
  """Writes a JSON file, durable when this returns."""
  files.write(path, hashing.to_text(value))
  files.sync_folder(path.parent)


def _spaced(numbers: Sequence[float]) -> str:
  return " ".join(str(float(number)) for number in numbers)


def _are_numbers(value: Any) -> bool:
  return isinstance(value, list) and all(type(v) is float for v in value)
