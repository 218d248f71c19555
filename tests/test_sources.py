"""Files that a run's rows came from: named to who forgets, and never compared."""

import json
import shutil

from cli_world import OPTIONS, run, say  # noqa: F401 (a fixture)
from conftest import encodings, ids
import numpy as np
from PIL import Image
import pytest
from run_world import drop
import safetensors.numpy
from test_weights import torchvision_state

from legonet_jax import errors, open_store
from legonet_jax.cli import main as cli
from legonet_jax.runs import requests, run as run_lib, service, sources
from legonet_jax.store import make as store_make, read as store_read

IDS = [int(i) for i in ids()]
NEW = [2 * 10**15 + i for i in range(4)]


def learn(capsys, path):
  """The path of an .npz that the run has learned from."""
  file = path.parent / "new.npz"
  np.savez(file, encodings=encodings(4, seed=9), labels=[0, 1, 2, 0], ids=NEW)
  say(capsys, "learn", path, "--encodings", file)
  return str(file)


def forget(capsys, path, *wanted, more=()):
  return say(capsys, "unlearn", path, "--json", *more, "--ids", *wanted)["sources"]


def verified(capsys, path):
  """The sources that `verify` names, after every check has passed."""
  told = say(capsys, "verify", path, "--json")
  assert told["passed"]
  return told["sources"]


def test_a_receipt_names_the_files_that_may_still_hold_the_sample(run, capsys):
  first, learned = str(run.parent / "all.npz"), learn(capsys, run)
  assert forget(capsys, run, IDS[0]) == [first]
  assert forget(capsys, run, NEW[0]) == [learned]
  assert forget(capsys, run, IDS[1], NEW[1]) == [first, learned]
  text = say(capsys, "unlearn", run, "--ids", IDS[2])
  assert f"may still hold the sample: {first}" in text
  assert learned not in text


def test_only_files_that_are_still_there_are_named(run, capsys):
  (run.parent / "all.npz").unlink()
  learned = learn(capsys, run)
  assert forget(capsys, run, IDS[0], NEW[0]) == [learned]
  assert "may still hold" not in say(capsys, "unlearn", run, "--ids", IDS[1])
  (run.parent / "new.npz").unlink()
  assert verified(capsys, run) == []


def test_verify_notes_the_sources_of_forgotten_samples_and_passes(run, capsys):
  assert verified(capsys, run) == []
  forget(capsys, run, IDS[0])
  source = str(run.parent / "all.npz")
  assert verified(capsys, run) == [source]
  assert cli.main(["verify", str(run)]) == 0
  out, err = capsys.readouterr()
  assert source not in out
  assert f"may still hold forgotten samples: {source}" in err


def test_a_store_that_a_run_learned_from_names_its_own_source(run, capsys):
  file, store = run.parent / "new.npz", run.parent / "second"
  np.savez(file, encodings=encodings(4, seed=9), labels=[0, 1, 2, 0], ids=NEW)
  say(capsys, "import-encodings", file, "--out", store)
  say(capsys, "learn", run, "--encodings", store)
  assert forget(capsys, run, NEW[0]) == [str(file)]
  assert NEW[0] not in store_read.read_ids(store)


def test_a_relative_source_never_reaches_a_store(run, monkeypatch):
  rows = {"encodings": encodings(4, seed=9), "labels": np.zeros(4, np.int32)}
  monkeypatch.chdir(run.parent)
  service.carry_out(run, requests.make("learn", NEW, source="all.npz", **rows))
  loaded = run_lib.load(run)
  assert sources.find(loaded, np.asarray(NEW)) == [str(run.parent / "all.npz")]
  forged = requests.make("learn", [9], source="all.npz", **rows)
  with monkeypatch.context() as patch:
    patch.setattr("legonet_jax.runs.requests.os.path.abspath", lambda path: path)
    name = drop(run, forged._replace(encodings=encodings(1), labels=np.zeros(1, "i4")))
  session, _ = service.carry_out(run)
  assert service.outcome(session, name)["event"] == "rejected"


def test_a_merged_store_still_names_the_files_of_its_rows(run, capsys):
  learned = learn(capsys, run)
  forget(capsys, run, NEW[0])
  say(capsys, "compact", run)
  assert learned in verified(capsys, run)
  assert forget(capsys, run, NEW[1]) == [learned]


