"""Pretrained weights: torchvision's files by name, or a local `.pth` / `.safetensors`.

The sha256 of the weights file is recorded in every store that is made with it.
"""

from collections.abc import Mapping
import pathlib
from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.encoder import pth, safe_tensors
from legonet_jax.encoder.resnet import ResNet, Variables, init
from legonet_jax.io import download, untrusted
from legonet_jax.io.files import PathLike

_HOST = "https://download.pytorch.org/models"
# Torchvision's ImageNet weights, version 1 of each. Their names hold 8 digits of the
# hash; several public projects record the full hashes, and they agree.
PRETRAINED: Mapping[str, download.Remote] = {
  "resnet18": download.Remote(
    f"{_HOST}/resnet18-f37072fd.pth",
    "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
  ),
  "resnet34": download.Remote(
    f"{_HOST}/resnet34-b627a593.pth",
    "b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f",
  ),
  "resnet50": download.Remote(
    f"{_HOST}/resnet50-0676ba61.pth",
    "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
  ),
}
_SUFFIX = {
  "weight": ("params", "scale"),
  "bias": ("params", "bias"),
  "running_mean": ("batch_stats", "mean"),
  "running_var": ("batch_stats", "var"),
}


class Weights(NamedTuple):
  """Variables of a network and the file that they came from."""

  variables: Variables
  sha256: str
  source: str


def pretrained_path(name: str, *, progress: bool = True) -> pathlib.Path:
  """Torchvision's weights for `name` in the cache folder, downloaded if missing."""
  if name not in PRETRAINED:
    raise errors.WeightsError(
      f"no pretrained weights for '{name}'; give a weights file"
    )
  folder = download.cache_dir() / "weights"
  return download.fetch(PRETRAINED[name], folder, progress=progress)


def load(net: ResNet, path: PathLike) -> Weights:
  """Reads a `.pth` or `.safetensors` file in torchvision's names and layout.

  Raises:
    WeightsError: if it is missing, damaged, unsafe, or for another network.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise errors.WeightsError(f"no weights file {path}; check the path")
  if path.stat().st_size > safe_tensors.MAX_FILE:
    raise errors.WeightsError(
      f"{path} is larger than any of these networks' weights; check the path"
    )
  if path.suffix == ".safetensors":
    tensors = safe_tensors.read_safetensors(path)
  elif path.suffix in (".pth", ".pt"):
    tensors = pth.read_pth(path)
  else:
    raise errors.WeightsError(f"{path}: weights are .pth, .pt or .safetensors files")
  try:
    variables = from_torchvision(net, tensors)
  except errors.WeightsError as e:
    raise errors.WeightsError(f"{path}: {e}") from None
  return Weights(variables, download.sha256_of(path), path.name)


def from_torchvision(net: ResNet, tensors: Mapping[str, NDArray[Any]]) -> Variables:
  """Variables of `net` in float32 from torchvision's state dict.

  The classification layer and PyTorch's batch counters are left out. All other tensors
  must match the variables one to one.
  """
  shapes = jax.eval_shape(lambda: init(net, jax.random.key(0)))
  variables: dict[str, Any] = {"params": {}, "batch_stats": {}}
  for name, tensor in tensors.items():
    if name.startswith("fc.") or name.endswith(".num_batches_tracked"):
      continue
    *path, collection, leaf = _place(name, tensor.ndim)
    value = _to_float32(name, tensor)
    node = variables[collection]
    for part in path:
      node = node.setdefault(part, {})
      if not isinstance(node, dict):
        raise errors.WeightsError(f"tensor '{_shown(name)}' is not of a ResNet")
    if leaf in node:
      raise errors.WeightsError(f"tensor '{_shown(name)}' has the place of another")
    if leaf == "var" and value.min(initial=0) < 0:
      raise errors.WeightsError(f"tensor '{_shown(name)}' holds negative variances")
    node[leaf] = value.transpose(2, 3, 1, 0) if value.ndim == 4 else value
  _compare(shapes, variables, "")
  contiguous: Variables = jax.tree.map(np.ascontiguousarray, variables)
  return contiguous


def _to_float32(name: str, tensor: NDArray[Any]) -> NDArray[np.float32]:
  """The tensor as float32; raises WeightsError if it has other than finite floats."""
  # numpy gives bfloat16 the kind "V", like every type that it does not know.
  if tensor.dtype.kind != "f" and tensor.dtype != ml_dtypes.bfloat16:
    raise errors.WeightsError(
      f"tensor '{_shown(name)}' is of {tensor.dtype}, not float"
    )
  with np.errstate(over="ignore"):  # overflow gives infinity, which is refused below
    value = np.asarray(tensor, np.float32)
  if not np.isfinite(value).all():
    raise errors.WeightsError(
      f"tensor '{_shown(name)}' has numbers that are not finite"
    )
  return value


def _shown(name: str) -> str:
  return untrusted.one_line(name, 80)


def to_torchvision_name(path: tuple[str, ...]) -> str:
  """'layer1.0.bn2.running_var' for ('batch_stats', 'layer1_0', 'conv2', 'var')."""
  collection, *modules, leaf = path
  block = [part.replace("_", ".") for part in modules[:-1]]
  layer = modules[-1]
  if leaf == "kernel":
    return ".".join(
      [*block, f"{layer}.0" if layer == "downsample" else layer, "weight"]
    )
  norm = "downsample.1" if layer == "downsample" else layer.replace("conv", "bn")
  suffix = next(s for s, place in _SUFFIX.items() if place == (collection, leaf))
  return ".".join([*block, norm, suffix])


def _place(name: str, ndim: int) -> tuple[str, ...]:
  """('layer1_0', 'conv2', 'batch_stats', 'var') for 'layer1.0.bn2.running_var'."""
  *modules, suffix = name.split(".")
  if suffix not in _SUFFIX or not modules:
    raise errors.WeightsError(f"tensor '{_shown(name)}' is not of a ResNet")
  if "downsample" in modules:
    modules = modules[:-1]
  else:
    modules[-1] = modules[-1].replace("bn", "conv")
  if len(modules) > 2:
    modules = [f"{modules[0]}_{modules[1]}", *modules[2:]]
  if ndim == 4:
    return (*modules, "params", "kernel")
  return (*modules, *_SUFFIX[suffix])


def _compare(wanted: Any, found: Any, path: str) -> None:
  """Raises WeightsError if the trees differ in names or shapes."""
  if not isinstance(wanted, Mapping):
    shape = getattr(found, "shape", None)
    if wanted.shape != shape:
      raise errors.WeightsError(
        f"'{path}' has shape {shape}, not {wanted.shape}; is it another network?"
      )
    return
  if not isinstance(found, Mapping) or set(wanted) != set(found):
    names = set(found) if isinstance(found, Mapping) else set()
    odd = sorted(set(wanted) ^ names)[0]
    kind = "no" if odd in wanted else "an unknown"
    raise errors.WeightsError(
      f"{kind} tensor for '{path}{_shown(odd)}'; is it another network?"
    )
  for name in wanted:
    _compare(wanted[name], found[name], f"{path}{name}/")
