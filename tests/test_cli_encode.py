"""`legonet encode` and `legonet import-encodings`, as a user meets them."""

import json
import os
import pickle
import resource

import numpy as np
from PIL import Image
import pytest
import safetensors.numpy
from store_world import same_salts  # noqa: F401 (a fixture)
from test_weights import torchvision_state

from legonet_jax import open_store
from legonet_jax.cli import main as cli
from legonet_jax.store import format as store_format, write as store_write


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
  place = tmp_path_factory.mktemp("inputs")
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (11, 32, 32, 3), np.uint8)
  np.savez(place / "x.npz", images=images, labels=np.arange(11) % 3)
  for seed in (0, 1):
    state = torchvision_state("resnet18", seed)
    safetensors.numpy.save_file(state, place / f"w{seed}.safetensors")
  return place


def _args(inputs, out, *more, weights="w0.safetensors", size="32"):
  return [
    "encode", "--dataset", str(inputs / "x.npz"), "--encoder", "resnet18",
    "--weights", str(inputs / weights), "--size", size, "--batch", "4",
    "--out", str(out), "--json", *more,
  ]  # fmt: skip


def _fails(argv, capsys, *words):
  assert cli.main(argv) == 2
  error = capsys.readouterr().err
  assert error.count("\n") == 1
  assert error.startswith("legonet: error: ")
  for word in words:
    assert word in error


def _bytes(path):
  return {p.name: p.read_bytes() for p in path.iterdir()}


@pytest.mark.usefixtures("same_salts")
def test_an_interrupted_and_resumed_run_gives_the_same_bytes(
  inputs, tmp_path, capsys, monkeypatch
):
  assert cli.main(_args(inputs, tmp_path / "whole")) == 0
  assert json.loads(capsys.readouterr().out)["encoded"] == 11
  put, calls = store_write.put, []

  def interrupted(writer, rows):
    if len(calls) == 2:
      raise KeyboardInterrupt
    calls.append(rows)
    return put(writer, rows)

  with monkeypatch.context() as patch:
    patch.setattr(store_write, "put", interrupted)
    assert cli.main(_args(inputs, tmp_path / "twice")) == 130
  assert "the same command goes on" in capsys.readouterr().err
  unfinished = _bytes(tmp_path / "twice")
  assert "meta.json" not in unfinished
  for change in (
    {"weights": "w1.safetensors"},
    {"size": "40"},
  ):
    _fails(_args(inputs, tmp_path / "twice", **change), capsys, "another folder")
  _fails(_args(inputs, tmp_path / "twice", "--limit", "8"), capsys, "dataset_sha256")
  assert _bytes(tmp_path / "twice") == unfinished
  assert cli.main(_args(inputs, tmp_path / "twice")) == 0
  assert json.loads(capsys.readouterr().out)["encoded"] == 3
  assert _bytes(tmp_path / "twice") == _bytes(tmp_path / "whole")

  found = open_store(tmp_path / "whole", verify=True)
  assert found.encodings.shape == (11, 512)
  assert found.meta["weights_sha256"]
  assert cli.main(_args(inputs, tmp_path / "whole")) == 0  # nothing left to do
  assert json.loads(capsys.readouterr().out)["encoded"] == 0
  _fails(_args(inputs, tmp_path / "whole", weights="w1.safetensors"), capsys, "weights")
  _fails(_args(inputs, tmp_path / "whole", "--compute", "bfloat16"), capsys, "compute")


def test_bfloat16_and_float16_are_close_to_float32(inputs, tmp_path):
  low = ("--compute", "bfloat16", "--storage", "float16", "--limit", "4")
  assert cli.main(_args(inputs, tmp_path / "low", *low)) == 0
  assert cli.main(_args(inputs, tmp_path / "high", "--limit", "4")) == 0
  a, b = (open_store(tmp_path / n).encodings for n in ("low", "high"))
  assert a.dtype == np.float16
  assert np.linalg.norm(a - b) < 0.05 * np.linalg.norm(b)
  assert np.linalg.norm(a - b) > 0