def test_a_queued_request_names_them_too(run, capsys, monkeypatch):
  def busy(*args, **kwargs):
    raise errors.RunBusyError("another process works on the run")

  monkeypatch.setattr("legonet_jax.runs.service.carry_out", busy)
  found = forget(capsys, run, IDS[0], more=("--queue",))
  assert found == [str(run.parent / "all.npz")]


def test_a_request_that_a_crash_has_cut_off_names_them_at_last(run, capsys):
  def fail(*args, **kwargs):
    raise errors.RunError("the disk is full")

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr("legonet_jax.runs.finishing.requests_lib.remove", fail)
    assert cli.main(["unlearn", str(run), "--ids", str(IDS[0])]) == 2
  capsys.readouterr()
  assert IDS[0] not in store_read.read_ids(run.parent / "store")
  assert forget(capsys, run, IDS[0]) == [str(run.parent / "all.npz")]


def test_images_and_imports_are_recorded_and_the_embedded_data_has_no_file(
  tmp_path, capsys
):
  state = torchvision_state("resnet18", 0)
  safetensors.numpy.save_file(state, tmp_path / "w.safetensors")
  images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
  np.savez(tmp_path / "x.npz", images=images, labels=[0, 1, 0, 1])
  for i, image in enumerate(images):
    file = tmp_path / "photos" / f"class{i % 2}" / f"{i}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(file)
  options = ("--encoder", "resnet18", "--weights", tmp_path / "w.safetensors")
  for name in ("photos", "x.npz"):
    out = tmp_path / f"store of {name}"
    say(
      capsys, "encode", "--dataset", tmp_path / name, *options, "--size", "32",
      "--limit", "3", "--out", out,
    )  # fmt: skip
    assert open_store(out).meta["sources"] == [str(tmp_path / name)]
  say(capsys, "import-encodings", "embedded", "--out", tmp_path / "demo")
  assert "sources" not in open_store(tmp_path / "demo").meta


def test_a_relative_path_is_recorded_whole(run, capsys, monkeypatch):
  monkeypatch.chdir(run.parent)
  say(capsys, "import-encodings", "all.npz", "--out", "other")
  assert open_store("other").meta["sources"] == [str(run.parent / "all.npz")]


def test_the_path_of_a_source_is_part_of_no_identity(run, capsys):
  folder = run.parent
  moved = folder / "elsewhere" / "all.npz"
  moved.parent.mkdir()
  shutil.copy(folder / "all.npz", moved)
  say(capsys, "import-encodings", moved, "--out", folder / "store")  # the same store
  say(capsys, "import-encodings", moved, "--out", folder / "other")
  say(capsys, "fit", folder / "other", "--out", folder / "twin", *OPTIONS)
  here, there = run_lib.load(run), run_lib.load(folder / "twin")
  assert here.manifest.digest == there.manifest.digest
  assert here.cfg.encoder == there.cfg.encoder


def test_a_store_without_the_path_of_its_source_still_serves(run, capsys):
  """As made by version 0.3."""
  file = run.parent / "store" / "meta.json"
  meta = json.loads(file.read_text())
  del meta["sources"]
  file.write_text(json.dumps(meta))
  assert forget(capsys, run, IDS[0]) == []
  assert verified(capsys, run) == []
  say(capsys, "import-encodings", run.parent / "all.npz", "--out", file.parent)


@pytest.mark.parametrize("bad", ["/x.npz", 3, [3], {}, None, [["/x.npz"]], ["x.npz"]])
def test_sources_of_a_wrong_type_are_refused_in_one_line(tmp_path, bad):
  store_make.make_store(tmp_path / "store", encodings(3), np.zeros(3, np.int64))
  file = tmp_path / "store" / "meta.json"
  file.write_text(json.dumps({**json.loads(file.read_text()), "sources": bad}))
  with pytest.raises(errors.StoreError, match=r"'sources' in .* of a wrong type"):
    open_store(tmp_path / "store")


def test_a_source_with_an_odd_name_is_printed_on_one_line(run, capsys):
  odd = run.parent / "a\n\x1b[31m\udcff" / "odd.npz"
  odd.parent.mkdir()
  shutil.copy(run.parent / "all.npz", odd)
  store, other = run.parent / "odd store", run.parent / "odd run"
  say(capsys, "import-encodings", odd, "--out", store)
  say(capsys, "fit", store, "--out", other, *OPTIONS)
  text = say(capsys, "unlearn", other, "--ids", IDS[0])
  assert [line for line in text.splitlines() if line.endswith("odd.npz")]
  assert "\x1b" not in text
  assert forget(capsys, other, IDS[1]) == [str(odd)]
