"""For `experiments.kill`: samples, requests, a victim, and a look at what is left."""

import contextlib
import json
import os
import pathlib
import signal
from typing import Any, NamedTuple

import numpy as np

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.io import lock
from legonet_jax.runs import (
  journal,
  requests as requests_lib,
  run as run_lib,
  service,
  session as session_lib,
)

KINDS = ("unlearn", "defer", "learn", "heal", "compact")
_DIM, COUNT, _SPARE = 16, 300, 40
_SOLVER = lego.Sgd(epochs=2, batch_size=8, lanes=2, tile_batches=4)
CONFIG = lego.LegoConfig(
  num_classes=4, num_adapters=24, top_k=3, seed=1, encoder="kill", solver=_SOLVER
)


class KillWorld(NamedTuple):
  """All samples there are: the first `COUNT` are fitted, the others may be learned."""

  encodings: Any
  labels: Any
  ids: Any


def make_world() -> KillWorld:
  """Ids of 62 random bits, so that finding one in a file means something."""
  rng = np.random.default_rng(0)
  total = COUNT + _SPARE
  return KillWorld(
    rng.normal(size=(total, _DIM)).astype(np.float32),
    rng.integers(0, CONFIG.num_classes, total).astype(np.int32),
    rng.integers(2**60, 2**62, total),
  )


def make_request(world: KillWorld, kind: str, held: set[int], rng: Any) -> Any:
  """A request of one kind that can be carried out on a run that holds `held`."""
  if kind in ("unlearn", "defer"):
    # Every other time an anchor, which moves keys and retrains nearly all.
    order = lego.core.ids.hash_order(CONFIG.seed, np.sort([*held]))
    pool = np.sort([*held])[order]
    pool = pool[: CONFIG.num_adapters] if rng.integers(2) else pool
    ids = rng.choice(pool, rng.integers(1, 4), replace=False)
    return requests_lib.make("unlearn", ids, defer=kind == "defer")
  if kind == "learn":
    spare = np.flatnonzero(~np.isin(world.ids, [*held]))
    at = rng.choice(spare, min(len(spare), 3), replace=False)
    return requests_lib.make(
      "learn",
      world.ids[at],
      encodings=world.encodings[at],
      labels=world.labels[at],
      relearn=True,
    )
  return requests_lib.make("heal" if kind == "heal" else "compact")


def note(file: pathlib.Path, value: dict[str, Any]) -> None:
  """Adds a line to the notes of a victim, on disk when this returns."""
  with file.open("a") as lines:
    lines.write(json.dumps(value) + "\n")
    lines.flush()
    os.fsync(lines.fileno())


def victim(folder: pathlib.Path, kinds: list[str], seed: int, step: str) -> None:
  """Makes requests until it is killed; `step`: kills itself there."""
  world, rng = make_world(), np.random.default_rng(seed)
  path, notes = folder / "run", folder / "notes.jsonl"
  lego.fit(CONFIG, _table(world, world.ids[:COUNT]))  # compiles
  # Half of the victims are services, which hold the run, the others single commands.
  hold = lock.hold(path) if not step and seed % 2 else contextlib.nullcontext()
  with hold:
    session = session_lib.open_session(path)
    note(notes, {"ready": True})
    for kind in kinds:
      session = _one_request(session, world, kind, rng, notes, kind == kinds[-1], step)
  note(notes, {"end": True})


def _one_request(
  session: session_lib.Session,
  world: KillWorld,
  kind: str,
  rng: Any,
  notes: pathlib.Path,
  last: bool,
  step: str,
) -> session_lib.Session:
  path, held = session.run.layout.root, set(session.run.state.ids.tolist())
  request = make_request(world, kind, held, rng)
  asked = {"kind": kind, "ids": request.ids.tolist(), "salt": request.salt.hex()}

  def on_step(name: str) -> None:
    if name == "requested":
      note(notes, {"acknowledged": asked["salt"]})
    if name == step and last:
      os.kill(os.getpid(), signal.SIGKILL)

  note(notes, {"asked": asked})
  if _is_held(path):
    service.submit(session, request)
    on_step("requested")
    session = service.settle(session, on_step=on_step)
  else:
    session, _ = service.carry_out(path, request, on_step=on_step)
  note(notes, {"returned": asked["salt"]})
  return session