def test_bad_input_is_one_line_and_leaves_nothing(inputs, tmp_path, capsys):
  out = tmp_path / "out"

  def fails(*args, **kwargs):
    _fails(_args(inputs, out, *args, **kwargs), capsys)
    assert not out.exists()

  (inputs / "cut.safetensors").write_bytes(
    (inputs / "w0.safetensors").read_bytes()[:100_000]
  )
  (inputs / "evil.pth").write_bytes(pickle.dumps(os.system))
  fails(weights="cut.safetensors")
  fails(weights="evil.pth")
  fails(weights="none.pth")
  fails(size="7")
  fails("--limit", "0")
  fails("--batch", "-4")
  fails("--dataset", str(tmp_path / "nowhere"))
  fails("--dataset", "cifar10", "--data", str(tmp_path))
  fails("--encoder", "resnet34")
  (tmp_path / "photos" / "empty").mkdir(parents=True)
  fails("--dataset", str(tmp_path / "photos"))


def test_numbers_too_large_for_float16_are_refused(inputs, tmp_path, capsys):
  state = torchvision_state("resnet18")
  state["layer4.1.bn2.bias"] = np.full(512, 1e5, np.float32)
  safetensors.numpy.save_file(state, inputs / "large.safetensors")
  argv = _args(
    inputs, tmp_path / "s", "--storage", "float16", weights="large.safetensors"
  )
  _fails(argv, capsys, "not finite in float16")
  assert not (tmp_path / "s").exists()


def test_an_unreadable_image_leaves_no_store(inputs, tmp_path, capsys):
  photos = tmp_path / "photos" / "cat"
  photos.mkdir(parents=True)
  for i in range(9):
    Image.new("RGB", (40, 40), (i, i, i)).save(photos / f"{i}.png")
  (photos / "5.png").write_bytes(b"not an image")
  out = tmp_path / "out"
  _fails(_args(inputs, out, "--dataset", str(photos.parent)), capsys, "5.png")
  assert not out.exists()


def test_no_space_is_one_line_and_leaves_nothing(inputs, tmp_path, capsys):
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
  try:
    _fails(_args(inputs, tmp_path / "out"), capsys)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  assert not (tmp_path / "out").exists()


def test_offline_without_weights_says_where_they_belong(
  inputs, tmp_path, capsys, monkeypatch
):
  monkeypatch.setenv("LEGONET_CACHE", str(tmp_path / "cache"))
  monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
  argv = [a for a in _args(inputs, tmp_path / "out") if "w0." not in a]
  argv.remove("--weights")
  _fails(argv, capsys, str(tmp_path / "cache" / "weights" / "resnet18-f37072fd.pth"))


def test_encodings_from_elsewhere_become_a_store(tmp_path, capsys):
  rows = np.random.default_rng(0).standard_normal((5, 7))
  path = tmp_path / "e.npz"
  np.savez(path, encodings=rows, labels=[0, 1, 2, 0, 1], ids=[9, 8, 7, 6, 5])
  argv = ["import-encodings", str(path), "--out", str(tmp_path / "s"), "--json"]
  assert cli.main(argv) == 0
  assert json.loads(capsys.readouterr().out)["dim"] == 7
  found = open_store(tmp_path / "s", verify=True)
  np.testing.assert_array_equal(found.ids, [5, 6, 7, 8, 9])
  np.testing.assert_array_equal(found.encodings, rows[::-1].astype(np.float32))
  np.testing.assert_array_equal(found.labels, [1, 0, 2, 1, 0])


@pytest.mark.parametrize(
  "arrays",
  [
    {"encodings": np.zeros((2, 3)), "labels": [0, 1], "ids": [4, 4]},
    {"encodings": np.asarray([[0.0, np.nan]] * 2), "labels": [0, 1]},
    {"encodings": np.full((2, 3), 1e6), "labels": [0, 1]},
    {"encodings": np.zeros((2, 3), int), "labels": [0, 1]},
    {"encodings": np.zeros((2, 3)), "labels": [0, -1]},
    {"embeddings": np.zeros((2, 3)), "labels": [0, 1]},
  ],
)
def test_bad_encodings_are_refused(tmp_path, capsys, arrays):
  np.savez(tmp_path / "e.npz", **arrays)
  argv = ["import-encodings", str(tmp_path / "e.npz"), "--out", str(tmp_path / "s")]
  _fails([*argv, "--storage", "float16"], capsys)
  assert not (tmp_path / "s").exists()


