"""A `.pth` gives its tensors and never runs its code."""

import io
import os
import pickle
import struct
import sys
import types
import zipfile

import numpy as np
import pytest

from legonet_jax import errors
from legonet_jax.encoder import pth


class _FakeTensor:
  def __init__(self, key, array, offset=0, strides=None):
    self.key, self.array, self.offset = key, array, offset
    self.strides = strides or tuple(s // array.itemsize for s in array.strides)


@pytest.fixture
def pickled(monkeypatch):
  """Pickles tensors as torch does, with stand-ins for torch's modules."""
  utils = types.ModuleType("torch._utils")

  def rebuild(*args):
    raise AssertionError

  rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
  utils._rebuild_tensor_v2 = rebuild
  fake = types.ModuleType("torch")
  storage = type("FloatStorage", (), {"__module__": "torch"})
  fake.FloatStorage, fake._utils = storage, utils

  class Pickler(pickle.Pickler):
    def persistent_id(self, obj):
      if isinstance(obj, tuple) and obj[:1] == ("storage",):
        return obj
      return None

    def reducer_override(self, obj):
      if not isinstance(obj, _FakeTensor):
        return NotImplemented
      pid = ("storage", storage, obj.key, "cpu", obj.array.size)
      return rebuild, (pid, obj.offset, obj.array.shape, obj.strides, False, {})

  def dump(tree, protocol=2):
    with monkeypatch.context() as patch:
      patch.setitem(sys.modules, "torch", fake)
      patch.setitem(sys.modules, "torch._utils", utils)
      buffer = io.BytesIO()
      Pickler(buffer, protocol).dump(tree)
    return buffer.getvalue()

  return dump


def _zip(path, data, storages, compression=zipfile.ZIP_STORED):
  with zipfile.ZipFile(path, "w", compression) as archive:
    archive.writestr("archive/data.pkl", data)
    archive.writestr("archive/byteorder", "little")
    for key, array in storages.items():
      archive.writestr(f"archive/data/{key}", array.tobytes())
  return path


def _legacy(path, data, storages):
  parts = [
    pickle.dumps(x, 2) for x in (pth._LEGACY_MAGIC, 1001, {"little_endian": True})
  ]
  parts += [data, pickle.dumps(list(storages), 2)]
  for array in storages.values():
    parts += [struct.pack("<q", array.size), array.tobytes()]
  path.write_bytes(b"".join(parts))
  return path


class _Evil:
  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return os.mkdir, (str(self.path),)


A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.float32([7, 8])


@pytest.mark.parametrize("write", [_zip, _legacy])
def test_tensors_come_out_as_they_went_in(tmp_path, pickled, write):
  tree = {"a": _FakeTensor("0", A), "b": _FakeTensor("1", B), "epoch": 3}
  found = pth.read_pth(write(tmp_path / "x.pth", pickled(tree), {"0": A, "1": B}))
  assert set(found) == {"a", "b"}
  np.testing.assert_array_equal(found["a"], A)
  np.testing.assert_array_equal(found["b"], B)


def test_views_of_one_storage_and_wrapped_dicts_are_followed(tmp_path, pickled):
  transposed = _FakeTensor("0", A.T.copy(), strides=(1, 3))
  tree = {"state_dict": {"module.t": transposed}}
  found = pth.read_pth(_zip(tmp_path / "x.pth", pickled(tree), {"0": A}))
  np.testing.assert_array_equal(found["t"], A.T)


@pytest.mark.parametrize("write", [_zip, _legacy])
def test_malicious_pickle_is_refused_and_does_not_run(tmp_path, pickled, write):
  target = tmp_path / "owned"
  path = write(tmp_path / "x.pth", pickled({"a": _Evil(target)}), {})
  with pytest.raises(errors.WeightsError, match=r"mkdir.*malicious"):
    pth.read_pth(path)
  assert not target.exists()


def test_a_bare_malicious_pickle_does_not_run(tmp_path):
  target = tmp_path / "owned"
  path = tmp_path / "x.pth"
  path.write_bytes(pickle.dumps(_Evil(target)))
  with pytest.raises(errors.WeightsError):
    pth.read_pth(path)
  assert not target.exists()
  pickle.loads(path.read_bytes())  # it is malicious indeed
  assert target.exists()


@pytest.mark.parametrize("write", [_zip, _legacy])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.6, 0.98])
def test_a_truncated_file_is_one_clear_error(tmp_path, pickled, write, share):
  path = write(tmp_path / "x.pth", pickled({"a": _FakeTensor("0", A)}), {"0": A})
  data = path.read_bytes()
  path.write_bytes(data[: int(share * len(data))])
  with pytest.raises(errors.WeightsError, match=r"x\.pth") as info:
    pth.read_pth(path)
  assert "\n" not in str(info.value)


@pytest.mark.parametrize(
  "tensor",
  [
    _FakeTensor("0", A, offset=1),
    _FakeTensor("0", A, offset=-1),
    _FakeTensor("0", A, strides=(3, 2)),
    _FakeTensor("0", A, strides=(-3, 1)),
    _FakeTensor("9", A),
  ],
)
def test_a_tensor_beyond_its_storage_is_refused(tmp_path, pickled, tensor):
  with pytest.raises(errors.WeightsError):
    pth.read_pth(_zip(tmp_path / "x.pth", pickled({"a": tensor}), {"0": A}))


def test_a_compressed_zip_is_refused_before_it_is_unpacked(tmp_path, pickled):
  data = pickled({"a": _FakeTensor("0", A)})
  path = _zip(tmp_path / "x.pth", data, {"0": A}, zipfile.ZIP_DEFLATED)
  with pytest.raises(errors.WeightsError, match="compressed"):
    pth.read_pth(path)
