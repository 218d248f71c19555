"""The commands around a run, as a person uses them."""

import json
import sys

from cli_world import (
  OPTIONS,
  run,  # noqa: F401 (a fixture)
  say,
)
from conftest import CLASSES, DIM, encodings, ids, labels
import numpy as np
import pytest
from run_world import completions

import legonet_jax as lego
from legonet_jax.cli import main as cli
from legonet_jax.io import lock
from legonet_jax.runs import run as run_lib


def test_a_life(run, capsys):
  """Every command once, in an order that makes sense."""
  folder = run.parent
  status = say(capsys, "status", run, "--json")
  assert status["samples"] == 60
  assert status["masked"] == status["unfinished"] == status["lost"] == 0
  before = say(capsys, "evaluate", run, "--json")
  assert before["test_samples"] == 20
  assert before["retained"] > 1 / CLASSES

  done = say(capsys, "unlearn", run, "--ids", ids()[0], ids()[1], "--json")
  assert done["status"] == "complete"
  assert done["count"] == 2
  assert done["samples"] == 58
  looked = say(
    capsys, "history", run, "--salt", done["salt"], "--ids", ids()[1], "--json"
  )
  assert [e["event"] for e in looked["entries"]] == ["accepted", "complete"]
  say(capsys, "history", run, "--salt", done["salt"], "--ids", ids()[2], code=2)

  (folder / "ids.txt").write_text(f"{ids()[2]}\n{ids()[3]}\n")
  done = say(
    capsys, "unlearn", run, "--ids-file", folder / "ids.txt", "--defer", "--json"
  )
  assert done["masked"] > 0
  assert done["adapters"] == 0
  answers = say(
    capsys, "predict", run, "--encodings", folder / "store", "--split", "test", "--json"
  )["answers"]
  assert len(answers) == 20
  assert sum(answers[0]["probabilities"]) == pytest.approx(1)
  assert say(capsys, "heal", run, "--json")["masked"] == 0

  np.savez(
    folder / "new.npz",
    encodings=encodings(4, seed=9),
    labels=[0, 1, 2, 0],
    ids=np.arange(4) + 2 * 10**15,
  )
  done = say(capsys, "learn", run, "--encodings", folder / "new.npz", "--json")
  assert done["samples"] == 60
  done = say(capsys, "unlearn", run, "--ids", 2 * 10**15, "--json")
  say(capsys, "compact", run)
  out = folder / "answers.npz"
  say(capsys, "predict", run, "--encodings", folder / "new.npz", "--out", out)
  with np.load(out) as file:
    assert file["probabilities"].shape == (4, CLASSES)
  text = say(capsys, "verify", run, "--full")
  assert "FAIL" not in text
  assert (run / "certificate.json").is_file()
  assert len(say(capsys, "history", run).splitlines()) == 1 + 2 * 6
  assert set(completions(run).values()) == {1}


def test_random_samples_are_the_same_for_the_same_seed(run, capsys, tmp_path):
  kept = run_lib.load(run).state.ids
  say(capsys, "unlearn", run, "--random", 5, "--seed", 4)
  rng = np.random.default_rng(4)
  picked = rng.choice(np.sort(kept), 5, replace=False)
  left = run_lib.load(run).state.ids
  assert set(kept) - set(left) == set(picked)


def test_one_command_loads_hashes_and_digests_the_checkpoint_once(
  run, capsys, monkeypatch
):
  """And the new one is digested once, when it is made."""
  calls = []

  def counting(name, function):
    def counted(*args, **kwargs):
      calls.append(name)
      return function(*args, **kwargs)

    return counted

  for module, name in (
    ("runs.checkpoint", "load"),
    ("runs.checkpoint", "digest"),
    ("runs.applying", "digest"),
    ("io.durable", "hashes_of"),
  ):
    place = f"legonet_jax.{module}"
    function = getattr(sys.modules[place], name)
    monkeypatch.setattr(f"{place}.{name}", counting(f"{module}.{name}", function))
  say(capsys, "unlearn", run, "--ids", ids()[0])
  assert sorted(calls) == [
    "io.durable.hashes_of",  # of the checkpoint that is loaded
    "io.durable.hashes_of",  # of the one that is saved
    "runs.applying.digest",
    "runs.checkpoint.digest",
    "runs.checkpoint.load",
  ]