def test_the_names_of_class_folders_are_in_the_store(inputs, tmp_path, capsys):
  for i, name in enumerate(("fox", "cat", "dog")):
    (tmp_path / "photos" / name).mkdir(parents=True)
    image = Image.new("RGB", (40, 40), (i, i, i))
    image.save(tmp_path / "photos" / name / "1.png")
  argv = _args(inputs, tmp_path / "s", "--dataset", str(tmp_path / "photos"))
  assert cli.main(argv) == 0
  found = open_store(tmp_path / "s")
  assert found.meta["classes"] == ["cat", "dog", "fox"]
  assert "classes" not in open_store(_plain(inputs, tmp_path / "n")).meta
  assert store_format.identity(found.meta).startswith("resnet18 32px bilinear")
  assert store_format.identity(found.meta).endswith(found.meta["weights_sha256"])
  capsys.readouterr()


def _plain(inputs, path):
  assert cli.main(_args(inputs, path)) == 0
  return path


def test_a_store_encoded_before_there_were_class_names_is_complete(
  inputs, tmp_path, capsys
):
  np.savez(
    tmp_path / "x.npz",
    **np.load(inputs / "x.npz"),
    classes=["cat", "dog", "emu"],
  )
  argv = _args(inputs, tmp_path / "s", "--dataset", str(tmp_path / "x.npz"))
  assert cli.main(argv) == 0
  meta = json.loads((tmp_path / "s" / "meta.json").read_text())
  assert meta.pop("classes") == ["cat", "dog", "emu"]
  (tmp_path / "s" / "meta.json").write_text(json.dumps(meta))
  capsys.readouterr()
  assert cli.main([a for a in argv if a != "--json"]) == 0
  assert "complete already" in capsys.readouterr().out


def _import(tmp_path, *more, **arrays):
  given = {"encodings": np.ones((3, 2)), "labels": [0, 1, 2]} | arrays
  np.savez(tmp_path / "e.npz", **given)
  return [
    "import-encodings",
    str(tmp_path / "e.npz"),
    "--out",
    str(tmp_path / "s"),
    *more,
  ]


def test_imported_encodings_keep_their_class_names(tmp_path, capsys):
  argv = _import(tmp_path, "--encoder", "CLIP", classes=["cat", "dog", "emu"])
  assert cli.main(argv) == 0
  meta = open_store(tmp_path / "s").meta
  assert meta["classes"] == ["cat", "dog", "emu"]
  assert store_format.identity(meta) == "CLIP"
  assert cli.main(argv) == 0
  _fails(_import(tmp_path, classes=["dog", "cat", "emu"]), capsys, "another folder")


def test_the_data_of_the_package_has_class_names(tmp_path):
  assert cli.main(["import-encodings", "embedded", "--out", str(tmp_path / "s")]) == 0
  assert open_store(tmp_path / "s").meta["classes"][3] == "cat"


@pytest.mark.parametrize(
  ("classes", "word"), [(["a", "b"], "labels up to 2"), (["a", "b", "\x1b"], "class 2")]
)
def test_bad_class_names_of_encodings_are_refused(tmp_path, capsys, classes, word):
  _fails(_import(tmp_path, classes=classes), capsys, word)
  assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[2J", "x" * 301, "\udcff"])
def test_the_name_of_an_encoder_is_one_printable_line(tmp_path, capsys, name):
  _fails(_import(tmp_path, "--encoder", name), capsys, "--encoder is")
  assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("label", [2**31, 2**32 + 1, 2**64 - 1])
def test_an_imported_label_that_does_not_fit_is_never_wrapped(tmp_path, capsys, label):
  _fails(
    _import(tmp_path, labels=np.asarray([0, 1, label], np.uint64)), capsys, "label"
  )
