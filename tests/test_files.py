"""A file is whole or not there, as private as asked, and nothing is left beside it."""

import os
import stat

import pytest

from legonet_jax.io import files


@pytest.fixture
def umask():
  before = os.umask(0o022)
  yield os.umask
  os.umask(before)


def _mode(path):
  return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
  ("mask", "mode", "expected"),
  [
    (0o022, 0o666, 0o644),
    (0o077, 0o666, 0o600),
    (0o002, 0o666, 0o664),
    (0o022, 0o600, 0o600),
  ],
)
def test_permissions_are_those_asked_for_less_the_umask(
  tmp_path, umask, mask, mode, expected
):
  umask(mask)
  files.write(tmp_path / "a", b"x", mode)
  assert _mode(tmp_path / "a") == expected


def test_a_secret_is_private_from_its_first_byte_on(tmp_path, umask):
  umask(0)
  with files.atomic(tmp_path / "a", 0o600) as temporary:
    assert _mode(temporary) == 0o600


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
  files.write(tmp_path / "a", b"old")

  def fail():
    with files.atomic(tmp_path / "a") as temporary:
      temporary.write_bytes(b"half of the new")
      raise RuntimeError("no")

  with pytest.raises(RuntimeError, match="no"):
    fail()
  assert os.listdir(tmp_path) == ["a"]
  assert (tmp_path / "a").read_bytes() == b"old"


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path):
  (tmp_path / "mine").write_bytes(b"mine")
  (tmp_path / "a").symlink_to(tmp_path / "mine")
  files.write(tmp_path / "a", b"new")
  assert (tmp_path / "mine").read_bytes() == b"mine"
  assert not (tmp_path / "a").is_symlink()


def test_a_temporary_is_known_by_its_name(tmp_path):
  with files.atomic(tmp_path / "a.npy") as temporary:
    assert temporary.parent == tmp_path
    assert files.is_temporary(temporary.name, "a.npy")
    assert len(temporary.name) >= len(".a.npy.") + 8
  assert files.is_temporary(".a.npy.x1y2_3zq", "a.npy")  # of earlier versions
  for other in ("a.npy", ".a.npy", ".a.npy.", ".a.npy.swp", ".b.npy.x1y2_3zq"):
    assert not files.is_temporary(other, "a.npy")


def test_a_folder_is_made_with_its_parents(tmp_path):
  files.make_folder(tmp_path / "a" / "b")
  files.make_folder(tmp_path / "a" / "b")
  assert (tmp_path / "a" / "b").is_dir()