def test_rows_that_the_run_holds_already_are_left_out_and_that_is_said(
  run, capsys, tmp_path
):
  """An .npz without ids is numbered by row, and so may name samples of the run."""
  held = run_lib.load(run).state.ids
  new = np.array([held[0], 10**17 + 1, 10**17 + 2])
  rows = {"encodings": encodings(3, seed=8), "labels": np.array([0, 1, 2])}
  np.savez(tmp_path / "new.npz", ids=new, **rows)
  assert cli.main(["learn", str(run), "--encodings", str(tmp_path / "new.npz")]) == 0
  assert "1 of 3 rows are left out" in capsys.readouterr().err
  again = say(capsys, "learn", run, "--encodings", tmp_path / "new.npz", code=2)
  assert "holds all 3 training rows" in again


def test_who_asks_is_told_which_samples_and_the_salt_finds_them(run, capsys):
  """Also where the command has chosen them: else the salt would be of no use."""
  done = say(capsys, "unlearn", run, "--random", 3, "--json")
  assert len(done["ids"]) == 3
  found = say(
    capsys, "history", run, "--salt", done["salt"], "--ids", *done["ids"], "--json"
  )
  assert [e["event"] for e in found["entries"]] == ["accepted", "complete"]
  text = say(capsys, "unlearn", run, "--random", 12, "--seed", 1)
  assert "and 2 more (--json)" in text


def test_the_salt_is_said_once_and_one_request_is_not_called_requests(run, capsys):
  said = []
  for one in (["--json"], []):
    assert cli.main(["unlearn", str(run), "--random", "1", *one]) == 0
    said.append(capsys.readouterr())
  salt = json.loads(said[0].out)["salt"]
  assert said[0].err.count(salt) == 1
  salt = said[1].err.split("its salt is ")[1].strip()
  assert salt not in said[1].out
  assert say(capsys, "history", run, "--salt", salt, "--ids", _id_in(said[1].out))
  history = say(capsys, "history", run)
  assert "unlearn 1 sample " in history
  assert "1 request, " in history
  assert "0 requests not complete" in say(capsys, "status", run)


def _id_in(text):
  """The one id that a request has printed."""
  return text.split("  ids    ")[1].split()[0]


def test_a_queued_request_says_its_salt_once_too(run, capsys):
  with lock.hold(run):
    words = ["unlearn", str(run), "--ids", str(ids()[0]), "--queue"]
    assert cli.main(words) == 0
  out = capsys.readouterr()
  assert "unlearn 1 sample: queued" in out.out
  assert "its salt is " in out.err
  assert "salt" not in out.out
  with lock.hold(run):
    assert cli.main(["status", str(run)]) == 0
  assert "1 request not complete" in capsys.readouterr().out


def test_a_certificate_that_cannot_be_written_is_refused_before_the_work(
  run, capsys, tmp_path
):
  say(capsys, "unlearn", run, "--random", 1, "--defer")
  out = tmp_path / "certificate.json"
  said = say(capsys, "verify", run, "--full", "--out", out, code=2)
  assert "legonet heal" in said
  assert not out.exists()


@pytest.mark.parametrize(
  ("options", "said"),
  [
    (["--epochs", "3"], "--epochs is an option of sgd"),
    (["--solver", "sgd", "--penalty", "0.1"], "--penalty is an option of ridge"),
    (["--solver", "own_solver:ClassMeans", "--set", "sharpnes=4"], "it has sharpness"),
    (["--solver", "own_solver:ClassMeans", "--set", "sharpness=x"], "sharpness is 'x'"),
    (["--solver", "own_solver:ClassMeans", "--lanes", "2"], "--lanes is an option"),
    (["--solver", "nowhere:X"], "--solver nowhere cannot be imported"),
  ],
)
def test_options_that_the_solver_does_not_have_are_refused(
  run, capsys, tmp_path, options, said
):
  store = run_lib.load(run).manifest.stores[0]
  new = tmp_path / "new"
  assert said in say(capsys, "fit", store, "--out", new, *options, code=2)
  assert not new.exists()


