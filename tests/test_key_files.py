"""Key files: whose they are, and nothing left behind."""

import os
import pathlib
import stat

import pytest
from signing_world import PREDICATE, signed

from legonet_jax.io import durable
from legonet_jax.runs import key_files, signing


@pytest.fixture
def umask():
  before = os.umask(0o022)
  yield os.umask
  os.umask(before)


def mode_of(path):
  return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
  ("mask", "public"), [(0o022, 0o644), (0o077, 0o600), (0o027, 0o640), (0, 0o644)]
)
def test_the_private_key_is_the_owners_and_the_public_key_follows_the_umask(
  tmp_path, umask, mask, public
):
  umask(mask)
  made = key_files.generate(tmp_path / "key")
  assert made[:2] == (tmp_path / "key", tmp_path / "key.pub")
  assert mode_of(made.private) == 0o600
  assert mode_of(made.public) == public
  assert sorted(tmp_path.iterdir()) == [made.private, made.public]
  assert made.private.stat().st_nlink == 1


def test_a_new_pair_signs_and_verifies(tmp_path):
  made = key_files.generate(tmp_path / "key")
  private, public = (
    key_files.load_private(made.private),
    key_files.load_public(made.public),
  )
  assert made.key_id == key_files.key_id(public)
  data = signed(private)
  assert signing.open_envelope(data, public, signing.CERTIFICATE).predicate == PREDICATE
  assert made.private.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----\n")
  assert made.public.read_bytes().startswith(b"-----BEGIN PUBLIC KEY-----\n")


def test_two_pairs_are_never_the_same(tmp_path):
  pairs = {key_files.generate(tmp_path / f"{i}").key_id for i in range(5)}
  assert len(pairs) == 5


def snapshot(folder):
  """Name, kind and content of all that is in a folder."""
  return {
    (p.name, p.lstat().st_mode, p.read_bytes() if p.is_file() else b"")
    for p in folder.iterdir()
  }


def put_file(path):
  path.write_bytes(b"precious")


def put_link(path):
  path.symlink_to(path.with_name("elsewhere"))


def put_link_to_a_file(path):
  path.with_name("elsewhere").write_bytes(b"precious")
  path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("name", ["key", "key.pub"])
@pytest.mark.parametrize(
  "put", [put_file, put_link, put_link_to_a_file, pathlib.Path.mkdir, os.mkfifo]
)
def test_nothing_is_overwritten_no_link_followed_and_nothing_left_behind(
  tmp_path, name, put
):
  put(tmp_path / name)
  before = snapshot(tmp_path)
  with pytest.raises(key_files.KeyFileError, match=r"exists|is a folder"):
    key_files.generate(tmp_path / "key")
  assert snapshot(tmp_path) == before


def failing(*_):
  raise OSError(28, "No space left on device")


def interrupted(*_):
  raise KeyboardInterrupt


@pytest.mark.parametrize(
  ("module", "name"), [(os, "fsync"), (os, "link"), (durable, "sync_folder")]
)
@pytest.mark.parametrize("fault", [failing, interrupted])
def test_a_fault_at_any_step_leaves_neither_file(
  tmp_path, monkeypatch, module, name, fault
):
  real = getattr(module, name)
  for working in range(3):
    calls = []

    def step(*args, working=working, calls=calls):
      calls.append(args)
      return real(*args) if len(calls) <= working else fault()

    monkeypatch.setattr(module, name, step)
    try:
      key_files.generate(tmp_path / "key")
      assert len(calls) <= working  # every step went well
      (tmp_path / "key").unlink()
      (tmp_path / "key.pub").unlink()
    except key_files.KeyFileError as e:
      assert "No space left" in str(e)  # noqa: PT017
    except KeyboardInterrupt:
      pass
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())
