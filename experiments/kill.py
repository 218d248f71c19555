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
import json
import multiprocessing
import pathlib
import shutil
import signal
import tempfile
import time
from typing import Any

import jax
import numpy as np
import tqdm

from experiments import common
from experiments.kill_world import CONFIG, COUNT, KINDS, look, make_world, victim
from legonet_jax.runs import (
  create as create_lib,
)
from legonet_jax.store import rows as store_rows


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
  for kind in KINDS:
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
  split = np.zeros(COUNT, np.uint8)
  rows = store_rows.StoreRows(
    world.encodings[:COUNT], world.labels[:COUNT], world.ids[:COUNT], split
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
    kinds = [str(k) for k in rng.choice(KINDS, 8)]
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