SOLVERS = {
  "no train": ("@dataclass\nclass B(Solver): pass", "has no method train of its own"),
  "no solver": ("@dataclass\nclass B: pass", "has no method train of its own"),
  "not Python": ("class B(Solver:\n  pass", "its code is not Python ("),
  "indented": ("class B:\npass", "its code is not Python ("),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_a_module_that_holds_no_solver_is_one_line(
  run, capsys, tmp_path, monkeypatch, name
):
  code, said = SOLVERS[name]
  module = f"broken_{name.replace(' ', '_')}"
  head = "from dataclasses import dataclass\nfrom legonet_jax import Solver\n"
  (tmp_path / f"{module}.py").write_text(head + code)
  monkeypatch.syspath_prepend(tmp_path)
  words = ["fit", tmp_path / "store", "--out", tmp_path / "x", "--solver"]
  assert said in say(capsys, *words, f"{module}:B", code=2)
  assert not (tmp_path / "x").exists()


def test_a_class_goes_as_a_whole(run, capsys):
  y = labels()
  done = say(capsys, "unlearn", run, "--class", 1, "--json")
  assert done["count"] == int((y == 1).sum())
  assert set(run_lib.load(run).state.ids) == set(ids()[y != 1])
  assert "names no sample" in say(capsys, "unlearn", run, "--class", 1, code=2)


def test_fit_takes_the_encoder_from_the_store(run):
  loaded = run_lib.load(run)
  assert loaded.cfg.encoder == "unknown"
  assert loaded.state.model.keys.shape == (8, DIM)


@pytest.mark.parametrize("name", [None, "CLIP ViT-B/32"])
def test_an_imported_file_gives_the_digest_of_a_fit_in_python(
  run, capsys, tmp_path, name
):
  said = [] if name is None else ["--encoder", name]
  words = ["import-encodings", tmp_path / "all.npz", "--out", tmp_path / "other"]
  say(capsys, *words, *said)
  words = ["fit", tmp_path / "other", "--out", tmp_path / "new", *OPTIONS, "--json"]
  done = say(capsys, *words)
  cfg = lego.LegoConfig(
    num_classes=CLASSES, num_adapters=8, top_k=2, seed=3, encoder=name or "unknown"
  )
  with np.load(tmp_path / "all.npz") as file:
    train = file["split"] == 0
    rows = [file[name][train] for name in ("encodings", "labels", "ids")]
  state, _ = lego.fit(cfg, lego.make_samples(cfg, *rows))
  assert lego.digest(state) == done["digest"]


BAD = {
  "no id": (["unlearn", "RUN", "--ids", "999"], "holds no sample 999"),
  "not ids": (["unlearn", "RUN", "--ids-file", "all.npz"], "not a text file"),
  "too many": (["unlearn", "RUN", "--random", "70"], "give 1 to 60"),
  "too few left": (["unlearn", "RUN", "--random", "55"], "5 samples would be left"),
  "no such file": (["learn", "RUN", "--encodings", "none.npz"], "no file none.npz"),
  "learn nothing": (["learn", "RUN"], "--ids"),
  "run there": (["fit", "store", "--out", "RUN"], "is a run already"),
  "no store": (["fit", "none", "--out", "x"], "no encoding store"),
  "in use": (["fit", "store", "--out", "store"], "in use for something else"),
  "n > N": (["fit", "store", "--out", "x", "--adapters", "61"], "fewer adapters"),
  "no keys": (["fit", "store", "--out", "x", "--key-policy", "given"], "needs keys"),
  "verify what": (["verify"], "name a run"),
  "half a question": (["history", "RUN", "--salt", "00"], "goes with --ids"),
  "too many adapters": (["verify", "RUN", "--adapters", "9"], "give 1 to 8"),
  "no certificate": (
    ["verify", "--certificate", "none.json", "--encodings", "store"],
    "no file",
  ),
  "width": (["predict", "RUN", "--encodings", "wide.npz"], "encodings have shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_code_2(run, name, capsys, monkeypatch):
  monkeypatch.chdir(run.parent)
  np.savez("wide.npz", encodings=np.ones((2, DIM + 1), np.float32))
  args, message = BAD[name]
  digest = run_lib.load(run).manifest.digest
  assert message in say(capsys, *(run if a == "RUN" else a for a in args), code=2)
  assert run_lib.load(run).manifest.digest == digest
  assert not (run.parent / "x" / "journal.jsonl").exists()
