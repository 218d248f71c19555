"""Killed at any file operation, a command that makes a store goes on to the same bytes.

From the N-th call that touches a file on, every call fails as if the process were gone:
nothing after that reaches the disk, not even what `finally` would do. A write that is
cut off leaves half of its bytes.
"""

import builtins
import contextlib
import io
import os
import shutil

import numpy as np
import pytest
from store_world import same_salts  # noqa: F401 (a fixture)

from legonet_jax import errors
from legonet_jax.cli import main as cli
from legonet_jax.store import read as store_read, write as store_write

pytestmark = pytest.mark.usefixtures("same_salts")

CALLS = (
  "open", "write", "pwrite", "replace", "rename", "fsync", "unlink", "mkdir", "rmdir",
  "posix_fallocate", "ftruncate", "chmod",
)  # fmt: skip
ROWS = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)
COLUMNS = np.arange(10), np.arange(10, dtype=np.int32) % 3, np.zeros(10, np.uint8)
HOW = {"encoder": "x", "size": 64, "classes": ["cat", "dog", "emu"]}
# LEGONET_STRIDE=1 looks at every pair of kills.
STRIDE = int(os.environ.get("LEGONET_STRIDE", 13))


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
  """A kill leaves what the system holds, so here nothing need reach the disk."""
  monkeypatch.setattr(os, "fsync", lambda handle: None)


class Killed(BaseException):
  """The process is gone; nobody catches this."""


