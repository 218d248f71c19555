"""What `python -m experiments.faults` has found, each once more by itself."""

import contextlib
import os

from conftest import CONFIG
import numpy as np
import pytest
from run_world import (
  ENCODINGS,
  IDS,
  LABELS,
  NEW_IDS,
  completions,
  do,
  drop,
  erase,
  learn,
  make_run,
  make_store,
  refit_digest,
  traces,
  unlearn,
)

from experiments.faults import hooks
from experiments.faults.disk import Disk
from legonet_jax.io import durable, lock
from legonet_jax.runs import (
  certificate as certificate_lib,
  create as create_lib,
  journal,
  repair as repair_lib,
  requests as requests_lib,
  service,
  session as session_lib,
  verify as verify_lib,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.store import read as store_read

pytestmark = pytest.mark.skipif(
  not os.path.isdir("/proc/self/fd"), reason="needs /proc to see what is open"
)
GONE = IDS[5:7]
LEFT = np.setdiff1d(IDS, GONE)


class Stop(BaseException):
  """The process ends here."""


def stop_at(step):
  def stop(name):
    if name == step:
      raise Stop

  return stop


def fail_once(monkeypatch, place, name, error):
  """The next call of `place.name` raises, those after it work."""
  real = getattr(place, name)

  def fail(*args, **kwargs):
    monkeypatch.setattr(place, name, real)
    raise error

  monkeypatch.setattr(place, name, fail)


def is_sound(path):
  return verify_lib.verify(path, full=True).passed


def test_a_fit_that_fails_at_its_first_journal_line_can_be_made_again(
  tmp_path, monkeypatch
):
  """An empty journal made the folder a run that could not be opened."""
  make_store(tmp_path / "store")

  def fail_at(step):
    if step == "checkpoint saved":
      fail_once(monkeypatch, os, "fsync", OSError(28, "No space left on device"))

  with pytest.raises(OSError, match="No space"):
    create_lib.create(tmp_path / "run", CONFIG, tmp_path / "store", on_step=fail_at)
  run = create_lib.create(tmp_path / "run", CONFIG, tmp_path / "store")
  assert run.manifest.digest == refit_digest(IDS)
  assert is_sound(tmp_path / "run")


def test_a_repair_that_is_killed_after_its_checkpoint_is_finished_by_the_next(tmp_path):
  """The next one said that there was nothing to repair, and `verify` that there was."""
  path = make_run(tmp_path)
  manifest = path / "checkpoints" / "00000000" / "manifest.json"
  manifest.write_bytes(b"{}")
  with pytest.raises(Stop):
    repair_lib.repair(path, on_step=stop_at("checkpoint saved"))
  run, proved = repair_lib.repair(path)
  assert proved
  assert run.manifest.digest == refit_digest(IDS)
  assert is_sound(path)
  assert len(list((path / "checkpoints").iterdir())) == 1


def test_a_service_may_settle_again_after_an_error(tmp_path, monkeypatch):
  """It went on from the state before, and recorded a request that was done as lost."""
  path = make_run(tmp_path)
  with lock.hold(path):
    session = session_lib.open_session(path)
    name = service.submit(session, unlearn(GONE))
    real = requests_lib.remove

    def remove(folder, names):
      monkeypatch.setattr(requests_lib, "remove", real)
      real(folder, names)
      raise OSError(5, "Input/output error")

    monkeypatch.setattr(requests_lib, "remove", remove)
    with pytest.raises(OSError, match="Input/output"):
      service.settle(session)
    session = service.settle(session)
  assert service.outcome(session, name)["event"] == "complete"
  assert completions(path) == {name: 1}
  assert session.run.manifest.digest == refit_digest(LEFT)
  assert is_sound(path)


def test_a_row_whose_id_was_torn_while_it_was_erased_is_erased_all_the_same(tmp_path):
  """Its id was one that nobody knew, so nobody erased it, nor counted it as erased."""
  path = make_run(tmp_path)
  with pytest.raises(Stop):
    service.carry_out(path, unlearn(GONE), on_step=stop_at("id overwritten"))
  file = tmp_path / "store" / "ids.npy"
  ids = np.load(file)
  row = int(np.flatnonzero(np.sort(IDS) == GONE[0])[0])
  assert ids[row] == -1
  ids[row] = GONE[0] | 0xFFFFFFFF  # the first four bytes of -1
  np.save(file, ids)
  run, _ = do(path)
  assert run.manifest.digest == refit_digest(LEFT)
  assert np.sum(np.load(file) == -1) == len(GONE)
  assert store_read.open_store(tmp_path / "store").meta["erased"] == len(GONE)
  assert not traces(int(GONE[0]), ENCODINGS[5], int(LABELS[5]), tmp_path)
  assert is_sound(path)


def test_a_row_that_only_looks_half_erased_stays(tmp_path):
  """Zeros alone are an encoding, a label of -1 alone is damage."""
  make_store(tmp_path / "store")
  file = tmp_path / "store" / "labels.npy"
  labels = np.load(file)
  labels[3] = -1
  np.save(file, labels)
  erase(tmp_path / "store", IDS[:1])
  assert np.sum(np.load(tmp_path / "store" / "ids.npy") == -1) == 1


def test_a_line_that_is_interrupted_is_taken_back(tmp_path, monkeypatch):
  """The next line of the same process was written behind one half of it."""
  path = Layout(make_run(tmp_path)).journal
  entries, before = journal.read(path), path.read_bytes()
  fail_once(monkeypatch, os, "fsync", KeyboardInterrupt())
  with pytest.raises(KeyboardInterrupt):
    journal.append(path, entries, "repaired", {"proved": True})
  assert path.read_bytes() == before
  journal.append(path, entries, "repaired", {"proved": True})
  assert journal.read(path) == entries


def test_a_lock_that_cannot_be_had_leaves_no_file_open(tmp_path, monkeypatch):
  fail_once(monkeypatch, os, "fchmod", OSError(5, "Input/output error"))
  before = os.listdir("/proc/self/fd")
  with pytest.raises(OSError, match="Input/output"), lock.hold(tmp_path):
    pass
  assert os.listdir("/proc/self/fd") == before


@pytest.fixture
def disk(tmp_path):
  """What is on disk of a run in tmp_path/world, when nothing else is."""
  make_run(tmp_path / "world")
  disk = Disk(tmp_path / "world")
  yield disk
  disk.close()


@contextlib.contextmanager
def watched(disk):
  with hooks.injected(disk.root, "kill", 0, disk):
    yield disk.root / "run"


def test_what_was_erased_in_memory_only_is_erased_on_disk_by_the_next_command(
  disk, monkeypatch
):
  """The next one saw that the ids were gone, and did not wait for the disk either."""

  def stop(step):
    if step == "encoding overwritten":
      real, left = os.fsync, [1, 1]  # of labels and split

      def fsync(handle):
        if not left:
          raise Stop
        left.pop()
        real(handle)

      patch.setattr(os, "fsync", fsync)

  with watched(disk) as path, monkeypatch.context() as patch, pytest.raises(Stop):
    service.carry_out(path, unlearn(GONE), on_step=stop)
  with watched(disk) as path:
    do(path)
  disk.fail(keep_names=False)
  assert list(completions(path).values()) == [1]
  for row in (5, 6):
    assert not traces(int(IDS[row]), ENCODINGS[row], int(LABELS[row]), disk.root)
  assert is_sound(path)


def test_the_old_checkpoint_stays_until_the_name_of_the_new_one_is_on_disk(
  disk, monkeypatch
):
  """A kill just before that, and then a power failure, left a run without any."""
  real = durable.sync_folder

  def sync(folder):
    if (folder / "00000001").exists():
      raise Stop
    real(folder)

  with watched(disk) as path, monkeypatch.context() as patch:
    patch.setattr(durable, "sync_folder", sync)
    with pytest.raises(Stop):
      do(path, unlearn(GONE))
  real_tree = durable.shred_tree

  def shred_tree(folder):
    if folder.name == "00000000":
      for file in durable.files_below(folder):
        durable.shred(file)
      raise Stop
    real_tree(folder)

  with watched(disk) as path, monkeypatch.context() as patch:
    patch.setattr(durable, "shred_tree", shred_tree)
    with pytest.raises(Stop):
      do(path)
  disk.fail(keep_names=False)
  run, _ = do(path)
  assert run.manifest.digest == refit_digest(LEFT)
  assert is_sound(path)


def test_a_certificate_that_is_void_does_not_come_back_as_zeros(disk):
  with watched(disk) as path:
    report = verify_lib.verify(path, full=True)
    durable.write(path / "certificate.json", certificate_lib.seal(report.certificate))
    do(path, unlearn(GONE))
  disk.fail(keep_names=False)
  assert not (path / "certificate.json").exists()
  assert is_sound(path)


def test_a_folder_that_a_killed_process_has_made_is_there_after_a_power_failure(disk):
  """The next one found it and relied on it, and its name was not on disk: all rows of
  a `learn` were lost, or a request.
  """
  with watched(disk) as path:
    (path / "learned").mkdir()
    (path / "requests").mkdir()
    do(path, learn())
    drop(path, unlearn(GONE))
  disk.fail(keep_names=False)
  run, _ = do(path)
  assert run.manifest.digest == refit_digest([*LEFT, *NEW_IDS])
  assert is_sound(path)


def test_a_run_can_be_made_where_a_link_leads(tmp_path):
  (tmp_path / "folder").mkdir()
  (tmp_path / "link").symlink_to("folder")
  make_store(tmp_path / "store")
  path = tmp_path / "link" / "run"
  create_lib.create(path, CONFIG, tmp_path / "store")
  assert is_sound(path)
