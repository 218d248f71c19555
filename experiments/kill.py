"""Kills processes that work on a run, and looks whether anything is lost.

    python -m experiments.kill                   every named step, 100 random moments
    python -m experiments.kill --moments 0       in two parts: first the named steps,
    python -m experiments.kill --steps no        then the random moments

Each victim is a process of its own that makes real requests on a run and is killed with
SIGKILL: at a named step, by itself, or by this process after a random time. Then the
run is opened, as any command would after a restart, and must show: every request that
was acknowledged is complete, none was applied twice, and the digest is that of a fresh
fit on what remains; after forgetting, no file holds a byte of the sample.

What was asked for is noted outside of the run, before and after each request. Victims
are forked before jax has started its threads and share what was compiled, which saves
most of their time.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import tempfile
import time
from typing import Any, NamedTuple

import jax
import numpy as np
import tqdm

from experiments import common
import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.io import lock
from legonet_jax.runs import (
  create as create_lib,
  journal,
  requests as requests_lib,
  run as run_lib,
  service,
  session as session_lib,
)
from legonet_jax.store import rows as store_rows

_KINDS = ("unlearn", "defer", "learn", "heal", "compact")
_DIM, _COUNT, _SPARE = 16, 300, 40
_SOLVER = lego.Sgd(epochs=2, batch_size=8, lanes=2, tile_batches=4)
CONFIG = lego.LegoConfig(
  num_classes=4, num_adapters=24, top_k=3, seed=1, encoder="kill", solver=_SOLVER
)


class KillWorld(NamedTuple):
  """All samples there are: the first `_COUNT` are fitted, the others may be learned."""

  encodings: Any
  labels: Any
  ids: Any


def make_world() -> KillWorld:
  """Ids of 62 random bits, so that finding one in a file means something."""
  rng = np.random.default_rng(0)
  total = _COUNT + _SPARE
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
      "learn", world.ids[at], encodings=world.encodings[at], labels=world.labels[at]
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
  lego.fit(CONFIG, _table(world, world.ids[:_COUNT]))  # compiles
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
  held = set(world.ids[:_COUNT].tolist())
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


def named_steps() -> list[tuple[str, str]]:
  """Every kind of request with every step that it has."""
  early = ["opened", "requested", "accepted", "rows landed"]
  middle = ["arrays written", "checkpoint written", "checkpoint saved"]
  erase = ["encoding overwritten", "id overwritten", "erased"]
  late = [
    "shredding a checkpoint",
    "checkpoints deleted",
    "requests removed",
    "complete",
  ]
  steps = []
  for kind in _KINDS:
    mine = early + ([] if kind == "compact" else ["trained"]) + middle
    mine += erase if kind in ("unlearn", "defer") else []
    steps += [(kind, step) for step in mine + late]
  return steps


def kill_once(
  fresh: pathlib.Path, kinds: list[str], seed: int, step: str, delay: float
) -> pathlib.Path:
  """One victim on a copy of the run, killed `delay` seconds after it is ready."""
  folder = fresh.parent / "world"  # always the same place: the run names its store
  shutil.rmtree(folder, ignore_errors=True)
  shutil.copytree(fresh, folder)
  process = _FORK.Process(target=victim, args=(folder, kinds, seed, step))
  process.start()
  if not step:
    notes = folder / "notes.jsonl"
    while process.is_alive() and not notes.exists():
      time.sleep(0.005)
    time.sleep(delay)
    process.kill()
  process.join()
  if step and process.exitcode != -signal.SIGKILL:
    raise SystemExit(f"the victim of {kinds[-1]}, {step} ended by itself")
  return folder


_FORK = multiprocessing.get_context("fork")


def checker(queue: Any, results: Any) -> None:
  """Looks at one folder after the other; a process of its own, so that we may fork."""
  world = make_world()
  while (folder := queue.get()) is not None:
    results.put(look(folder, world))


def build(fresh: pathlib.Path) -> None:
  """The run that every victim gets a copy of, at the place where it will be used."""
  world, folder = make_world(), fresh.parent / "world"
  split = np.zeros(_COUNT, np.uint8)
  rows = store_rows.StoreRows(
    world.encodings[:_COUNT], world.labels[:_COUNT], world.ids[:_COUNT], split
  )
  store_rows.land(folder / "store", rows, CONFIG.encoder)
  create_lib.create(folder / "run", CONFIG, folder / "store")
  folder.rename(fresh)


def main() -> None:
  """Runs the experiment."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--moments", type=int, default=100, help="random kills (100)")
  parser.add_argument("--steps", choices=("yes", "no"), default="yes")
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument(
    "--span", type=float, default=1.2, help="seconds to kill in (1.2)"
  )
  parser.add_argument("--out", type=pathlib.Path, default=common.RESULTS)
  args = parser.parse_args()
  rng = np.random.default_rng(args.seed)
  plans: list[tuple[list[str], int, str, float]] = []
  if args.steps == "yes":
    for i, (kind, step) in enumerate(named_steps()):
      before = {"heal": ["defer"], "compact": ["learn", "unlearn"]}.get(kind, [])
      plans.append(([*before, kind], i, step, 0.0))
  for i in range(args.moments):
    kinds = [str(k) for k in rng.choice(_KINDS, 8)]
    plans.append((kinds, 1000 + i, "", float(rng.uniform(0, args.span))))
  results: list[dict[str, Any]] = []
  with tempfile.TemporaryDirectory() as temporary:
    fresh = pathlib.Path(temporary) / "fresh"
    for name, value in (
      ("jax_compilation_cache_dir", f"{temporary}/compiled"),
      ("jax_persistent_cache_min_compile_time_secs", 0.0),
      ("jax_persistent_cache_min_entry_size_bytes", -1),
    ):
      jax.config.update(name, value)  # type: ignore[no-untyped-call]
    process = _FORK.Process(target=build, args=(fresh,))
    process.start()
    process.join()
    ask, answers = _FORK.Queue(), _FORK.Queue()
    looker = _FORK.Process(target=checker, args=(ask, answers), daemon=True)
    looker.start()
    for kinds, seed, step, delay in tqdm.tqdm(plans):
      folder = kill_once(fresh, kinds, seed, step, delay)
      ask.put(folder)
      found = answers.get(timeout=300)
      where = {"step": step} if step else {"after_seconds": round(delay, 4)}
      results.append({"kinds": kinds, **where, **found})
      for problem in found["problems"]:
        print(f"{kinds} {where}: {problem}", flush=True)
    ask.put(None)
    looker.join()
  results = _with_other_part(args, results)
  steps = [r for r in results if "step" in r]
  moments = [r for r in results if "after_seconds" in r]
  summary = {
    "kills_at_named_steps": len(steps),
    "kills_at_random_moments": len(moments),
    "random_kills_with_unfinished_requests": sum(
      r["unfinished_at_restart"] > 0 for r in moments
    ),
    "requests": sum(r["requests"] for r in results),
    "problems": sum(len(r["problems"]) for r in results),
  }
  print(json.dumps(summary))
  print(common.save(args.out, "kill", {**summary, "kills": results}))
  if summary["problems"]:
    raise SystemExit(1)


def _with_other_part(
  args: argparse.Namespace, results: list[dict[str, Any]]
) -> list[dict[str, Any]]:
  """Adds what an earlier call with the other half of the work has found."""
  file = args.out / "kill.json"
  if not file.exists() or (args.moments and args.steps == "yes"):
    return results
  kind = "step" if args.moments else "after_seconds"
  return [r for r in json.loads(file.read_text())["kills"] if kind in r] + results


if __name__ == "__main__":
  main()
