"""Where data could hide in a run and its stores, all seals redone: `verify` looks."""

import dataclasses
import errno
import json
import os

from conftest import CONFIG
from hiding_world import (
  BYTES,
  SECRET,
  append_to,
  certify,
  checkpoint_of,
  empty_folder,
  extra_array,
  file_at,
  id_for_a_process,
  id_in_chunks,
  id_in_retained,
  in_checkpoint,
  in_entry,
  in_envelope,
  in_environment,
  in_manifest,
  in_meta,
  in_padding,
  in_run,
  in_settings,
  in_stated_details,
  in_store,
  key_in,
  learned_of,
  note,
  record_again,
  rewrite,
  spaces,
  store_of,
  with_array,
)
import numpy as np
import pytest
from run_world import ENCODINGS, IDS, NEW_IDS, do, learn, make_run, snapshot, unlearn

from legonet_jax.cli import main as cli
from legonet_jax.core.ids import hash_ids

GIVEN = dataclasses.replace(CONFIG, key_policy="given", key_noise=0.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp("places")
  keys = ENCODINGS[: GIVEN.num_adapters]
  path = make_run(folder / "world", GIVEN, keys=keys)
  do(path, unlearn(IDS[:2]))
  do(path, learn())
  do(path, unlearn(NEW_IDS[:1]))
  assert cli.main(["verify", str(path), "--full"]) == 0  # writes a certificate
  snapshot(folder / "world", folder / "first")
  return folder


@pytest.fixture
def path(made):
  snapshot(made / "first", made / "world")
  return made / "world" / "run"


PLACES = {
  "a file in the state": (in_checkpoint(file_at("state/x")), "leftovers"),
  "a chunk of an array": (in_checkpoint(file_at("state/ids/1")), "leftovers"),
  "a folder in the state": (in_checkpoint(file_at("state/x/y")), "leftovers"),
  "a file in the checkpoint": (in_checkpoint(file_at("notes.npy")), "leftovers"),
  "a name of a file": (in_checkpoint(file_at(f"state/{SECRET}", b"")), "leftovers"),
  "an array of the state": (in_checkpoint(extra_array), "checkpoint"),
  "an array that nothing reads": (in_checkpoint(id_in_chunks), "checkpoint"),
  "a key of .zarray": (in_checkpoint(key_in("state/ids/.zarray")), "leftovers"),
  "a file .zattrs": (in_checkpoint(file_at("state/ids/.zattrs", b"{}")), "leftovers"),
  "a key of _METADATA": (in_checkpoint(key_in("state/_METADATA")), "leftovers"),
  "a key in the tree of _METADATA": (
    in_checkpoint(key_in("state/_METADATA", "tree_metadata", "('ids',)")),
    "leftovers"),
  "custom metadata": (
    in_checkpoint(key_in("state/_CHECKPOINT_METADATA", "custom_metadata")),
    "leftovers"),
  "a key of _CHECKPOINT_METADATA": (
    in_checkpoint(key_in("state/_CHECKPOINT_METADATA")), "leftovers"),
  "blanks in _METADATA": (in_checkpoint(spaces("state/_METADATA")), "leftovers"),
  "more in commit_success.txt": (
    in_checkpoint(append_to("state/commit_success.txt")), "leftovers"),
  "behind retained.npy": (in_checkpoint(append_to("retained.npy")), "leftovers"),
  "an id in retained.npy": (in_checkpoint(id_in_retained), "leftovers"),
  "the padding of retained.npy": (
    in_checkpoint(in_padding("retained.npy")), "leftovers"),
  "a key of the manifest": (in_manifest(note), "leftovers"),
  "a key of the report": (in_manifest(lambda v: note(v["report"])), "leftovers"),
  "a name in the environment": (in_environment, "leftovers"),
  "blanks in the manifest": (
    lambda path: spaces("manifest.json")(checkpoint_of(path)), "leftovers"),
  "a key of run.json": (in_settings, "leftovers"),
  "blanks in run.json": (in_run(spaces("run.json")), "leftovers"),
  "behind keys.npy": (in_run(append_to("keys.npy")), "leftovers keys"),
  "the padding of keys.npy": (in_run(in_padding("keys.npy")), "leftovers"),
  "a key of the first entry": (in_entry(0), "leftovers"),
  "a key of an accepted entry": (in_entry(1), "leftovers"),
  "a key of a complete entry": (in_entry(2), "leftovers"),
  "more salted ids than samples": (
    lambda path: rewrite(path, lambda e: e[1]["ids"].append(f"{SECRET:032x}")),
    "leftovers"),
  "a line torn by nobody": (append_to("journal.jsonl"), "leftovers"),
  "a key of the certificate": (lambda path: certify(path, note), "leftovers"),
  "a key of a check in it": (in_stated_details, "leftovers"),
  "blanks in the certificate": (spaces("certificate.json"), "leftovers"),
  "a key of the signed head": (in_envelope(lambda e, s: note(e)), "leftovers"),
  "a key of its statement": (in_envelope(lambda e, s: note(s)), "leftovers"),
  "a key of its claims": (in_envelope(lambda e, s: note(s["predicate"])), "leftovers"),
  "an id for a process": (id_for_a_process("lock"), "leftovers"),
  "an id for a process that queues": (id_for_a_process("queue.lock"), "leftovers"),
  "blanks in forgotten.key": (spaces("forgotten.key"), "leftovers"),
  "a folder in the checkpoint": (
    lambda path: (checkpoint_of(path) / str(SECRET)).mkdir(), "leftovers"),
  "a folder in the state's folder": (
    lambda path: (checkpoint_of(path) / "state" / str(SECRET)).mkdir(), "leftovers"),
  "a folder in the run": (empty_folder(str(SECRET)), "leftovers"),
  "a folder among the requests": (empty_folder(f"requests/{SECRET}"), "leftovers"),
  "a folder among the stores": (empty_folder(f"learned/{SECRET}"), "leftovers"),
  "a folder in a store": (lambda p: (store_of(p) / str(SECRET)).mkdir(), "stores"),
  "a folder in a learned store": (
    lambda path: (learned_of(path) / str(SECRET)).mkdir(), "stores"),
  "behind the encodings": (in_store(append_to("encodings.npy")), "rows stores"),
  "behind the ids": (in_store(append_to("ids.npy")), "rows stores"),
  "behind the labels": (in_store(append_to("labels.npy")), "rows stores"),
  "behind the split": (in_store(append_to("split.npy")), "rows stores"),
  "the padding of the encodings": (in_store(in_padding("encodings.npy")), "stores"),
  "the padding of the ids": (in_store(in_padding("ids.npy")), "stores"),
  "a key of meta.json": (in_meta(store_of), "stores"),
  "a key of a learned store's meta.json": (in_meta(learned_of), "stores"),
  "blanks in meta.json": (lambda p: spaces("meta.json")(store_of(p)), "stores"),
  "a part of a mark": (lambda p: append_to("erased.marks")(store_of(p)), "stores"),
  "a mark of no row": (
    lambda p: append_to("erased.marks", 2 * BYTES)(store_of(p)), "stores"),
  "an id for a process on a store": (
    lambda path: (store_of(path) / "lock").write_text(str(SECRET)), "stores"),
}  # fmt: skip


def failed_checks(path, capsys):
  capsys.readouterr()
  code = cli.main(["verify", str(path), "--full", "--json"])
  value = json.loads(capsys.readouterr().out)
  failed = [check["name"] for check in value["checks"] if not check["passed"]]
  assert code == (1 if failed else 0)
  return failed


@pytest.mark.parametrize("name", PLACES)
def test_verify_finds_what_is_hidden_in(path, capsys, name):
  hide, check = PLACES[name]
  hide(path)
  assert failed_checks(path, capsys) == check.split()


# Orbax gives up while it still reads other arrays, and their threads complain.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_verify_finds_what_is_hidden_behind_a_chunk(path, capsys):
  in_checkpoint(append_to("state/ids/0"))(path)
  assert failed_checks(path, capsys) == ["checkpoint"]


def test_seals_that_are_redone_without_hiding_anything_pass(path, capsys):
  """So what `verify` finds above is what was hidden, and not the forger's mistakes."""
  in_envelope(lambda envelope, statement: None)(path)
  assert not failed_checks(path, capsys)
  (path / "head.json").unlink()
  record_again(path)
  certify(path, lambda value: None)
  assert not failed_checks(path, capsys)


def test_the_chunks_that_version_3_kept_pass(path, capsys):
  seed, kept = GIVEN.seed, np.load(checkpoint_of(path) / "retained.npy")
  first = hash_ids(seed, kept) >> np.uint64(56)
  sizes = np.bincount(first.astype(np.int64), minlength=256)
  in_checkpoint(lambda folder: with_array(folder, "chunks", sizes))(path)
  assert not failed_checks(path, capsys)


@pytest.mark.parametrize(
  "place",
  [lambda p: p, lambda p: p / "run.json", checkpoint_of, store_of,
   lambda p: checkpoint_of(p) / "state" / "ids" / "0",
   lambda p: store_of(p) / "encodings.npy", lambda p: learned_of(p) / "meta.json"],
  ids=["run", "run.json", "checkpoint", "store", "chunk", "encodings", "learned meta"],
)  # fmt: skip
def test_verify_finds_what_is_hidden_in_an_extended_attribute(path, capsys, place):
  try:
    os.setxattr(place(path), "user.note", BYTES)
  except (AttributeError, OSError) as e:
    if getattr(e, "errno", errno.ENOTSUP) != errno.ENOTSUP:
      raise
    pytest.skip("this file system has no extended attributes")
  failed = failed_checks(path, capsys)
  assert failed
  assert {*failed} <= {"leftovers", "stores"}
