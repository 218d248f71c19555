"""Commands around a run: interrupted, queued, elsewhere; help and README."""

import json
import re
import subprocess
import sys

from cli_world import (
  OPTIONS,
  run,  # noqa: F401 (a fixture)
  say,
)
from conftest import ids
import pytest
from run_world import ROOT, completions, refit_digest

from legonet_jax.cli import main as cli
from legonet_jax.data import embedded
from legonet_jax.runs import run as run_lib, service, verify as verify_lib
from legonet_jax.runtime import environment


def test_an_interrupted_fit_goes_on(run, capsys, monkeypatch):
  folder = run.parent

  def interrupt(*_):
    raise KeyboardInterrupt

  command = ["fit", folder / "store", "--out", folder / "again", *OPTIONS]
  with monkeypatch.context() as patch:
    patch.setattr("legonet_jax.runs.checkpoint.save", interrupt)
    assert cli.main([str(a) for a in command]) == 130
  capsys.readouterr()
  assert "unfinished" in say(capsys, "status", folder / "again", code=2)
  say(capsys, *command)
  digests = [run_lib.load(p).manifest.digest for p in (run, folder / "again")]
  assert digests[0] == digests[1]
  assert refit_digest(ids()) != digests[0]  # another optimiser than the tests' own


CTRL_C = """
import runpy, signal, sys
name, way, sys.argv = sys.argv[1], sys.argv[2], ["legonet", *sys.argv[3:]]

class Ignored:
  def __del__(self):
    signal.raise_signal(signal.SIGINT)

class Finder:
  def find_spec(self, wanted, *_):
    if wanted == name:
      sys.meta_path.remove(self)
      Ignored() if way == "ignored" else signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests
runpy.run_module("legonet_jax", run_name="__main__")
"""


@pytest.mark.parametrize(
  ("name", "way"),
  [
    ("argparse", "raised"),
    ("numpy", "raised"),
    ("tqdm", "raised"),
    ("jax", "raised"),
    ("numpy", "ignored"),
    ("jax", "ignored"),
  ],
)
def test_ctrl_c_during_the_imports_is_one_line(name, way):
  """Python ignores an exception where it destroys an object, and prints it; C++ modules
  that are interrupted by one end in other errors or in a crash.
  """
  code = [sys.executable, "-c", CTRL_C, name, way, "doctor"]
  done = subprocess.run(code, capture_output=True, text=True)
  assert re.fullmatch("legonet: interrupted, nothing .*\n", done.stderr)
  assert done.returncode == 130


def test_accepted_requests_are_finished_by_whatever_comes_next(
  run, capsys, monkeypatch
):
  def interrupt(*_):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr("legonet_jax.store.erase.erase", interrupt)
    assert cli.main(["unlearn", str(run), "--ids", str(ids()[0])]) == 130
  capsys.readouterr()
  assert cli.main(["status", str(run), "--json"]) == 0
  out = capsys.readouterr()
  assert "finished 1 request accepted before" in out.err
  assert json.loads(out.out)["unfinished"] == 0
  assert ids()[0] not in run_lib.load(run).state.ids


def test_another_environment_is_nothing_to_a_run_of_ridge(run, capsys, monkeypatch):
  other = {**environment.environment(), "jaxlib": "9.9", "device": "TPU v5"}
  monkeypatch.setattr(environment, "environment", lambda: other)
  assert cli.main(["status", str(run), "--json"]) == 0
  out = capsys.readouterr()
  assert not out.err
  assert json.loads(out.out)["other_environment"] == {}


def test_another_environment_is_said_to_a_run_of_sgd(run, capsys, monkeypatch):
  here = environment.environment()
  store, run = run.parent / "store", run.parent / "sgd"
  say(capsys, "fit", store, "--out", run, *OPTIONS, "--solver", "sgd")
  other = {**here, "jaxlib": "9.9"}
  monkeypatch.setattr(environment, "environment", lambda: other)
  assert cli.main(["status", str(run), "--json"]) == 0
  out = capsys.readouterr()
  assert f"another environment (jaxlib '{here['jaxlib']}', here '9.9')" in out.err
  assert json.loads(out.out)["other_environment"] == {"jaxlib": [here["jaxlib"], "9.9"]}


def test_processes_that_queue_are_all_served(run):
  """Three at once: one gets the lock, and does what the others leave it."""
  command = [sys.executable, "-m", "legonet_jax", "unlearn", str(run), "--queue"]
  crowd = [
    subprocess.Popen([*command, "--ids", str(i)], stdout=subprocess.PIPE)
    for i in ids()[:3]
  ]
  for process in crowd:
    process.communicate()
    assert process.returncode == 0
  assert not service.unfinished(run)
  assert sorted(completions(run).values()) == [1, 1, 1]
  assert set(run_lib.load(run).state.ids) == set(ids()[3:])
  assert not [c for c in verify_lib.verify(run, full=True).checks if not c.passed]


def test_help_teaches():
  for name in ("fit", "unlearn", "learn", "heal", "compact", "status", "history",
               "verify", "repair", "predict", "evaluate"):  # fmt: skip
    parser = cli.make_parser()
    actions = next(a for a in parser._actions if hasattr(a, "choices") and a.choices)
    text = actions.choices[name].format_help()
    assert len(text) > 300
    assert "--json" in text


def test_the_readmes_commands_run(tmp_path, capsys, monkeypatch):
  """The block of the README about runs, on a small part of the embedded data."""
  readme = (ROOT / "README.md").read_text()
  block = next(b for b in re.findall(r"```bash\n(.*?)```", readme, re.DOTALL)
               if "legonet unlearn" in b)  # fmt: skip
  train, test = embedded.load_embedded()
  small = [embedded.EmbeddedSplit(*(c[:200] for c in part)) for part in (train, test)]
  monkeypatch.setattr(embedded, "load_embedded", lambda: small)
  monkeypatch.chdir(tmp_path)
  commands = [line.split("#")[0].split() for line in block.splitlines() if line.strip()]
  assert len(commands) >= 6
  for command in commands:
    assert command[0] == "legonet"
    args = [*command[1:], *(["--adapters", "10"] if command[1] == "fit" else [])]
    assert cli.main(args) == 0, command
    capsys.readouterr()


def test_the_core_knows_nothing_of_runs():
  code = (
    "import sys, legonet_jax as lego; lego.fit, lego.predict, lego.LegoConfig(2);"
    " assert not [m for m in sys.modules if m.startswith('legonet_jax.runs')];"
    " assert 'orbax.checkpoint' not in sys.modules"
  )
  subprocess.run([sys.executable, "-c", code], check=True)
