"""Labels are matched by class names, and encodings by how they were made."""

import json

from conftest import encodings
import numpy as np
import pytest

from legonet_jax.cli import main as cli
from legonet_jax.runs import journal, run as run_lib, verify as verify_lib

ANIMALS = ("cat", "dog", "emu", "fox")


def say(capsys, *args, code=0):
  capsys.readouterr()
  assert cli.main([str(a) for a in args]) == code, capsys.readouterr().err
  out = capsys.readouterr()
  return out.err.splitlines()[-1] if code == 2 else out.out


def make_npz(path, names, count=40, start=0, seed=0, **more):
  """Samples of class `names[i]` lie around the point that belongs to the name."""
  rng = np.random.default_rng(seed)
  labels = np.arange(count) % len(names or ANIMALS)
  centres = {n: np.random.default_rng(sum(map(ord, n))).normal(size=7) for n in
             {*ANIMALS, "ant", *(names or ())}}  # fmt: skip
  rows = [centres[(names or ANIMALS)[y]] for y in labels]
  noise = 0.05 * rng.normal(size=(count, 7))
  arrays = {
    "encodings": (np.asarray(rows) + noise).astype(np.float32),
    "labels": labels,
    "ids": np.arange(start, start + count),
  }
  if names is not None:
    arrays["classes"] = np.asarray(names)
  np.savez(path, **{**arrays, **more})
  return path


@pytest.fixture
def run(tmp_path, capsys):
  make_npz(tmp_path / "first.npz", ANIMALS)
  say(capsys, "import-encodings", tmp_path / "first.npz", "--out", tmp_path / "store")
  say(capsys, "fit", tmp_path / "store", "--out", tmp_path / "run",
      "--adapters", 4, "--top-k", 2)  # fmt: skip
  return tmp_path / "run"


def accuracy(capsys, run, path):
  out = say(capsys, "evaluate", run, "--encodings", path, "--json")
  return json.loads(out)["test"]


@pytest.mark.parametrize("kind", ["npz", "store"])
def test_cats_are_learned_as_cats_whatever_their_number_is(run, capsys, kind):
  """In the new data cat has the number that dog has in the run."""
  folder = run.parent
  source = make_npz(folder / "more.npz", ("fox", "cat"), start=100, seed=1)
  test = make_npz(folder / "test.npz", ("cat", "fox", "dog", "emu"), start=900, seed=2)
  assert accuracy(capsys, run, test) == 1
  if kind == "store":
    say(capsys, "import-encodings", source, "--out", folder / "more")
    source = folder / "more"
  say(capsys, "learn", run, "--encodings", source)
  assert accuracy(capsys, run, test) == 1
  assert len(run_lib.load(run).state.ids) == 80
  assert all(c.passed for c in verify_lib.verify(run, full=True).checks)
  say(capsys, "compact", run)
  say(capsys, "unlearn", run, "--class", "cat")
  assert len(run_lib.load(run).state.ids) == 80 - 10 - 20
  assert all(c.passed for c in verify_lib.verify(run, full=True).checks)


def test_class_names_are_in_run_certificate_and_answers(run, capsys):
  settings = json.loads((run / "run.json").read_text())
  assert settings["classes"] == list(ANIMALS)
  assert journal.read(run / "journal.jsonl")[0]["classes"] == list(ANIMALS)
  assert json.loads(say(capsys, "status", run, "--json"))["classes"] == list(ANIMALS)
  say(capsys, "verify", run, "--full", "--out", run.parent / "c.json")
  assert json.loads((run.parent / "c.json").read_text())["classes"] == list(ANIMALS)
  out = say(capsys, "predict", run, "--encodings", run.parent / "store", "--ids", 1)
  assert "class dog" in out
  out = say(capsys, "predict", run, "--encodings", run.parent / "store", "--ids", 1,
            "--json")  # fmt: skip
  assert json.loads(out)["answers"][0]["name"] == "dog"
  # Others may number the same classes in another way.
  kept = make_npz(run.parent / "kept.npz", ANIMALS)
  with np.load(kept) as file:
    arrays = dict(file)
  arrays |= {"labels": 3 - arrays["labels"], "classes": arrays["classes"][::-1]}
  np.savez(kept, **arrays)
  say(capsys, "verify", "--certificate", run.parent / "c.json", "--encodings", kept)