def _is_held(path: pathlib.Path) -> bool:
  try:
    with lock.hold(path):
      return False
  except errors.RunBusyError:
    return True


def look(folder: pathlib.Path, world: KillWorld) -> dict[str, Any]:
  """Opens the run as after a restart and compares it with what was asked for."""
  lines = (folder / "notes.jsonl").read_text().splitlines()
  notes = [json.loads(line) for line in lines]
  path = folder / "run"
  unfinished = len(service.unfinished(path))
  session, _ = service.carry_out(path)
  entries = session.entries
  accepted, settled = journal.of_requests(entries)
  problems = []
  counts: dict[str, int] = {}
  for entry in entries:
    for name in entry.get("requests", ()):
      counts[name] = counts.get(name, 0) + 1
  if any(count != 1 for count in counts.values()):
    problems.append("a request was applied twice")
  if set(accepted) != set(counts) or service.unfinished(path):
    problems.append("an accepted request is not complete")
  held = set(world.ids[:COUNT].tolist())
  hashes = {tuple(entry["ids"]): name for name, entry in accepted.items()}
  acknowledged = {n["acknowledged"] for n in notes if "acknowledged" in n}
  done, empty_kinds = 0, 0
  for asked in (n["asked"] for n in notes if "asked" in n):
    ids = np.asarray(asked["ids"], np.int64)
    if not len(ids):
      empty_kinds += asked["salt"] in acknowledged
      continue
    name = hashes.get(tuple(journal.salted(bytes.fromhex(asked["salt"]), ids)))
    if name is None:
      if asked["salt"] in acknowledged:
        problems.append(f"an acknowledged {asked['kind']} was lost")
      continue
    done += 1
    named = set(ids.tolist())
    held = held | named if asked["kind"] == "learn" else held - named
  plain = sum(entry["kind"] in ("heal", "compact") for entry in accepted.values())
  if plain < empty_kinds:
    problems.append("an acknowledged heal or compact was lost")
  if session.run.manifest.masked:
    session, _ = service.carry_out(path, requests_lib.make("heal"))
  run = session.run
  if set(run.state.ids.tolist()) != held:
    problems.append("the retained set is not what was asked for")
  refit, _ = lego.fit(CONFIG, _table(world, np.sort([*held])))
  if lego.digest(refit) != run.manifest.digest or (
    lego.digest(run_lib.load(path).state) != run.manifest.digest
  ):
    problems.append("the digest is not that of a refit")
  gone = [i for i in world.ids.tolist() if i not in held]
  problems += _traces(folder, world, gone)
  return {
    "problems": problems,
    "requests": done + plain,
    "unfinished_at_restart": unfinished,
    "settled": len(settled),
  }


def _traces(folder: pathlib.Path, world: KillWorld, gone: list[int]) -> list[str]:
  files = [p for part in ("run", "store") for p in (folder / part).rglob("*")]
  data = {p: p.read_bytes() for p in files if p.is_file()}
  row_of = {int(i): row for row, i in enumerate(world.ids)}
  found = []
  for i in gone:
    row = world.encodings[row_of[i]]
    needles = (np.int64(i).tobytes(), str(i).encode(), row.tobytes())
    found += [f"{p.name} holds a sample" for p, d in data.items()
              if any(n in d for n in needles)]  # fmt: skip
  return found


def _table(world: KillWorld, ids: Any) -> lego.Samples:
  keep = np.isin(world.ids, ids)
  return lego.make_samples(
    CONFIG, world.encodings[keep], world.labels[keep], world.ids[keep]
  )
