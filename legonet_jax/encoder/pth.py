"""PyTorch's `.pth` files, read without torch and without running any of their code.

A `.pth` is a pickle, and a pickle is a program. The machine that runs it here
(`unpickle`) knows the handful of names that a file of tensors needs and refuses every
other one. The sizes, strides and lengths that a file claims are compared with its
actual bytes before memory is allocated, so 362 bytes cannot become gigabytes.

    zip     <any>/data.pkl and one file <any>/data/<key> per storage   (torch >= 1.6)
    legacy  magic, version, system pickles; the data pickle; the storages one by one
"""

from collections.abc import Callable, Mapping
import io
import math
import os
import pathlib
import pickle
import struct
from typing import IO, Any, NamedTuple
import zipfile

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.encoder import unpickle
from legonet_jax.io import untrusted, zips

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_DTYPES: Mapping[str, Any] = {
  "DoubleStorage": np.float64,
  "FloatStorage": np.float32,
  "HalfStorage": np.float16,
  "BFloat16Storage": ml_dtypes.bfloat16,
  "LongStorage": np.int64,
  "IntStorage": np.int32,
  "ShortStorage": np.int16,
  "CharStorage": np.int8,
  "ByteStorage": np.uint8,
  "BoolStorage": np.bool_,
}
# Exceptions that reading malformed bytes raises.
_MALFORMED = (
  *zips.DAMAGED, pickle.UnpicklingError, IndexError, TypeError,
)  # fmt: skip
_MAX_DIMS = 8
_FREE_BYTES = 1 << 16  # allowed beyond twice the file, for tensors that share numbers


class _Storage(NamedTuple):
  """The place of a tensor's numbers; their bytes are read later."""

  key: str
  dtype: Any
  length: int


class _Tensor(NamedTuple):
  storage: _Storage
  offset: int
  shape: tuple[int, ...]
  strides: tuple[int, ...]


def read_pth(path: pathlib.Path) -> dict[str, NDArray[Any]]:
  """All tensors of a state dict saved by `torch.save`, by name.

  Raises:
    WeightsError: if the file is damaged, or is not a plain dict of tensors.
  """
  try:
    with untrusted.open_plain(path) as file:
      size = os.fstat(file.fileno()).st_size
      zipped = file.read(4) == b"PK\3\4"
      file.seek(0)
      return (_read_zip if zipped else _read_legacy)(file, size)
  except errors.DataError as e:
    raise errors.WeightsError(str(e)) from None
  except errors.LegoError as e:
    raise errors.WeightsError(f"{path}: {e}") from None
  except _MALFORMED as e:
    why = f"{type(e).__name__} {untrusted.one_line(e, 80)}".strip()
    raise errors.WeightsError(
      f"{path} is not a readable .pth file ({why}); download it again"
    ) from None


def _read_zip(file: IO[bytes], size: int) -> dict[str, NDArray[Any]]:
  with zipfile.ZipFile(file) as archive:
    members = zips.check_members(archive, size)
    if any(m.compress_type != zipfile.ZIP_STORED for m in members.values()):
      raise errors.WeightsError("compressed, which torch.save never does")
    names = [name for name in members if name.endswith("/data.pkl")]
    if len(names) != 1:
      raise errors.WeightsError("a zip file without a PyTorch state dict")
    root = names[0].removesuffix("data.pkl")
    order = members.get(f"{root}byteorder")
    if order is not None and archive.read(order) != b"little":
      raise errors.WeightsError("saved on a big-endian machine; convert it there")
    machine = unpickle.Machine(io.BytesIO(archive.read(names[0])), _CALLS, _to_storage)
    tensors = _tensors(machine.run(), size)
    keys = {tensor.storage.key for tensor in tensors.values()}
    storages = {key: archive.read(f"{root}data/{key}") for key in keys}
  return {name: _resolve(t, storages[t.storage.key]) for name, t in tensors.items()}


