"""What `verify` sees: emptied journals, stores from a backup, strangers, leftovers."""

import json
import shutil

import numpy as np
import pytest
from run_world import (
  IDS,
  NEW,
  NEW_IDS,
  do,
  learn,
  make_run,
  rechain,
  snapshot,
  unlearn,
)

from legonet_jax.cli import main as cli
from legonet_jax.runs import (
  certificate as certificate_lib,
  journal,
  run as run_lib,
  verify as verify_lib,
)
from legonet_jax.store import rows as store_rows


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp("cheats")
  path = make_run(folder / "world")
  snapshot(folder / "world", folder / "backup")
  do(path, unlearn(IDS[:2]))
  do(path, learn())
  do(path, unlearn(NEW_IDS[:1]))
  snapshot(folder / "world", folder / "first")
  return folder


@pytest.fixture
def path(made):
  snapshot(made / "first", made / "world")
  return made / "world" / "run"


def verdict(path, capsys, *more):
  """Exit code, and the names of the checks that fail, in text and as JSON."""
  capsys.readouterr()
  code = cli.main(["verify", str(path), "--json", *map(str, more)])
  value = json.loads(capsys.readouterr().out)
  failed = [check["name"] for check in value["checks"] if not check["passed"]]
  assert cli.main(["verify", str(path), *map(str, more)]) == code
  text = capsys.readouterr().out
  assert [line.split()[1] for line in text.splitlines() if line[:4] == "FAIL"] == failed
  assert code == (1 if failed else 0)
  return failed


def empty_journal(path, made):
  (path / "journal.jsonl").write_bytes(b"")


def beheaded_journal(path, made):
  rechain(path, lambda entries: entries.__delitem__(0))


def second_beginning(path, made):
  rechain(path, lambda entries: entries.insert(2, dict(entries[0])))


def store_from_backup(path, made):
  snapshot(made / "backup" / "store", path.parent / "store")


def learned_from_backup(path, made):
  """A learned row that was forgotten is written into the store again."""
  store = next((path / "learned").iterdir())

  run = run_lib.load(path)
  rows = store_rows.StoreRows(*NEW, NEW_IDS, np.zeros(3, np.uint8))
  store_rows.land(store, rows, run.cfg.encoder)


def store_and_sums_from_backup(path, made):
  """As above, with the counts in meta.json put as they were afterwards."""
  store = path.parent / "store"
  before = json.loads((store / "meta.json").read_text())
  snapshot(made / "backup" / "store", store)
  meta = json.loads((store / "meta.json").read_text())
  meta["erased"] = before["erased"]
  (store / "meta.json").write_text(json.dumps(meta))


def file_in_run(name, data=b"secret"):
  def add(path, made):
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_bytes(data)

  return add


def file_in_store(name):
  def add(path, made):
    (path.parent / "store" / name).write_bytes(b"secret")

  return add


def other_settings(path, made):
  file = path / "run.json"
  file.write_text(file.read_text().replace('"version": 1', '"version":  1'))


def other_key(path, made):
  (path / "forgotten.key").write_text("ab" * 32 + "\n")


def no_key(path, made):
  (path / "forgotten.key").unlink()


def changed_test_row(path, made):
  """A row that the model does not hold; its sum in meta.json is put right."""

  store = path.parent / "store"
  rows = store_rows.read(store)
  shutil.rmtree(store)
  store_rows.land(store, rows, "")