@contextlib.contextmanager
def killed_at(number, monkeypatch):
  """Lets `number` - 1 operations happen; yields a list of all that were asked for."""
  asked = []

  def dying(name, call):
    def wrapped(*args, **kwargs):
      asked.append(name)
      if len(asked) == number and name == "write":
        call(args[0], bytes(args[1])[: len(args[1]) // 2])
      if len(asked) >= number:
        raise Killed
      return call(*args, **kwargs)

    return wrapped

  def opening(call):
    def wrapped(file, mode="r", *args, **kwargs):
      if set(mode) & set("wax+"):
        asked.append("open to write")
        if len(asked) >= number:
          raise Killed
      return call(file, mode, *args, **kwargs)

    return wrapped

  with monkeypatch.context() as patch:
    for name in CALLS:
      patch.setattr(os, name, dying(name, getattr(os, name)))
    patch.setattr(io, "open", opening(io.open))
    patch.setattr(builtins, "open", opening(builtins.open))
    yield asked


def _kill(number, monkeypatch, command, folder):
  """Whether the command was killed at operation `number`, or had fewer of them."""
  with killed_at(number, monkeypatch):
    try:
      command(folder)
    except Killed:
      return True
  return False


def _bytes(path):
  return {p.name: p.read_bytes() for p in path.iterdir()}


def encode(folder, rows=ROWS):
  """As `legonet encode` does it, in batches of four."""
  writer = store_write.start(folder, HOW, rows.shape, "float32")
  if writer is None:
    return
  try:
    for row in range(writer.rows, len(rows), 4):
      writer = store_write.put(writer, rows[row : row + 4])
    store_write.finish(writer, *COLUMNS)
  except errors.LegoError:
    store_write.discard(writer)
    raise


@pytest.fixture
def import_encodings(tmp_path, capsys):
  path = tmp_path / "e.npz"
  classes = ["cat", "dog", "emu"]
  np.savez(path, encodings=ROWS, labels=COLUMNS[1], ids=COLUMNS[0], classes=classes)

  def command(folder):
    argv = ["import-encodings", str(path), "--encoder", "x", "--out", str(folder)]
    assert cli.main(argv) == 0
    capsys.readouterr()

  return command


@pytest.fixture(params=["encode", "import-encodings"])
def command(request):
  if request.param == "encode":
    return encode
  return request.getfixturevalue("import_encodings")


def _require_whole_or_nothing(folder, whole):
  """No reader ever takes half a store for a whole one."""
  try:
    found = store_read.open_store(folder, verify=True)
  except errors.StoreError:
    return
  np.testing.assert_array_equal(found.encodings, ROWS)
  assert {name: (folder / name).read_bytes() for name in whole} == whole


def test_a_kill_at_any_file_operation_is_made_good_by_the_same_command(
  command, tmp_path, monkeypatch
):
  command(tmp_path / "whole")
  whole = _bytes(tmp_path / "whole")
  folder, number = tmp_path / "new" / "s", 1
  while _kill(number, monkeypatch, command, folder):
    _require_whole_or_nothing(folder, whole)
    command(folder)
    assert _bytes(folder) == whole, number
    shutil.rmtree(folder.parent)
    number += 1
  assert number > 40
  assert _bytes(folder) == whole


def test_a_kill_while_a_killed_command_goes_on_is_made_good_as_well(
  command, tmp_path, monkeypatch
):
  command(tmp_path / "whole")
  whole = _bytes(tmp_path / "whole")
  place, killed = tmp_path / "new", tmp_path / "killed"
  killed.mkdir()
  first = 1
  while _kill(first, monkeypatch, command, killed / "s"):
    second = 1 + first % STRIDE  # each time others
    while True:
      shutil.copytree(killed, place)
      survived = not _kill(second, monkeypatch, command, place / "s")
      _require_whole_or_nothing(place / "s", whole)
      command(place / "s")
      assert _bytes(place / "s") == whole, (first, second)
      shutil.rmtree(place)
      if survived:
        break
      second += STRIDE
    shutil.rmtree(killed)
    killed.mkdir()
    first += 1


def test_a_kill_at_every_operation_in_turn_gets_there_in_the_end(
  command, tmp_path, monkeypatch
):
  """Whatever was killed so often leaves nothing behind."""
  command(tmp_path / "whole")
  folder, number = tmp_path / "s", 1
  while _kill(number, monkeypatch, command, folder):
    number += 1
  command(folder)
  assert _bytes(folder) == _bytes(tmp_path / "whole")


def test_a_kill_while_a_store_is_given_up_leaves_nothing_in_the_end(
  tmp_path, monkeypatch
):
  bad = ROWS.copy()
  bad[9, 1] = np.nan
  folder, number, survived = tmp_path / "new" / "s", 1, False
  while not survived:
    with killed_at(number, monkeypatch):
      try:
        encode(folder, bad)
      except errors.StoreError:
        survived = True
      except Killed:
        pass
    with pytest.raises(errors.StoreError, match="row 9 is not finite"):
      encode(folder, bad)
    assert not folder.exists()
    number += 1
  assert number > 40


class Disk:
  """What is sure to be on disk after the power fails: only what was synced.

  Watches a folder and those below it. A file that was never synced comes back empty, a
  name that its folder was never synced with does not come back.
  """

  def __init__(self, place):
    self.place = place
    self.contents, self.names, self.held, self.copies = {}, {}, [], []

  def sync(self, handle):
    path = os.readlink(f"/proc/self/fd/{handle}")
    self.held.append(os.dup(handle))  # so that no later file gets its number
    if os.path.isdir(path):
      self.names[path] = {e.name: e.inode() for e in os.scandir(path)}
    else:
      with open(f"/proc/self/fd/{handle}", "rb") as file:
        self.contents[os.fstat(handle).st_ino] = file.read()
    copy = self.place.parent / f"copy{len(self.copies)}"
    self._restore(str(self.place), copy)
    self.copies.append(copy)

  def _restore(self, path, copy):
    copy.mkdir()
    for name, number in self.names.get(path, {}).items():
      below = f"{path}/{name}"
      if os.path.isdir(below):
        self._restore(below, copy / name)
      else:
        (copy / name).write_bytes(self.contents.get(number, b""))

  def close(self):
    for handle in self.held:
      os.close(handle)


def test_a_power_failure_at_any_moment_is_made_good_by_the_same_command(
  command, tmp_path, monkeypatch
):
  place = tmp_path / "new"
  place.mkdir()
  disk = Disk(place)
  with monkeypatch.context() as patch:
    patch.setattr(os, "fsync", disk.sync)
    command(place / "s")
  disk.close()
  whole = _bytes(place / "s")
  assert len(whole) == 7
  assert _bytes(disk.copies[-1] / "s") == whole
  assert len(disk.copies) >= 15
  for copy in disk.copies:
    _require_whole_or_nothing(copy / "s", whole)
    command(copy / "s")
    assert _bytes(copy / "s") == whole, copy
