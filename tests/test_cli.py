"""The command line, as a person meets it."""

import json
import os
import signal
import subprocess
import sys

import pytest

import legonet_command
from legonet_jax.cli import main as cli


def test_quickstart_proves_itself_and_saves_a_figure(tmp_path, capsys):
  figure = tmp_path / "figure.png"
  args = ["quickstart", "--forget", "2", "--adapters", "30", "--figure", str(figure)]
  assert cli.main([*args, "--json"]) == 0
  report = json.loads(capsys.readouterr().out)
  assert report["proved"]
  samples, one_class = report["tasks"]
  assert samples["digest"] == samples["refit_digest"] != one_class["digest"]
  assert one_class["after"]["unlearn"] == 0.0
  assert one_class["before"]["unlearn"] > 0.9
  assert samples["before"]["test"] > 0.75
  assert figure.read_bytes()[:4] == b"\x89PNG"
  assert list(tmp_path.iterdir()) == [figure]


BAD = {
  "k > n": (["--top-k", "101"], "at most all adapters"),
  "n > N": (["--adapters", "6001"], "5300 samples may be left"),
  "no picture": (["--figure", "x.xyz"], "name a .png"),
  "nowhere": (["--figure", "/no/such/x.png"], "there is no folder /no/such"),
  "no samples": (["--forget", "0"], "--forget is 0"),
  "no such class": (["--forget-class", "10"], "give 0 to 9"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_code_2(name, capsys):
  args, message = BAD[name]
  assert cli.main(["quickstart", *args]) == 2
  stderr = capsys.readouterr().err
  assert stderr.startswith("legonet: error: ")
  assert message in stderr
  assert stderr.count("\n") == 1


def test_ctrl_c_stops_a_run_with_one_line_and_leaves_nothing(tmp_path):
  # A test run in the background inherits an ignored SIGINT; a person's shell does not.
  code = (
    "import signal, sys; from legonet_command import main;"
    " signal.signal(signal.SIGINT, signal.default_int_handler);"
    " sys.exit(main(['quickstart', '--adapters', '30']))"
  )
  command = [sys.executable, "-c", code]
  with subprocess.Popen(
    command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
  ) as process:
    assert "6,000 training" in process.stdout.readline()  # it is at work now
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
  assert process.returncode == 130
  assert stderr.startswith("legonet: interrupted")
  assert stderr.count("\n") == 1
  assert not list(tmp_path.iterdir())


def test_python_m_is_the_same_command_and_help_teaches():
  env = {**os.environ, "COLUMNS": "80"}
  for command in ([sys.executable, "-m", "legonet_jax"], ["legonet"]):
    out = subprocess.run(
      [*command, "quickstart", "--help"], capture_output=True, text=True, env=env
    )
    assert out.returncode == 0
    assert "proves by digest" in " ".join(out.stdout.split())
    bad = subprocess.run([*command, "no-such"], capture_output=True, text=True, env=env)
    assert bad.returncode == 2


def test_a_command_that_finds_its_executables_in_the_cache_says_nothing_of_it(tmp_path):
  """XLA does, in pages, on most Intel processors: openxla/xla 44565."""
  env = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
  env["LEGONET_CACHE"] = str(tmp_path / "cache")
  command = ["legonet", "quickstart", "--adapters", "20", "--json"]
  for _ in range(2):
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, env=env)
    assert done.returncode == 0
    assert done.stderr == b""
    assert list((tmp_path / "cache" / "xla").rglob("*-cache"))


def test_a_ctrl_c_during_imports_is_one_line(monkeypatch, capsys):
  def interrupted(*_):
    raise KeyboardInterrupt

  monkeypatch.delitem(sys.modules, "legonet_jax.cli.main")
  monkeypatch.setattr("builtins.__import__", interrupted)
  assert legonet_command.main() == 130
  monkeypatch.undo()
  assert capsys.readouterr().err.count("\n") == 1


def test_an_interrupt_exits_with_130(monkeypatch, capsys):
  def interrupted(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr("legonet_jax.data.embedded.load_embedded", interrupted)
  assert cli.main(["quickstart"]) == 130
  assert "interrupted" in capsys.readouterr().err