def _read_legacy(file: IO[bytes], size: int) -> dict[str, NDArray[Any]]:
  seen: dict[str, _Storage] = {}

  def load(pid: object) -> _Storage:
    storage = _to_storage(pid)
    if seen.setdefault(storage.key, storage) != storage:
      raise TypeError("two storages of one name")
    return storage

  machine = unpickle.Machine(file, _CALLS, load)
  if machine.run() != _LEGACY_MAGIC:
    raise pickle.UnpicklingError("wrong magic number")
  machine.run()  # protocol version
  machine.run()  # byte order and sizes of C types; storages are always little-endian
  tensors = _tensors(machine.run(), size)
  storages = {}
  for key in machine.run():
    (count,) = struct.unpack("<q", file.read(8))
    length = count * seen[str(key)].dtype.itemsize
    if not 0 <= length <= size - file.tell():
      raise EOFError("a storage beyond the end of the file")
    storages[str(key)] = file.read(length)
  return {name: _resolve(t, storages[t.storage.key]) for name, t in tensors.items()}


def _to_storage(pid: object) -> _Storage:
  match pid:
    case ("storage", unpickle.Name(name=name), str() | int() as key, _, int(n), *_):
      return _Storage(str(key), np.dtype(_DTYPES[name]), n)
  raise TypeError("not a storage")


def _rebuild_tensor(
  storage: Any, offset: Any, shape: Any, strides: Any, *_: object
) -> _Tensor:
  if not isinstance(storage, _Storage):
    raise TypeError("a tensor without storage")
  # Lengths are checked first, because many tensors can share one very long shape.
  if any(type(t) is not tuple or len(t) > _MAX_DIMS for t in (shape, strides)):
    raise TypeError("a tensor of odd shape")
  if any(type(n) is not int or n < 0 for n in (offset, *shape, *strides)):
    raise TypeError("a tensor of odd shape")
  return _Tensor(storage, offset, shape, strides)


def _rebuild_parameter(tensor: object, *_: object) -> object:
  return tensor


_CALLS: Mapping[unpickle.Name, Callable[..., object] | None] = {
  unpickle.ORDERED_DICT: None,
  unpickle.Name("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
  unpickle.Name("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
  unpickle.Name("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
  **{unpickle.Name("torch", name): None for name in _DTYPES},
}


def _tensors(tree: object, size: int) -> dict[str, _Tensor]:
  """The tensors of a state dict, also if it is wrapped as {"state_dict": ...}.

  Raises:
    WeightsError: if there are none, or if they need more bytes than a file of `size`
      bytes can hold.
  """
  for wrapper in ("state_dict", "model"):
    if isinstance(tree, dict) and isinstance(tree.get(wrapper), dict):
      tree = tree[wrapper]
  if not isinstance(tree, dict):
    raise errors.WeightsError("no dict of tensors in it; save `model.state_dict()`")
  found = {str(k): v for k, v in tree.items() if isinstance(v, _Tensor)}
  total = 0
  for name, tensor in found.items():
    count = math.prod(tensor.shape)
    total += count * tensor.storage.dtype.itemsize
    if count > tensor.storage.length or total > 2 * size + _FREE_BYTES:
      raise errors.WeightsError(
        f"tensor '{untrusted.one_line(name)}' claims {count:,} numbers, more than the"
        " file holds; save a contiguous copy"
      )
  tensors = {name.removeprefix("module."): t for name, t in found.items()}
  if len(tensors) < len(found):
    raise errors.WeightsError("two tensors of one name, with and without 'module.'")
  return tensors


def _resolve(tensor: _Tensor, storage: bytes) -> NDArray[Any]:
  """The numbers of a tensor, copied out of its storage."""
  flat = np.frombuffer(storage, tensor.storage.dtype)
  spans = zip(tensor.shape, tensor.strides, strict=True)
  if 0 in tensor.shape:
    return np.zeros(tensor.shape, flat.dtype)
  last = tensor.offset + sum((size - 1) * stride for size, stride in spans)
  if last >= len(flat) or len(flat) < tensor.storage.length:
    raise IndexError("a tensor beyond its storage")
  steps = [s * flat.itemsize for s in tensor.strides]
  view = np.lib.stride_tricks.as_strided(
    flat[tensor.offset :], tensor.shape, steps, writeable=False
  )
  return view.copy()
