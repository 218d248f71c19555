"""`.safetensors` files: a JSON header and the numbers after it, no code.

    8 bytes: length of the header | header | numbers of all tensors, without gaps

The `safetensors` library checks that the tensors fill the file exactly, so they take as
much memory as the file. This module also handles types that numpy lacks, names that
occur twice, and files that change or end while they are mapped into memory.
"""

from collections.abc import Mapping
import json
import pathlib
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
import safetensors

from legonet_jax import errors
from legonet_jax.io import untrusted

MAX_FILE = 2 << 30
_MAX_HEADER = 8 << 20  # 60,000 tensors
_DTYPES: Mapping[str, Any] = {
  "F64": np.float64,
  "F32": np.float32,
  "F16": np.float16,
  "BF16": ml_dtypes.bfloat16,
  "I64": np.int64,
  "I32": np.int32,
  "I16": np.int16,
  "I8": np.int8,
  "U8": np.uint8,
  "BOOL": np.bool_,
}


def read_safetensors(path: pathlib.Path) -> dict[str, NDArray[Any]]:
  """All tensors of a file, by name.

  Raises:
    WeightsError: if the file is damaged or has types that weights do not have.
  """
  try:
    data = untrusted.read_bytes(path, limit=MAX_FILE)
    if int.from_bytes(data[:8], "little") > _MAX_HEADER:
      raise errors.WeightsError(f"{path} is not a .safetensors file; check the path")
    parts = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    _refuse_doubles(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {name: _to_array(name, **part) for name, part in parts}
  except errors.DataError as e:
    raise errors.WeightsError(str(e)) from None
  except (safetensors.SafetensorError, ValueError, TypeError, OverflowError) as e:
    if isinstance(e, errors.LegoError):
      raise
    raise errors.WeightsError(
      f"{path} is not a readable .safetensors file ({untrusted.one_line(e)}); get it"
      " again"
    ) from None


def _to_array(name: str, dtype: str, shape: list[int], data: bytes) -> NDArray[Any]:
  if dtype not in _DTYPES:
    raise ValueError(f"tensor '{untrusted.one_line(name, 60)}' has type {dtype}")
  return np.frombuffer(data, _DTYPES[dtype]).reshape(shape)


def _refuse_doubles(header: bytes) -> None:
  """Raises ValueError if a name occurs twice; the library would silently pick one."""

  def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
      raise ValueError("a name occurs twice")
    return made

  json.loads(header, object_pairs_hook=check)
