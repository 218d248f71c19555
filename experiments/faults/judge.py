"""What must hold right after a cut, and what must hold after the next command.

Right after it, `verify` may say what it likes of a run that is not well, but it must
never call one sound that still holds a byte of a forgotten sample, or has a request to
finish. After the next command nothing is lost, nothing was done twice, the state is
that of a refit, and the run goes on.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from experiments.faults import ends, world as world_lib
from experiments.faults.ends import Asked
from experiments.faults.scenarios import Scenario
from experiments.faults.world import EVERYONE, World
from legonet_jax import errors
from legonet_jax.host import digest
from legonet_jax.runs import (
  checkpoint,
  requests as requests_lib,
  run as run_lib,
  service,
  verify as verify_lib,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.runtime.checks import Check
from legonet_jax.store import read as store_read


def judge_crashed(
  scenario: Scenario, world: World, asked: Sequence[Asked]
) -> list[str]:
  """Complaints about what a cut has left, before any command has seen it."""
  if not Layout(world.run).settings.is_file():
    return _judge_store(scenario, world)
  try:
    report = verify_lib.verify(world.run)
  except errors.LegoError as e:
    report = verify_lib.Report([Check("verify", False, str(e))], None)
  except Exception as e:
    return [f"crashed: verify raises {say(e)}"]
  if scenario.sound and report.certificate is None:
    return [f"crashed: the state cannot be loaded: {report.checks[-1].detail}"]
  if not report.passed:
    return []
  done = ends.find_done(world, asked)
  acknowledged = [one.request for one in asked if one.name]
  found = [*_loose_ends(world)]
  if any(all(request is not d for d in done) for request in acknowledged):
    found.append("an acknowledged request is not done")
  gone = set(EVERYONE.tolist()) - ends.held_after(scenario, done)
  found += [f"{file} holds a forgotten sample" for file in _traces(world, gone)]
  return [f"crashed: verify passes, and {text}" for text in found]


def _judge_store(scenario: Scenario, world: World) -> list[str]:
  """No reader ever takes half a store for a whole one."""
  try:
    found = store_read.open_store(world.store, verify=True)
  except errors.StoreError:
    return []
  except Exception as e:
    return [f"crashed: opening the store raises {say(e)}"]
  if scenario.held:  # it was there before
    return []
  whole = store_read.open_store(world.tools / "whole")
  same = np.array_equal(found.encodings, whole.encodings)
  same = same and np.array_equal(found.ids, whole.ids)
  return [] if same else ["crashed: half a store passes for a whole one"]


def judge_recovered(scenario: Scenario, world: World, asked: list[Asked]) -> list[str]:
  """Complaints when the next command is done, and after the one that was cut, again.

  Args:
    scenario: what was cut.
    world: as it is after `scenario.again`; changes.
    asked: all requests so far; those that are made here are added to it.
  """
  try:
    if not Layout(world.run).settings.is_file():
      return [*scenario.check(world), *_hidden(world)]
    problems = ends.judge_requests(scenario, world, asked)
    done = ends.find_done(world, asked)
    missing = ends.find_missing(scenario, world, done)
    if missing:
      problems += _judge_state(scenario, world, ends.held_after(scenario, done))
      scenario.call(world, missing)
      problems += ends.judge_requests(scenario, world, asked)
      done = ends.find_done(world, asked)
      if ends.find_missing(scenario, world, done):
        problems.append("the same command again does not do it")
    held = ends.held_after(scenario, done)
    problems += _judge_state(scenario, world, held)
    problems += scenario.check(world)
    if _is_masked(world):
      service.carry_out(world.run, requests_lib.make("heal"))
      problems += _judge_state(scenario, world, held)
    return problems + _judge_next(scenario, world, held)
  except Exception as e:
    return [f"the run cannot go on: {say(e)}"]


def _judge_state(scenario: Scenario, world: World, held: frozenset[int]) -> list[str]:
  """The run is whole, holds these samples, and nothing of any other."""
  problems = [*_loose_ends(world)]
  run = run_lib.load(world.run)
  found = digest.digest(run.state)
  if set(run.state.ids.tolist()) != held:
    problems.append("the run holds other samples than it should")
  elif found != run.manifest.digest:
    problems.append("the state is not what its manifest says")
  elif not run.manifest.masked and found != world_lib.refit_digest(held):
    problems.append("the digest is not that of a refit")
  gone = set(EVERYONE.tolist()) - held
  problems += [f"{file} holds a forgotten sample" for file in _traces(world, gone)]
  if not scenario.erased & held:  # else rows are missing, and verify says so
    report = verify_lib.verify(world.run, full=True)
    bad = [check for check in report.checks if not check.passed]
    problems += [f"verify: {check.name}: {check.detail}" for check in bad]
  return problems


def _judge_next(scenario: Scenario, world: World, held: frozenset[int]) -> list[str]:
  """One more request to forget: a sample that was learned last, if there is one."""
  held -= scenario.erased
  wanted = [i for i in EVERYONE.tolist() if i in held][-1:]
  service.carry_out(world.run, world_lib.unlearn(wanted))
  problems = _judge_state(scenario, world, held - {*wanted})
  if world.new_store.is_dir():
    files = world_lib.traces(wanted, world.new_store)
    problems += [f"{file} of the new store holds a forgotten sample" for file in files]
  return [f"the request after it: {problem}" for problem in problems]


def _is_masked(world: World) -> bool:
  folder = Layout(world.run).checkpoints
  newest = checkpoint.path_of(folder, checkpoint.numbers(folder)[0])
  return checkpoint.read_manifest(newest).masked > 0


def _loose_ends(world: World) -> Iterable[str]:
  waiting = service.unfinished(world.run)
  if waiting:
    yield f"{len(waiting)} requests are not complete"
  folder = Layout(world.run).checkpoints
  there = [p.name for p in folder.iterdir()]
  if len(there) != 1 or checkpoint.numbers(folder) != [int(there[0])]:
    yield f"the checkpoints are {sorted(there)}"
  yield from _hidden(world)


def _hidden(world: World) -> Iterable[str]:
  """Temporary files have names that start with a dot."""
  for path in sorted(world.root.rglob(".*")):
    if path.name != ".zarray":  # orbax has one for every array
      yield f"{path.relative_to(world.root)} is left"


def _traces(world: World, gone: set[int]) -> list[str]:
  """Another run has its own samples; a store to learn from is somebody else's yet."""
  places = [world.run, world.store]
  return [f"{p.name}/{f}" for p in places for f in world_lib.traces(gone, p)]


def say(error: Exception) -> str:
  """An error in one line."""
  return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
