"""How a forger hides data in a run and its stores, and redoes all seals."""

import base64
import io
import json

import numpy as np
import orbax.checkpoint as ocp
from run_world import IDS, rechain

from legonet_jax.io import durable, hashing
from legonet_jax.runs import attest, certificate as certificate_lib, journal

SECRET = int(IDS[0])  # of a sample that the run has forgotten
BYTES = np.int64(SECRET).tobytes()


def checkpoint_of(path):
  return next((path / "checkpoints").iterdir())


def store_of(path):
  return path.parent / "store"


def edit_json(file, change):
  value = json.loads(file.read_bytes())
  change(value)
  file.write_bytes(hashing.to_text(value))


def reseal(path, change=lambda value: None):
  """Redoes the sums of a checkpoint's files, and the manifest's own."""

  def again(value):
    value["files"] = durable.hashes_of(checkpoint_of(path))
    del value["files"]["manifest.json"], value["sha256"]
    change(value)
    value["sha256"] = hashing.sha256_of_json(value)

  edit_json(checkpoint_of(path) / "manifest.json", again)


def rewrite(path, change):
  """Edits the journal, and what names its entries by their hashes."""
  old = [entry["hash"] for entry in journal.read(path / "journal.jsonl")]
  rechain(path, change)
  new = [entry["hash"] for entry in journal.read(path / "journal.jsonl")]
  now = dict(zip(old, new, strict=True))
  reseal(path, lambda manifest: manifest.update(head=now[manifest["head"]]))
  certify(path, lambda value: value.update(journal=now[value["journal"]]))


def certify(path, change):
  """Edits the certificate and seals it again."""
  file = path / "certificate.json"
  value = json.loads(file.read_bytes())
  change(value)
  file.write_bytes(
    certificate_lib.seal({k: v for k, v in value.items() if k != "sha256"})
  )


def record_again(path):
  """Writes the sums of the stores and fixed files into store, journal and manifest."""
  records = {}
  for store in (store_of(path), *(path / "learned").iterdir()):
    name = str(store) if store == store_of(path) else f"learned/{store.name}"
    sums = {n.name[:-4]: durable.hashes_of(store)[n.name] for n in store.glob("*.npy")}
    del sums["salts"]
    edit_json(store / "meta.json", lambda meta, sums=sums: meta.update(sha256=sums))
    records[name] = sums

  def change(entries):
    for entry in entries:
      for field in {"stores", "changed"} & entry.keys():
        for name, record in entry[field].items():
          record["sha256"] = records[name]
    sums = durable.hashes_of(path)
    entries[0]["files"] = {name: sums[name] for name in entries[0]["files"]}

  rewrite(path, change)


def in_checkpoint(change):
  def hide(path):
    change(checkpoint_of(path))
    reseal(path)

  return hide


def file_at(name, data=BYTES):
  def add(folder):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)

  return add


def append_to(name, data=BYTES):
  def add(folder):
    with (folder / name).open("ab") as file:
      file.write(data)

  return add


def key_in(name, *inside):
  """Adds a key to a JSON file that another library wrote."""

  def add(folder):
    value = json.loads((folder / name).read_bytes())
    part = value
    for step in inside:
      part = part[step]
    part["note"] = str(SECRET)
    (folder / name).write_text(json.dumps(value))

  return add


def with_array(folder, name, array):
  """Adds an array to the state, saved as `checkpoint.save` does."""
  handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False)
  arrays = ocp.Checkpointer(handler).restore(folder / "state")
  making = folder.parent / f".making-{folder.name}"
  ocp.Checkpointer(handler).save(making / "state", {**arrays, name: array})
  durable.shred_tree(folder / "state")
  (making / "state").rename(folder / "state")
  making.rmdir()


def extra_array(folder):
  with_array(folder, "notes", np.array([SECRET]))


def id_in_chunks(folder):
  with_array(folder, "chunks", np.full(256, SECRET))


def id_in_retained(folder):
  ids = np.load(folder / "retained.npy")
  np.save(folder / "retained.npy", np.append(ids, SECRET))


def in_padding(name):
  """Writes over the spaces in the header of an `.npy` file."""

  def hide(folder):
    data = (folder / name).read_bytes()
    end = data.index(b"\n")
    text = b" # %d" % SECRET
    padded = data[: end - len(text)] + text + data[end:]
    assert np.array_equal(np.load(io.BytesIO(padded)), np.load(io.BytesIO(data)))
    (folder / name).write_bytes(padded)

  return hide


def in_manifest(change):
  return lambda path: reseal(path, change)


def note(value):
  value["note"] = str(SECRET)


def in_store(change):
  def hide(path):
    change(store_of(path))
    record_again(path)

  return hide


def in_run(change):
  def hide(path):
    change(path)
    record_again(path)

  return hide


def in_entry(number):
  return lambda path: rewrite(path, lambda entries: note(entries[number]))


def in_meta(store):
  return lambda path: edit_json(store(path) / "meta.json", note)


def learned_of(path):
  return next((path / "learned").iterdir())


def in_settings(path):
  edit_json(path / "run.json", note)
  record_again(path)


def in_environment(path):
  reseal(path, lambda value: value["environment"].update(note=str(SECRET)))


def in_stated_details(path):
  certify(path, lambda value: value["checks"][0].update(note=SECRET))


def id_for_a_process(name):
  return lambda path: (path / name).write_text(str(SECRET))


def spaces(name):
  """Bits as blanks: the same JSON."""
  return lambda path: (path / name).write_bytes((path / name).read_bytes() + b" \t  \t")


def in_envelope(change):
  """An unsigned head that looks signed; nobody gave `verify` a key."""

  def hide(path):
    entries = journal.read(path / "journal.jsonl")
    envelope = {"payloadType": "application/vnd.in-toto+json"}
    envelope["signatures"] = [{"keyid": "0" * 64, "sig": "A" * 86 + "=="}]
    manifest = json.loads((checkpoint_of(path) / "manifest.json").read_bytes())
    predicate = {
      "digest": manifest["digest"], "entries": len(entries),
      "samples": entries[-1]["samples"], "time": entries[-1]["time"],
    }  # fmt: skip
    subject = {"sha256": entries[-1]["hash"]}
    statement = {
      "_type": "https://in-toto.io/Statement/v1",
      "predicate": predicate,
      "predicateType": "https://legonet-jax.github.io/journal-head/v1",
      "subject": [{"digest": subject, "name": "legonet-jax journal"}],
    }
    change(envelope, statement)
    text = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    envelope["payload"] = base64.b64encode(text).decode()
    (path / "head.json").write_bytes(hashing.to_text(envelope))
    assert attest.read(path / "head.json", None).head == entries[-1]["hash"]

  return hide


def empty_folder(name):
  return lambda path: (path / name).mkdir(parents=True)
