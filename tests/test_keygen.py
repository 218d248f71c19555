"""`legonet keygen`, and signatures without the extra `sign`."""

import json
import pathlib
import subprocess
import sys

import pytest
from signing_world import KEY

from legonet_jax import errors
from legonet_jax.cli import main as cli
from legonet_jax.runs import key_files, signing


@pytest.fixture
def no_cryptography(monkeypatch):
  names = [n for n in sys.modules if n.split(".")[0] == "cryptography"]
  for name in {*names, "cryptography"}:
    monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("no_cryptography")
def test_without_the_package_every_function_says_how_to_install_it(tmp_path):
  public = KEY.public_key()
  calls = [
    lambda: key_files.generate(tmp_path / "key"),
    lambda: key_files.load_private(tmp_path / "key"),
    lambda: key_files.load_public(tmp_path / "key"),
    lambda: key_files.key_id(public),
  ]
  for call in calls:
    with pytest.raises(errors.ConfigError, match=r"pip install 'legonet-jax\[sign\]'"):
      call()
  assert not list(tmp_path.iterdir())
  empty = b'{"payload": "", "payloadType": "", "signatures": []}'
  assert signing.is_envelope(empty)  # which needs no key


def test_the_package_is_imported_only_when_a_key_is_used():
  code = (
    "import sys; sys.modules['cryptography'] = None;"
    "import legonet_jax.runs.signing, legonet_jax.cli.keygen"
  )
  subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def command(monkeypatch, capsys):

  def call(*args):
    code = cli.main(["keygen", *map(str, args)])
    return code, capsys.readouterr()

  return call


def test_keygen_writes_both_files_and_prints_where_and_the_key_id(tmp_path, command):
  code, printed = command(tmp_path / "key")
  assert code == 0
  key = key_files.load_public(tmp_path / "key.pub")
  for part in (tmp_path / "key", tmp_path / "key.pub", key_files.key_id(key)):
    assert str(part) in printed.out
  assert not printed.err


def test_keygen_with_json_prints_one_object_and_never_the_key(tmp_path, command):
  code, printed = command(tmp_path / "key", "--json")
  assert code == 0
  key = key_files.load_public(tmp_path / "key.pub")
  assert json.loads(printed.out) == {
    "private_key": str(tmp_path / "key"),
    "public_key": str(tmp_path / "key.pub"),
    "key_id": key_files.key_id(key),
  }
  secret = (tmp_path / "key").read_text().split("\n")[1]
  assert secret not in printed.out + printed.err


def test_keygen_says_what_is_wrong_in_one_line_with_exit_code_2(tmp_path, command):
  (tmp_path / "taken").write_bytes(b"precious")
  (tmp_path / "half.pub").write_bytes(b"precious")
  bad = {
    tmp_path / "taken": "keys are never overwritten",
    tmp_path / "half": "half.pub exists",
    tmp_path: "is a folder",
    tmp_path / "..": "is a folder",
    tmp_path / "none" / "key": "make it first",
    tmp_path / "taken" / "key": "make it first",
    tmp_path / ("x" * 300): "File name too long",
    tmp_path / ("x" * 253): "File name too long",
    pathlib.Path("/proc/key"): "cannot be written",
  }
  for path, message in bad.items():
    code, printed = command(path)
    assert code == 2
    assert printed.out == ""
    assert printed.err.startswith("legonet: error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1
  assert sorted(p.name for p in tmp_path.iterdir()) == ["half.pub", "taken"]


def test_keygen_explains_itself(capsys):
  with pytest.raises(SystemExit):
    cli.main(["keygen", "--help"])
  assert "KEY.pub" in capsys.readouterr().out
