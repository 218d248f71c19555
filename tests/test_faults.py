"""A fault at any file operation: nothing is lost or kept, and `verify` knows.

Here a few of the cuts are made that `python -m experiments.faults` makes in full, and
the tools themselves are tried: an injector that misses an operation, or a judge that
sees nothing, would find no fault either.
"""

import errno
import os
import pathlib
import shutil

import pytest

from experiments.faults import cuts, hooks, inject, world as world_lib
from experiments.faults.disk import Disk
from experiments.faults.scenarios import SCENARIOS
from legonet_jax.io import durable
from legonet_jax.runs import journal, verify as verify_lib
from legonet_jax.store import erase

# LEGONET_STRIDE=1 makes every cut, which takes hours.
STRIDE = int(os.environ.get("LEGONET_STRIDE", 331))
pytestmark = pytest.mark.skipif(
  not os.path.isdir("/proc/self/fd"), reason="needs /proc to see what is open"
)
UNLEARN = SCENARIOS[0]


@pytest.mark.parametrize(
  "number", range(len(SCENARIOS)), ids=[s.name for s in SCENARIOS]
)
def test_a_fault_at_any_file_operation_loses_nothing_and_keeps_nothing(
  number, tmp_path
):
  scenario = SCENARIOS[number]
  world = cuts.prepare(scenario, tmp_path)
  # Others in each scenario, and early enough for the shortest of them.
  offset = number * 13 % min(STRIDE, 64)
  made = list(cuts.all_cuts(scenario, world, STRIDE, offset))
  assert made
  assert not [cut for cut in made if cut.problems]


def change_files(folder):
  """Every way to change files that there is, and how many operations it has."""
  text, data = folder / "text", folder / "data"
  text.write_text("a")  # create, write
  data.write_bytes(bytes(10))
  with data.open("r+b") as file:  # open, write
    file.write(b"bc")
  with open(data, "ab", buffering=0) as file:
    file.write(b"d")
  handle = os.open(data, os.O_WRONLY)
  os.write(handle, b"e")
  os.pwrite(handle, b"f", 3)
  os.posix_fallocate(handle, 0, 100)
  os.ftruncate(handle, 4)
  os.fsync(handle)
  os.fchmod(handle, 0o600)
  with os.fdopen(handle, "wb") as file:  # write
    file.write(b"g")
  durable.sync_folder(folder)
  (folder / "new").mkdir()
  text.rename(folder / "new" / "text")
  data.replace(folder / "new" / "data")
  os.link(folder / "new" / "data", folder / "link")
  (folder / "link").unlink()
  os.truncate(folder / "new" / "data", 1)
  shutil.rmtree(folder / "new")  # two files, a folder
  return 4 + 2 + 2 + 7 + 1 + 1 + 6 + 3


def test_every_way_to_change_a_file_is_an_operation(tmp_path):
  with hooks.injected(tmp_path, "kill", 0) as injector:
    count = change_files(tmp_path)
  assert len(injector.asked) == count, injector.asked
  assert not list(tmp_path.iterdir())


def test_reading_and_files_elsewhere_are_none(tmp_path):
  place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
  place.mkdir()
  elsewhere.mkdir()
  (place / "file").write_text("a")
  with hooks.injected(place, "kill", 1) as injector:
    change_files(elsewhere)
    assert (place / "file").read_text() == "a"
    assert durable.hashes_of(place)
  assert not injector.asked


def test_an_opening_to_read_can_fail_and_is_counted_apart(tmp_path):
  (tmp_path / "file").write_text("a")
  with hooks.injected(tmp_path, "unread", 3) as injector:
    (tmp_path / "new").mkdir()
    assert durable.hashes_of(tmp_path)
    assert (tmp_path / "file").read_text() == "a"
    with pytest.raises(OSError, match=r"No space|Input/output"):
      (tmp_path / "file").read_text()
    assert (tmp_path / "file").read_text() == "a"
  assert injector.asked == ["read"] * 4


def test_a_dead_process_changes_nothing_more(tmp_path):
  """Neither in what cleans up nor when a file object is thrown away later."""
  with hooks.injected(tmp_path, "kill", 3) as injector:
    (tmp_path / "a").touch()
    file = (tmp_path / "b").open("wb")
    file.write(b"never seen")
    with pytest.raises(inject.Killed):
      durable.write(tmp_path / "d", b"x")
    with pytest.raises(inject.Killed):
      shutil.rmtree(tmp_path)
  with pytest.raises(inject.Killed):
    file.close()
  assert injector.hit == "create"
  assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
  assert (tmp_path / "b").read_bytes() == b""