def test_a_class_that_the_run_does_not_know_is_refused(run, capsys):
  source = make_npz(run.parent / "more.npz", ("ant", "cat"), start=100)
  before = run_lib.load(run).manifest.digest
  err = say(capsys, "learn", run, "--encodings", source, code=2)
  assert "class 'ant', which is none of the run's classes (cat, dog, emu, fox)" in err
  store = run.parent / "more"
  say(capsys, "import-encodings", source, "--out", store)
  assert "class 'ant'" in say(capsys, "learn", run, "--encodings", store, code=2)
  assert run_lib.load(run).manifest.digest == before
  say(capsys, "learn", run, "--encodings", store, "--ids", 101, 103)  # cats only
  assert "class 'ant'" in say(capsys, "evaluate", run, "--encodings", source, code=2)


def test_labels_without_names_are_refused_unless_they_are_said_to_be_the_runs(
  run, capsys
):
  source = make_npz(run.parent / "more.npz", None, start=100)
  err = say(capsys, "learn", run, "--encodings", source, code=2)
  assert "does not name its classes" in err
  assert "--label-numbers" in err
  store = run.parent / "more"
  say(capsys, "import-encodings", source, "--out", store)
  err = say(capsys, "learn", run, "--encodings", store, code=2)
  assert "labels cannot be matched" in err
  say(capsys, "learn", run, "--encodings", source, "--label-numbers")
  assert len(run_lib.load(run).state.ids) == 80


def test_a_class_can_be_named_in_a_request_and_a_wrong_one_is_said(run, capsys):
  err = say(capsys, "unlearn", run, "--class", "cow", code=2)
  assert "one of cat, dog, emu, fox" in err
  assert "give 0 to 3" in say(capsys, "unlearn", run, "--class", "4", code=2)


def test_labels_are_checked_before_they_are_cast(run, capsys):
  labels = np.full(40, 2**32 + 1)
  source = make_npz(run.parent / "more.npz", None, start=100, labels=labels)
  err = say(capsys, "learn", run, "--encodings", source, "--label-numbers", code=2)
  assert "too large" in err
  labels = np.full(40, 4)
  source = make_npz(run.parent / "more.npz", None, start=100, labels=labels)
  err = say(capsys, "learn", run, "--encodings", source, "--label-numbers", code=2)
  assert "label 4" in err


def test_an_encoding_that_is_not_a_number_is_refused_and_not_answered(run, capsys):
  rows = encodings(3)
  rows[1, 0] = np.nan
  np.savez(run.parent / "nan.npz", encodings=rows)
  err = say(capsys, "predict", run, "--encodings", run.parent / "nan.npz", code=2)
  assert "row 1 has a value that is NaN" in err


def rewrite(store, **changes):
  """Another way of making the same store, as `legonet encode` would note it."""
  meta = json.loads((store / "meta.json").read_text())
  made = {
    "encoder": "resnet34", "size": 224, "resize": "bilinear, half-pixel centres",
    "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "compute": "float32",
    "weights_sha256": "ab" * 32,
  }  # fmt: skip
  meta |= {**made, **changes}
  (store / "meta.json").write_text(json.dumps(meta))


CHANGES = {
  "size": 64,
  "compute": "bfloat16",
  "resize": "nearest",
  "encoder": "resnet50",
  "mean": [0.5, 0.5, 0.5],
  "std": [0.5, 0.5, 0.5],
  "weights_sha256": "cd" * 32,
}


@pytest.mark.parametrize("name", CHANGES)
def test_encodings_that_were_made_otherwise_are_refused(tmp_path, name, capsys):
  """A store's identity is all that its encodings depend on, not the weights alone."""
  for number, part in enumerate(("store", "same", "other")):
    file = make_npz(tmp_path / f"{part}.npz", ANIMALS, start=100 * number, seed=number)
    say(capsys, "import-encodings", file, "--out", tmp_path / part)
    rewrite(tmp_path / part, **({name: CHANGES[name]} if part == "other" else {}))
  say(capsys, "fit", tmp_path / "store", "--out", tmp_path / "run",
      "--adapters", 4, "--top-k", 2)  # fmt: skip
  say(capsys, "learn", tmp_path / "run", "--encodings", tmp_path / "same")
  err = say(
    capsys, "learn", tmp_path / "run", "--encodings", tmp_path / "other", code=2
  )
  assert "made by another encoder" in err
  assert len(run_lib.load(tmp_path / "run").state.ids) == 80
