"""The command line, as a person meets it."""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys

import pytest

import legonet_jax as lego
from legonet_jax.cli import encode, main as cli
from legonet_jax.encoder import weights


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
    "import signal, sys; from legonet_jax.cli.main import main;"
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


@pytest.mark.parametrize(
  ("before", "after"), [(None, "3"), ("1", "3"), ("0", "0"), ("2", "2"), ("3", "3")]
)
def test_xla_is_quiet_also_below_a_process_that_has_imported_jax(
  monkeypatch, capsys, before, after
):
  """JAX sets 1 for all its children; any other level is somebody's wish."""
  monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
  if before is not None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", before)
  with pytest.raises(SystemExit):
    cli.main(["--version"])
  assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == after


def test_a_ctrl_c_during_imports_is_one_line(monkeypatch, capsys):
  def interrupted(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(importlib, "import_module", interrupted)
  assert cli.main(["quickstart"]) == 130
  assert capsys.readouterr().err == "legonet: interrupted, nothing was begun\n"


def test_an_interrupt_exits_with_130(monkeypatch, capsys):
  def interrupted(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr("legonet_jax.data.embedded.load_embedded", interrupted)
  assert cli.main(["quickstart"]) == 130
  assert "interrupted" in capsys.readouterr().err


def run_python(code):
  return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_neither_the_package_nor_any_help_imports_jax():
  code = (
    "import contextlib, sys, legonet_jax; from legonet_jax.cli import main\n"
    "for words in [[], *([c] for c in main.COMMANDS)]:\n"
    "  with contextlib.suppress(SystemExit): main.main([*words, '--help'])\n"
    "assert not {'jax', 'flax', 'optax', 'orbax'} & {*sys.modules}, 'imported'"
  )
  done = run_python(code)
  assert done.returncode == 0, done.stderr
  assert done.stdout.count("usage: legonet") == len(cli.COMMANDS) + 1


def test_the_public_names_are_all_there_and_each_has_a_docstring():
  assert {"fit", "unlearn", "predict", "LegoConfig", "Ridge"} <= set(dir(lego))
  for name in lego.__all__:
    assert getattr(lego, name).__doc__, name


def test_the_defaults_that_help_names_are_the_librarys(capsys):
  with pytest.raises(SystemExit):
    cli.main(["fit", "--help"])
  text = " ".join(capsys.readouterr().out.split())
  cfg, sgd = lego.LegoConfig(num_classes=2), lego.Sgd()
  for said in (
    f"number of adapters ({cfg.num_adapters})",
    f"adapters per sample ({cfg.top_k})",
    f"order ({cfg.seed})",
    f"is forgotten ({cfg.key_policy})",
    f"ξ ({cfg.key_noise})",
    f"of ridge ({lego.Ridge().penalty})",
    f"of sgd ({sgd.epochs})",
    f"of sgd ({sgd.batch_size})",
    f"a name of optax ({sgd.optimizer})",
    f"of sgd ({dict(sgd.options)['learning_rate']})",
    f"side by side ({sgd.lanes})",
  ):
    assert said in text, said


def test_encode_offers_every_pretrained_network_and_split():
  parser = argparse.ArgumentParser()
  encode.add_arguments(parser)
  choices = {a.dest: a.choices for a in parser._actions}
  assert sorted(choices["encoder"]) == sorted(weights.PRETRAINED)
  assert choices["split"] == lego.data.SPLITS