def test_operations_of_all_threads_are_counted_and_die_together(tmp_path):
  paths = [tmp_path / str(i) for i in range(40)]
  with hooks.injected(tmp_path, "kill", 31) as injector, pytest.raises(inject.Killed):
    durable.for_all(lambda path: path.write_bytes(b"x"), paths)
  assert len(injector.asked) == 31
  assert len(list(tmp_path.iterdir())) <= 30


@pytest.mark.parametrize(("kind", "left"), [("torn", b"abc"), ("full", b"abc")])
def test_half_of_a_write_lands(tmp_path, kind, left):
  with (
    hooks.injected(tmp_path, kind, 2),
    pytest.raises((inject.Killed, OSError)),
  ):
    (tmp_path / "file").write_bytes(b"abcdef")
  assert (tmp_path / "file").read_bytes() == left


def test_a_full_disk_still_gives_room_back(tmp_path):
  (tmp_path / "old").write_bytes(b"x")
  with hooks.injected(tmp_path, "full", 1):
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
      (tmp_path / "new").touch()
    (tmp_path / "old").unlink()
  assert not list(tmp_path.iterdir())


def test_one_operation_fails_and_the_next_one_works(tmp_path):
  with hooks.injected(tmp_path, "fail", 1):
    with pytest.raises(OSError, match=r"No space|Input/output"):
      (tmp_path / "a").mkdir()
    (tmp_path / "a").mkdir()
  assert [p.name for p in tmp_path.iterdir()] == ["a"]


KEPT = {"old": b"synced", "file": b"synced"}


@pytest.mark.parametrize(
  ("kind", "left"),
  [("power", KEPT | {"gone": b"synced"}), ("blank", KEPT | {"new": b""})],
)
def test_only_what_was_synced_outlives_the_power(tmp_path, kind, left):
  world = tmp_path / "world"
  world.mkdir()
  (world / "old").write_bytes(b"synced")
  (world / "gone").write_bytes(b"synced")
  disk = Disk(world)
  with hooks.injected(world, kind, 0, disk):
    durable.write(world / "file", b"synced")
    (world / "old").write_bytes(b"not synced")
    (world / "new").write_bytes(b"not synced")
    (world / "gone").unlink()
  disk.fail(keep_names=kind == "blank")
  disk.close()
  assert {p.name: p.read_bytes() for p in world.iterdir()} == left


@pytest.fixture
def world(tmp_path):
  return cuts.prepare(UNLEARN, tmp_path)


def test_the_bytes_that_are_searched_for_are_there_before(world):
  """Else finding none of them afterwards would say nothing."""
  for i in UNLEARN.requests(world)[0].ids.tolist():
    found = {pathlib.Path(f).parts[0] for f in world_lib.traces([i], world.root)}
    assert found == {"run", "store"}


def problems(world, kind, at):
  return " ".join(cuts.cut(UNLEARN, world, kind, at).problems)


def test_the_judge_sees_a_row_that_was_not_erased(world, monkeypatch):
  real = erase._overwrite

  def skip(path, rows, value):
    if path.name != "encodings.npy":
      real(path, rows, value)

  monkeypatch.setattr(erase, "_overwrite", skip)
  assert "store/encodings.npy holds a forgotten sample" in problems(world, "kill", 1)


def test_the_judge_sees_a_verify_that_passes_everything(world, monkeypatch):
  blind = verify_lib.Report([], {})
  monkeypatch.setattr(verify_lib, "verify", lambda *args, **kwargs: blind)
  said = problems(world, "kill", 60)
  assert "verify passes, and 1 requests are not complete" in said
  assert "verify passes, and an acknowledged request is not done" in said
  assert "holds a forgotten sample" not in said  # nothing was said to be forgotten yet


def test_the_judge_sees_a_name_that_was_not_synced(world, monkeypatch):
  monkeypatch.setattr(durable, "sync_folder", lambda path: None)
  lost = "an acknowledged unlearn is not in the journal"
  # Which operation comes right after the acknowledgement is no promise: try all.
  assert any(lost in problems(world, "power", at) for at in range(1, 60))


def test_the_judge_sees_an_entry_that_is_written_twice(world, monkeypatch):
  real = journal.append

  def twice(path, entries, event, values):
    if event == "complete":
      real(path, entries, event, values)
    return real(path, entries, event, values)

  monkeypatch.setattr(journal, "append", twice)
  assert "a unlearn was done 2 times" in problems(world, "kill", 60)


def test_the_judge_sees_a_file_that_is_left_open(world, monkeypatch):
  monkeypatch.setattr(durable, "sync_folder", lambda path: os.open(path, os.O_RDONLY))
  assert "was left open" in problems(world, "fail", 60)
