"""Whether each file of a run has exactly the contents that it should, and no others.

A checkpoint is the files that orbax writes for the arrays of a state, `retained.npy`
with the ids of the state, and a manifest; `forms` describes the records.
"""

import base64
from collections.abc import Iterator
import json
import os
import pathlib
import re
import tempfile
from typing import Any

import numpy as np

from legonet_jax import errors
from legonet_jax.host.state import to_arrays
from legonet_jax.io import arrays as arrays_lib, exact, lock, untrusted
from legonet_jax.runs import (
  attest,
  certificate as certificate_lib,
  checkpoint,
  forms,
  journal,
  signing,
  tombstones,
)
from legonet_jax.runs.run import Run

_DONE = "commit_success.txt"
_DONE_TEXT = rb"Checkpoint commit was successful to /[^\n]*/\.making-%b/state"
_NAME = re.compile("[A-Za-z_.]+")
# Neither Linux nor macOS counts processes further than this.
_LARGEST_PROCESS = 1 << 22


def find_fault(run: Run, entries: list[journal.Entry]) -> pathlib.Path | None:
  """The first file or folder of a run with other contents than it should have."""
  return next(_faults(run, entries), None)


def is_lock(path: pathlib.Path) -> bool:
  """Whether a lock file is absent, or holds a process number and nothing else."""
  if not os.path.lexists(path):
    return True
  most = str(_LARGEST_PROCESS)
  try:
    data = untrusted.read_bytes(path, follow=False, limit=len(most))
  except PermissionError:  # another user's; too small to hide much in
    return path.stat().st_size <= len(most)
  except errors.DataError:
    return False
  number = int(data) if data.isdigit() else 0
  return not data or (data == b"%d" % number and 0 < number <= _LARGEST_PROCESS)


def _faults(run: Run, entries: list[journal.Entry]) -> Iterator[pathlib.Path]:
  layout = run.layout
  for name, sha256 in entries[0].get("files", {}).items():
    path = layout.root / name
    if not path.is_file() or untrusted.sha256_of(path) != sha256:
      yield path
  if not _are_settings(run, entries[0]):
    yield layout.settings
  if run.cfg.key_policy == "given" and not exact.is_npy(layout.keys):
    yield layout.keys
  if not _is_journal(layout.journal, entries):
    yield layout.journal
  for name in (lock.WORK, lock.QUEUE):
    if not is_lock(layout.root / name):
      yield layout.root / name
  if layout.forgotten_key.exists() and not _is_key(layout.forgotten_key):
    yield layout.forgotten_key
  for path in (layout.certificate, layout.head):
    if path.exists() and not _is_statement(path, run, entries):
      yield path
  place = checkpoint.path_of(layout.checkpoints, run.manifest.number)
  yield from _checkpoint_faults(place, run)


def _are_settings(run: Run, created: journal.Entry) -> bool:
  if not exact.is_json(run.layout.settings, forms.SETTINGS):
    return False
  value = untrusted.read_json(run.layout.settings, follow=False)
  first = list(created.get("stores", value["stores"]))
  classes = created.get("classes", value.get("classes"))
  found = (value["config"], value["stores"], value.get("classes"))
  return found == (created["config"], first, classes)


def _is_journal(path: pathlib.Path, entries: list[journal.Entry]) -> bool:
  data = untrusted.read_bytes(path, follow=False, limit=1 << 32)
  lines = [journal.line_of(entry) for entry in entries]
  return data == b"".join(lines) and all(
    exact.has_form(entry, forms.of_entry(entry))
    and (entry["event"] != "accepted" or len(entry["ids"]) == entry["count"])
    for entry in entries
  )


def _is_key(path: pathlib.Path) -> bool:
  try:
    key = tombstones.read_key(path)
  except errors.RunError:
    return False
  return untrusted.read_bytes(path, follow=False) == tombstones.text_of(key)


def _is_statement(path: pathlib.Path, run: Run, entries: list[journal.Entry]) -> bool:
  """Whether a file is a certificate or signed head of this run, and nothing else."""
  if exact.is_json(path, dict) and not exact.is_json(path, forms.ENVELOPE):
    value = untrusted.read_json(path, follow=False)
    return _is_certificate(value, run, entries)
  statement = _statement_in(path)
  if statement is None or not exact.has_form(statement, forms.STATEMENT):
    return False
  claims, subject = statement["predicate"], statement["subject"]
  about = [one["digest"]["sha256"] for one in subject]
  if statement["predicateType"] == signing.JOURNAL_HEAD:
    last = [entry for entry in entries if [entry["hash"]] == about]
    return any(claims == attest.claims_about(run, entry) for entry in last)
  return about == [run.manifest.digest] and _is_certificate(claims, run, entries)


