"""A tiny run on a tiny store, and what the tests of runs ask about it."""

import json
import pathlib
import shutil

from conftest import CONFIG, COUNT, encodings, ids, labels
import numpy as np

import legonet_jax as lego
from legonet_jax.runs import (
  create as create_lib,
  journal,
  requests as requests_lib,
  service,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.runtime import callbacks
from legonet_jax.store import erase as erase_lib, rows as store_rows

ROOT = pathlib.Path(__file__).parents[1]
NEW_IDS = np.array([7, 8, 9], np.int64) * 10**15 + 123_456_789
ENCODINGS, LABELS, IDS = encodings(), labels().astype(np.int32), ids()
NEW = encodings(3, seed=5), np.array([0, 1, 2], np.int32)


def make_store(path, count=COUNT):
  split = np.zeros(count, np.uint8)
  rows = store_rows.StoreRows(ENCODINGS[:count], LABELS[:count], IDS[:count], split)
  store_rows.land(path, rows, CONFIG.encoder)


def make_run(folder, cfg=CONFIG, **kwargs):
  """`folder`/store and `folder`/run."""
  make_store(folder / "store")
  create_lib.create(folder / "run", cfg, folder / "store", **kwargs)
  return folder / "run"


def unlearn(wanted, **kwargs):
  return requests_lib.make("unlearn", np.asarray(wanted, np.int64), **kwargs)


def learn():
  return requests_lib.make("learn", NEW_IDS, encodings=NEW[0], labels=NEW[1])


def drop(path, request):
  """Leaves a request in the queue of the run in `path`."""
  return requests_lib.drop(Layout(path), request)


def erase(store, wanted):
  """Erases rows of a store, as another run on it would."""
  erase_lib.erase(store, lambda ids: np.isin(ids, wanted), callbacks.no_step)


def do(path, request=None, on_step=callbacks.no_step):
  session, receipt = service.carry_out(path, request, on_step=on_step)
  return session.run, receipt


def everything(cfg=CONFIG):
  """All samples that any test may learn."""
  known = lego.make_samples(cfg, ENCODINGS, LABELS, IDS)
  return lego.append(known, lego.make_samples(cfg, *NEW, NEW_IDS))


def refit_digest(retained, cfg=CONFIG, keys=None):
  state, _ = lego.fit(cfg, lego.select(everything(cfg), np.sort(retained)), keys)
  return lego.digest(state)


def completions(path):
  """How often each request was completed."""
  counts = {}
  for entry in journal.read(path / "journal.jsonl"):
    for name in entry.get("requests", ()):
      counts[name] = counts.get(name, 0) + 1
  return counts


def files_below(*folders):
  for folder in folders:
    yield from (p for p in pathlib.Path(folder).rglob("*") if p.is_file())


def traces(sample_id, row, label, *folders, cfg=CONFIG):
  """Files that hold a sample's id or encoding, in any form that it ever has."""
  table = lego.make_samples(cfg, row[None], [label], [sample_id])
  needles = [
    row.tobytes(),
    row.astype(np.float64).tobytes(),
    row.astype(np.float16).tobytes(),
    table.codes.tobytes(),
    table.prints.tobytes(),
    table.prints.tobytes().hex().encode(),
    np.int64(sample_id).tobytes(),
    np.int64(sample_id).byteswap().tobytes(),
    str(sample_id).encode(),
    f"{sample_id:x}".encode(),
  ]
  return [p for p in files_below(*folders) if any(n in p.read_bytes() for n in needles)]


def snapshot(source, target):
  shutil.rmtree(target, ignore_errors=True)
  shutil.copytree(source, target)


def rechain(path, change):
  """Edits the journal as a forger would: `change(entries)`, then a sound chain."""
  entries = journal.read(path / "journal.jsonl")
  change(entries)
  previous = "0" * 64
  lines = []
  for entry in entries:
    entry["prev"] = previous
    entry["hash"] = previous = journal.hash_of(entry)
    lines.append(json.dumps(entry, sort_keys=True) + "\n")
  (path / "journal.jsonl").write_text("".join(lines))