CHEATS = {
  "an emptied journal": (empty_journal, "journal"),
  "a journal without its beginning": (beheaded_journal, "journal"),
  "a journal with two beginnings": (second_beginning, "journal"),
  "a store from a backup": (store_from_backup, "stores"),
  "a store from a backup, counts forged": (store_and_sums_from_backup, "stores"),
  "a forgotten row learned again in the store": (learned_from_backup, "stores"),
  "a store made anew without its holes": (changed_test_row, "stores"),
  "keys that nobody asked for": (file_in_run("keys.npy"), "leftovers"),
  "a stranger in the run": (file_in_run("notes.txt"), "leftovers"),
  "a stranger among the checkpoints": (file_in_run("checkpoints/x"), "leftovers"),
  "a stranger among the requests": (file_in_run("requests/x.txt"), "leftovers"),
  "a half-written request": (file_in_run("requests/.x.npz"), "leftovers"),
  "a stranger among learned stores": (file_in_run("learned/x"), "leftovers"),
  "rows in the lock": (file_in_run("lock", bytes(100)), "leftovers"),
  "rows in the other lock": (file_in_run("queue.lock", b"5 5"), "leftovers"),
  "rows in the certificate": (file_in_run("certificate.json"), "leftovers"),
  "rows in the signed head": (file_in_run("head.json", b"{}"), "leftovers"),
  "a stranger in the store": (file_in_store("copy.npy"), "stores"),
  "a half-written file in the store": (file_in_store(".ids.npy.abcdefgh"), "stores"),
  "rows in the store's lock": (file_in_store("lock"), "stores"),
  "settings that were touched": (other_settings, "leftovers"),
  "another key of forgotten samples": (other_key, "forgotten"),
  "no key of forgotten samples": (no_key, "forgotten"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_verify_sees(path, made, name, capsys):
  assert not verdict(path, capsys)
  change, check = CHEATS[name]
  change(path, made)
  failed = verdict(path, capsys, "--full")
  assert check in failed
  assert not (path / "certificate.json").exists() or name == "rows in the certificate"


def test_a_forgotten_id_that_is_back_is_named_as_such(path, made, capsys):
  """The journal is forged too, so that only the marks can show it."""
  store_from_backup(path, made)
  store = str(path.parent / "store")

  def forge(entries):
    for entry in entries:
      for field in {"stores", "changed"} & entry.keys():
        entry[field].pop(store, None)

  rechain(path, forge)
  assert "forgotten" in verdict(path, capsys)
  assert cli.main(["verify", str(path)]) == 1
  assert "2 forgotten samples are back in" in capsys.readouterr().out


def test_rows_from_a_backup_are_erased_again_by_the_next_request(path, made, capsys):
  store_from_backup(path, made)
  do(path, unlearn(IDS[9:10]))
  held = set(np.load(path.parent / "store" / "ids.npy"))
  assert not held & set(IDS[:2]) | held & {IDS[9]}
  assert not verdict(path, capsys, "--full")


def test_a_settled_request_that_a_crash_left_is_reported_and_cleaned(path, capsys):
  class StopError(Exception):
    pass

  name = f"{99:020d}-{'a' * 16}"
  done = unlearn(IDS[5:6])
  do(path, done)
  entries = journal.read(path / "journal.jsonl")
  finished = entries[-1]["requests"][0]
  request = path / "requests" / f"{finished}.npz"
  np.savez(request, ids=IDS[5:6])
  assert "leftovers" in [c.name for c in verify_lib.verify(path).checks if not c.passed]
  do(path)
  assert not request.exists()
  assert not verdict(path, capsys)
  assert name not in {p.stem for p in (path / "requests").iterdir()}


def test_journal_entries_without_their_fields_are_one_line_and_no_traceback(
  path, capsys
):
  for drop in ("requests", "before", "after", "adapters", "samples", "request", "ids"):
    keep = (path / "journal.jsonl").read_bytes()

    def cut(entries, drop=drop):
      for entry in entries:
        entry.pop(drop, None)

    rechain(path, cut)
    for command in (["history"], ["status"], ["unlearn", "--ids", IDS[5]], ["heal"]):
      assert cli.main([command[0], str(path), *map(str, command[1:])]) == 2
      assert capsys.readouterr().err.count("\n") == 1
    assert "journal" in verdict(path, capsys)
    (path / "journal.jsonl").write_bytes(keep)


FORGED = {
  "weights": ["0" * 64] * 8,
  "samples": 10**6,
  "journal": "0" * 64,
  "classes": ["secret"],
  "environment": {"note": "secret"},
  "portable": None,
  "note": "secret",
  "trained_again": "all of them, honestly",
  "checks": [{"name": "secret", "passed": False, "detail": ""}],
}


@pytest.mark.parametrize("field", FORGED)
def test_a_certificate_in_the_run_may_claim_only_what_verify_finds(path, field, capsys):
  """The digest and the seal are right, and the rest is made up."""
  assert not verdict(path, capsys, "--full")
  file = path / "certificate.json"
  value = json.loads(file.read_text())
  assert not verdict(path, capsys)
  file.write_bytes(certificate_lib.seal({**value, field: FORGED[field]}))
  assert verdict(path, capsys) == ["leftovers"]