def _statement_in(path: pathlib.Path) -> dict[str, Any] | None:
  """The statement in an envelope, or None if there is anything besides."""
  if not exact.is_json(path, forms.ENVELOPE):
    return None
  envelope = untrusted.read_json(path, follow=False)
  try:
    payload = base64.b64decode(envelope["payload"], validate=True)
    statement = untrusted.parse_json(payload, str(path))
  except (ValueError, errors.DataError):
    return None
  same = base64.b64encode(payload).decode() == envelope["payload"]
  alone = same and len(envelope["signatures"]) == 1
  return statement if alone and signing.payload_of(statement) == payload else None


def _is_certificate(
  value: dict[str, Any], run: Run, entries: list[journal.Entry]
) -> bool:
  head = str(value.get("journal"))
  if head not in {entry["hash"] for entry in entries}:
    return False
  made = certificate_lib.make(
    run.cfg, run.state, run.manifest.environment, head, run.classes
  )
  own = forms.CERTIFICATE
  described = {name: part for name, part in value.items() if name not in own}
  rest = {name: part for name, part in value.items() if name in own}
  try:
    same = certificate_lib.config_of(value) == run.cfg
    certificate_lib.check_seal(value, "")
  except (errors.LegoError, KeyError, TypeError):
    return False
  wanted = {name: part for name, part in made.items() if name not in own}
  return same and described == wanted and exact.has_form(rest, own)


def _checkpoint_faults(place: pathlib.Path, run: Run) -> Iterator[pathlib.Path]:
  """The files and folders of a checkpoint that are not as `checkpoint.save` makes."""
  if not exact.is_json(place / checkpoint.MANIFEST, forms.MANIFEST):
    yield place / checkpoint.MANIFEST
  retained = place / checkpoint.RETAINED
  ids = checkpoint.read_retained(place)
  same = ids is not None and np.array_equal(ids, run.state.ids)
  if not same or not exact.is_npy(retained):
    yield retained
  with tempfile.TemporaryDirectory() as folder:
    # Of zeros: what a sample is made of belongs in no other folder.
    pattern = pathlib.Path(folder) / "state"
    arrays = {k: np.zeros_like(v) for k, v in to_arrays(run.state).items()}
    if (place / checkpoint.STATE / "chunks").is_dir():  # of version 0.3
      arrays["chunks"] = np.zeros(256, np.int64)
    arrays_lib.save(pattern, arrays)
    state = place / checkpoint.STATE
    yield from _tree_faults(state, pattern)
  tops = {state, place / checkpoint.MANIFEST, retained}
  yield from sorted({*place.iterdir()} - tops)


def _tree_faults(state: pathlib.Path, pattern: pathlib.Path) -> Iterator[pathlib.Path]:
  """What in orbax's folder `state` is not as in the folder `pattern` of zeros."""
  wanted = {p.relative_to(pattern) for p in pattern.rglob("*")}
  for path in sorted(state.rglob("*")):
    name = path.relative_to(state)
    model = pattern / name
    if name not in wanted or model.is_dir() != path.is_dir():
      yield path
    elif path.name == _DONE:
      text = _DONE_TEXT % state.parent.name.encode()
      if not re.fullmatch(text, untrusted.read_bytes(path, follow=False)):
        yield path
    elif path.name.startswith((".z", "_")):
      value = exact.read_plain_json(path)
      if not _is_like(value, json.loads(model.read_bytes())):
        yield path


def _is_like(value: Any, model: Any, name: str = "") -> bool:
  """Whether orbax's metadata has no more keys than `model`, and says the same."""
  if isinstance(model, dict):
    return (
      isinstance(value, dict)
      and value.keys() <= model.keys()
      and all(_is_like(part, model[k], k) for k, part in value.items())
    )
  if isinstance(model, list):
    same = isinstance(value, list) and len(value) == len(model)
    return same and all(map(_is_like, value, model))
  if name == "item_handlers":  # other releases may have moved it
    return exact.has_form(value, _NAME)
  return exact.has_form(value, int if name.endswith("_nsecs") else model)
