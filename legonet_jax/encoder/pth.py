"""PyTorch's `.pth` files, read without torch and without running any of their code.

A `.pth` is a pickle, and a pickle is a program. The reader below knows the handful of
names that a file of tensors needs and refuses every other one, so nothing in a file can
name a function to call. Sizes and strides are checked against the bytes that are there.

    zip     <any>/data.pkl and one file <any>/data/<key> per storage   (torch >= 1.6)
    legacy  magic, version, system pickles; the data pickle; the storages one by one
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
import io
import pathlib
import pickle
import struct
from typing import Any, BinaryIO, NamedTuple
import zipfile

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors

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
# What unpickling may raise on bytes that are not what they claim to be.
_MALFORMED = (
  pickle.UnpicklingError, zipfile.BadZipFile, EOFError, KeyError, IndexError, TypeError,
  AttributeError, ValueError, struct.error, UnicodeDecodeError, NotImplementedError,
  OverflowError, MemoryError, RecursionError,
)  # fmt: skip


class _Storage(NamedTuple):
  """Where a tensor's numbers are; the bytes come later."""

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
    with path.open("rb") as file:
      if zipfile.is_zipfile(file):
        tree, storages = _read_zip(file)
      else:
        file.seek(0)
        tree, storages = _read_legacy(file)
    return {name: _resolve(t, storages) for name, t in _tensors(tree).items()}
  except errors.LegoError as e:
    raise errors.WeightsError(f"{path}: {e}") from None
  except _MALFORMED as e:
    raise errors.WeightsError(
      f"{path} is not a readable .pth file ({type(e).__name__}); download it again"
    ) from None


def _tensors(tree: object) -> dict[str, _Tensor]:
  """The tensors of a state dict; also of one wrapped as {"state_dict": ...}."""
  for wrapper in ("state_dict", "model"):
    if isinstance(tree, dict) and isinstance(tree.get(wrapper), dict):
      tree = tree[wrapper]
  if not isinstance(tree, dict):
    raise errors.WeightsError("no dict of tensors in it; save `model.state_dict()`")
  found = {str(k): v for k, v in tree.items() if isinstance(v, _Tensor)}
  return {name.removeprefix("module."): tensor for name, tensor in found.items()}


class _Unpickler(pickle.Unpickler):
  """Builds dicts, lists and tensor descriptions; refuses everything else."""

  def find_class(self, module: str, name: str) -> Any:
    if (module, name) == ("collections", "OrderedDict"):
      return OrderedDict
    if module == "torch._utils" and name in _REBUILD:
      return _REBUILD[name]
    if module == "torch" and name in _DTYPES:
      return name
    raise errors.WeightsError(
      f"it asks to run '{module}.{name}', which no file of weights needs;"
      " it may be malicious and was not loaded"
    )

  def persistent_load(self, pid: Any) -> _Storage:
    kind, name, key, _, count = pid[:5]
    if kind != "storage" or int(count) < 0:
      raise pickle.UnpicklingError("not a storage")
    return _Storage(str(key), np.dtype(_DTYPES[name]), int(count))


def _rebuild_tensor(
  storage: Any, offset: Any, shape: Any, strides: Any, *_: Any
) -> _Tensor:
  if not isinstance(storage, _Storage):
    raise pickle.UnpicklingError("a tensor without storage")
  sizes, steps = tuple(map(int, shape)), tuple(map(int, strides))
  return _Tensor(storage, int(offset), sizes, steps)


def _rebuild_parameter(tensor: Any, *_: Any) -> Any:
  return tensor


_REBUILD: Mapping[str, Callable[..., Any]] = {
  "_rebuild_tensor": _rebuild_tensor,
  "_rebuild_tensor_v2": _rebuild_tensor,
  "_rebuild_parameter": _rebuild_parameter,
}


def _read_zip(file: BinaryIO) -> tuple[object, Mapping[str, bytes]]:
  with zipfile.ZipFile(file) as archive:
    names = [n for n in archive.namelist() if n.endswith("/data.pkl")]
    if len(names) != 1:
      raise errors.WeightsError("a zip file without a PyTorch state dict")
    root = names[0].removesuffix("data.pkl")
    order = f"{root}byteorder"
    if order in archive.namelist() and archive.read(order) != b"little":
      raise errors.WeightsError("saved on a big-endian machine; convert it there")
    if any(i.compress_type != zipfile.ZIP_STORED for i in archive.infolist()):
      raise errors.WeightsError("compressed, which torch.save never does")
    tree = _Unpickler(io.BytesIO(archive.read(names[0]))).load()
    prefix = f"{root}data/"
    keys = [n for n in archive.namelist() if n.startswith(prefix)]
    return tree, {n.removeprefix(prefix): archive.read(n) for n in keys}


def _read_legacy(file: BinaryIO) -> tuple[object, Mapping[str, bytes]]:
  if _Unpickler(file).load() != _LEGACY_MAGIC:
    raise pickle.UnpicklingError("wrong magic number")
  _Unpickler(file).load()  # protocol version
  _Unpickler(file).load()  # byte order and sizes of C types
  reader = _Unpickler(file)
  tree = reader.load()
  keys = _Unpickler(file).load()
  sizes = {t.storage.key: t.storage.dtype.itemsize for t in _tensors(tree).values()}
  storages = {}
  for key in keys:
    (count,) = struct.unpack("<q", file.read(8))
    storages[str(key)] = _exactly(file, count * sizes[str(key)])
  return tree, storages


def _exactly(file: BinaryIO, count: int) -> bytes:
  data = file.read(count) if count >= 0 else b""
  if len(data) != count:
    raise EOFError("truncated storage")
  return data


def _resolve(tensor: _Tensor, storages: Mapping[str, bytes]) -> NDArray[Any]:
  """The numbers of a tensor, copied out of its storage."""
  flat = np.frombuffer(storages[tensor.storage.key], tensor.storage.dtype)
  spans = zip(tensor.shape, tensor.strides, strict=True)
  if min((*tensor.shape, *tensor.strides, tensor.offset), default=0) < 0:
    raise IndexError("negative size")
  if 0 in tensor.shape:
    return np.zeros(tensor.shape, flat.dtype)
  last = tensor.offset + sum((size - 1) * stride for size, stride in spans)
  if last >= len(flat) or len(flat) < tensor.storage.length:
    raise IndexError("tensor beyond its storage")
  steps = [s * flat.itemsize for s in tensor.strides]
  view = np.lib.stride_tricks.as_strided(
    flat[tensor.offset :], tensor.shape, steps, writeable=False
  )
  return view.copy()
