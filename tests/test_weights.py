"""Torchvision's names and layout carry over, or the file is refused."""

import functools

import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from legonet_jax import errors
from legonet_jax.encoder import resnet, weights
from legonet_jax.io import download


@functools.cache
def shapes(name):
  return jax.eval_shape(
    lambda: resnet.init(resnet.build_resnet(name), jax.random.key(0))
  )


def torchvision_state(name, seed=0):
  """Random tensors under torchvision's names, in its layout."""
  rng = np.random.default_rng(seed)
  state = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(shapes(name)):
    value = rng.standard_normal(leaf.shape).astype(np.float32)
    fan_in = np.prod(leaf.shape[:3])
    value = value / np.sqrt(fan_in) if leaf.shape[2:] else np.abs(value) / 2 + 0.5
    value = value.transpose(3, 2, 0, 1) if value.ndim == 4 else value
    key = weights.to_torchvision_name(tuple(p.key for p in path))
    state[key] = np.ascontiguousarray(value, np.float32)
  return state


@pytest.mark.parametrize(
  ("name", "parameters"),
  [("resnet18", 11_176_512), ("resnet34", 21_284_672), ("resnet50", 23_508_032)],
)
def test_backbones_have_torchvisions_number_of_parameters(name, parameters):
  leaves = jax.tree.leaves(shapes(name)["params"])
  assert sum(int(np.prod(leaf.shape)) for leaf in leaves) == parameters


def test_names_are_torchvisions():
  names = {
    "conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "layer4.2.bn2.bias",
    "layer2.0.downsample.0.weight", "layer2.0.downsample.1.running_var",
  }  # fmt: skip
  assert names <= set(torchvision_state("resnet34"))


def test_every_tensor_finds_its_place():
  net, state = resnet.build_resnet("resnet18"), torchvision_state("resnet18")
  variables = weights.from_torchvision(net, state)
  kernel = variables["params"]["layer2_0"]["downsample"]["kernel"]
  np.testing.assert_array_equal(
    kernel, state["layer2.0.downsample.0.weight"].transpose(2, 3, 1, 0)
  )
  for path, leaf in jax.tree_util.tree_leaves_with_path(variables):
    value = state[weights.to_torchvision_name(tuple(p.key for p in path))]
    value = value.transpose(2, 3, 1, 0) if value.ndim == 4 else value
    np.testing.assert_array_equal(leaf, value)


def test_a_file_of_another_network_is_refused():
  state = torchvision_state("resnet34")
  with pytest.raises(errors.WeightsError, match="another network"):
    weights.from_torchvision(resnet.build_resnet("resnet18"), state)
  state = torchvision_state("resnet18")
  del state["layer3.1.bn2.weight"]
  with pytest.raises(errors.WeightsError, match="layer3_1/conv2/scale"):
    weights.from_torchvision(resnet.build_resnet("resnet18"), state)
  state = torchvision_state("resnet18") | {"classifier": np.zeros(3)}
  with pytest.raises(errors.WeightsError, match="classifier"):
    weights.from_torchvision(resnet.build_resnet("resnet18"), state)


def test_the_classification_layer_is_left_out(tmp_path):
  state = torchvision_state("resnet18")
  extra = {"fc.weight": np.zeros((9, 512)), "bn1.num_batches_tracked": np.int64([1])}
  path = tmp_path / "w.safetensors"
  safetensors.numpy.save_file(state | extra, path)
  loaded = weights.load(resnet.build_resnet("resnet18"), path)
  assert loaded.sha256 == download.sha256_of(path)
  assert loaded.source == "w.safetensors"
  assert set(loaded.variables["params"]) == set(shapes("resnet18")["params"])


@pytest.mark.parametrize(
  ("name", "change", "problem"),
  [
    ("conv1.weight", lambda x: np.where(x == x.max(), np.nan, x), "not finite"),
    ("conv1.weight", lambda x: np.float64(x) * 1e300, "not finite"),
    ("layer1.0.bn1.bias", lambda x: x.astype(np.int32), "of int32, not float"),
    ("layer1.0.bn1.bias", lambda x: x > 0, "of bool, not float"),
    ("layer1.0.bn1.bias", lambda x: x.astype(np.complex64), "not float"),
    ("bn1.running_var", lambda x: -x, "negative variances"),
  ],
)
def test_weights_that_are_no_sound_numbers_are_refused(name, change, problem):
  state = torchvision_state("resnet18")
  state[name] = change(state[name])
  with pytest.raises(errors.WeightsError, match=f"tensor '{name}' .*{problem}"):
    weights.from_torchvision(resnet.build_resnet("resnet18"), state)


def test_a_tensor_in_the_place_of_another_is_refused():
  state = torchvision_state("resnet18")
  state["bn1.weight"] = state["conv1.weight"]
  with pytest.raises(errors.WeightsError, match="has the place of another"):
    weights.from_torchvision(resnet.build_resnet("resnet18"), state)


def test_bfloat16_weights_are_read(tmp_path):
  state = torchvision_state("resnet18")
  short = {name: value.astype(ml_dtypes.bfloat16) for name, value in state.items()}
  path = tmp_path / "w.safetensors"
  safetensors.numpy.save_file(short, path)
  loaded = weights.load(resnet.build_resnet("resnet18"), path).variables
  np.testing.assert_array_equal(
    loaded["params"]["conv1"]["scale"], short["bn1.weight"].astype(np.float32)
  )


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".txt"])
def test_a_damaged_or_missing_file_is_one_clear_error(tmp_path, suffix):
  path = tmp_path / f"w{suffix}"
  net = resnet.build_resnet("resnet18")
  with pytest.raises(errors.WeightsError, match="no weights file"):
    weights.load(net, path)
  path.write_bytes(b"\x10\0\0\0\0\0\0\0{}")
  with pytest.raises(errors.WeightsError, match=f"w{suffix}"):
    weights.load(net, path)


def test_the_published_hashes_match_the_names_of_the_files():
  for remote in weights.PRETRAINED.values():
    prefix = remote.filename.removesuffix(".pth").rpartition("-")[2]
    assert len(remote.sha256) == 64
    assert remote.sha256.startswith(prefix)
