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


def test_a_file_as_torch_writes_it_is_read(tmp_path):
  """Instruction by instruction, with the versions of modules at the end."""
  data = (
    b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01(X\x06\x00\x00\x00weightq\x02"
    b"ctorch._utils\n_rebuild_tensor_v2\nq\x03((X\x07\x00\x00\x00storageq\x04ctorch\n"
    b"FloatStorage\nq\x05X\x01\x00\x00\x000q\x06X\x03\x00\x00\x00cpuq\x07K\x02tq\x08"
    b"QK\x00K\x02\x85q\tK\x01\x85q\n\x89h\x00)Rq\x0btq\x0cRq\rX\x13\x00\x00\x00"
    b"num_batches_trackedq\x0eh\x03((h\x04ctorch\nLongStorage\nq\x0fX\x01\x00\x00\x00"
    b"1q\x10h\x07K\x01tq\x11QK\x00))\x89h\x00)Rq\x12tq\x13Rq\x14u}q\x15X\t\x00\x00"
    b"\x00_metadataq\x16h\x00)Rq\x17X\x00\x00\x00\x00q\x18}q\x19X\x07\x00\x00\x00"
    b"versionq\x1aK\x02sssb."
  )
  path = _zip(tmp_path / "x.pth", data, {"0": B, "1": np.int64([5])})
  found = pth.read_pth(path)
  np.testing.assert_array_equal(found["weight"], B)
  assert found["num_batches_tracked"] == 5
  assert found["num_batches_tracked"].shape == ()


def test_a_dict_as_python_2_wrote_it_is_read(tmp_path):
  """With byte strings, and all pairs as an argument."""
  store = b"(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x02NtQ"
  tensor = b"ctorch._utils\n_rebuild_tensor\n(" + store + b"K\x00K\x02\x85K\x01\x85tR"
  data = b"\x80\x02ccollections\nOrderedDict\n](](U\x01b" + tensor + b"ee\x85R."
  np.testing.assert_array_equal(
    pth.read_pth(_legacy(tmp_path / "x.pth", data, {"0": B}))["b"], B
  )


def test_a_checkpoint_with_tensors_elsewhere_is_read(tmp_path, pickled):
  """Legacy storages follow each other, those that nobody asked for as well."""
  tree = {
    "optimizer": {"state": {140_000_000_000_000: {"m": _FakeTensor("0", A)}}},
    "state_dict": {"b": _FakeTensor("1", B)},
  }
  path = _legacy(tmp_path / "x.pth", pickled(tree), {"0": A, "1": B})
  np.testing.assert_array_equal(pth.read_pth(path)["b"], B)


def test_a_pickle_cannot_change_this_library(tmp_path):
  """An instruction sets attributes of what is on the stack, be it a function."""
  change = b"N}X\x05\x00\x00\x00ownedK\x01s\x86b."
  path = tmp_path / "x.pth"
  path.write_bytes(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + change)
  with pytest.raises(errors.WeightsError):
    pth.read_pth(path)
  assert not hasattr(pth._rebuild_tensor, "owned")


@pytest.mark.parametrize("names", [("a", "module.a"), ("module.a", "a")])
def test_two_tensors_of_one_name_are_refused(tmp_path, pickled, names):
  tree = {name: _FakeTensor("0", A) for name in names}
  with pytest.raises(errors.WeightsError, match="two tensors of one name"):
    pth.read_pth(_zip(tmp_path / "x.pth", pickled(tree), {"0": A}))


def test_a_compressed_zip_is_refused_before_it_is_unpacked(tmp_path, pickled):
  data = pickled({"a": _FakeTensor("0", A)})
  path = _zip(tmp_path / "x.pth", data, {"0": A}, zipfile.ZIP_DEFLATED)
  with pytest.raises(errors.WeightsError, match="compressed"):
    pth.read_pth(path)
