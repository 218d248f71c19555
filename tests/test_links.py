"""No link leads out of a run or a store: what is outside is never touched."""

import os

import numpy as np
import pytest
from run_world import IDS, do, make_run, snapshot, unlearn

from legonet_jax.cli import main as cli
from legonet_jax.io import durable


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp("linked")
  make_run(folder / "world")
  do(folder / "world" / "run", unlearn(IDS[:1]))
  snapshot(folder / "world", folder / "first")
  return folder


@pytest.fixture
def path(made):
  """A run at the place where it was made, and a folder beside it that is a victim."""
  snapshot(made / "first", made / "world")
  victim = made / "victim"
  snapshot(made / "first" / "store", victim)
  (victim / "precious").write_bytes(b"mine")
  return made / "world" / "run"


def contents(folder):
  return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def link_folder(name):
  def link(path, victim):
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).symlink_to(victim)

  return link


def replace_folder(name):
  def link(path, victim):
    if (path / name).exists():
      (path / name).rename(path.parent / "aside")
    (path / name).symlink_to(victim)

  return link


def link_file(name):
  def link(path, victim):
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to(victim / "precious")

  return link


def hard_link(path, victim):
  os.link(victim / "precious", path / "checkpoints" / "x")


def fifo(path, victim):
  os.mkfifo(path / "requests" / ".x")


LINKS = {
  "a folder among the checkpoints": link_folder("checkpoints/x"),
  "a checkpoint": link_folder("checkpoints/00000009"),
  "a half-made checkpoint": link_folder("checkpoints/.making-00000002"),
  "a learned store": link_folder("learned/x"),
  "all learned stores": replace_folder("learned"),
  "all requests": replace_folder("requests"),
  "all checkpoints": replace_folder("checkpoints"),
  "a half-written request": link_folder("requests/.x"),
  "a request": link_file(f"requests/{7:020d}-{'0' * 16}.npz"),
  "the lock": link_file("lock"),
  "the journal": link_file("journal.jsonl"),
  "the settings": link_file("run.json"),
  "the key": link_file("forgotten.key"),
  "the certificate": link_file("certificate.json"),
  "a temporary file": link_file(".certificate.json.abcdefgh"),
  "a hard link": hard_link,
  "a FIFO": fifo,
}


@pytest.mark.parametrize("name", LINKS)
def test_a_link_in_a_run_is_refused_and_what_it_points_to_is_left_alone(
  path, name, capsys
):
  victim = path.parent.parent / "victim"
  (path / "requests").mkdir(exist_ok=True)
  LINKS[name](path, victim)
  before = contents(victim)
  for command in (
    ["unlearn", path, "--random", "1"],
    ["heal", path],
    ["compact", path],
    ["repair", path],
    ["evaluate", path],
    ["status", path],
    ["unlearn", path, "--random", "1", "--queue"],
  ):
    assert cli.main([str(a) for a in command]) == 2
    err = capsys.readouterr().err
    assert err.startswith("legonet: error: ")
    assert err.count("\n") == 1
    assert contents(victim) == before
  assert cli.main(["verify", str(path)]) in (1, 2)
  assert contents(victim) == before


STORE_LINKS = ["encodings.npy", "ids.npy", "labels.npy", "split.npy", "meta.json"]


@pytest.mark.parametrize("name", STORE_LINKS)
def test_a_link_in_a_store_is_refused_and_what_it_points_to_is_left_alone(
  path, name, capsys
):
  victim = path.parent.parent / "victim"
  file = path.parent / "store" / name
  file.unlink()
  file.symlink_to(victim / name)
  before = contents(victim)
  assert cli.main(["unlearn", str(path), "--ids", str(IDS[5])]) == 2
  err = capsys.readouterr().err
  assert "symbolic link" in err
  assert contents(victim) == before
  assert cli.main(["verify", str(path)]) == 1
  assert contents(victim) == before


def test_a_store_that_was_replaced_by_a_link_is_refused(path, capsys):
  victim = path.parent.parent / "victim"
  store = path.parent / "store"
  store.rename(path.parent / "aside")
  store.symlink_to(victim)
  before = contents(victim)
  assert cli.main(["unlearn", str(path), "--ids", str(IDS[5])]) == 2
  assert "symbolic link" in capsys.readouterr().err
  assert contents(victim) == before


def test_a_run_may_be_reached_through_a_link_that_its_user_made(path, tmp_path, capsys):
  (tmp_path / "shortcut").symlink_to(path)
  assert cli.main(["unlearn", str(tmp_path / "shortcut"), "--ids", str(IDS[5])]) == 0
  assert cli.main(["verify", str(path)]) == 0


def test_shredding_a_tree_leaves_what_links_in_it_point_to(tmp_path):
  outside = tmp_path / "outside"
  outside.mkdir()
  (outside / "file").write_bytes(b"mine")
  tree = tmp_path / "tree"
  (tree / "deep").mkdir(parents=True)
  (tree / "deep" / "own").write_bytes(np.arange(5).tobytes())
  (tree / "deep" / "folder").symlink_to(outside)
  (tree / "file").symlink_to(outside / "file")
  os.link(outside / "file", tree / "deep" / "second")
  durable.shred_tree(tree)
  assert not tree.exists()
  assert (outside / "file").read_bytes() == b"mine"
  (tmp_path / "top").symlink_to(outside)
  durable.shred_tree(tmp_path / "top")
  assert not (tmp_path / "top").is_symlink()
  assert (outside / "file").read_bytes() == b"mine"
