"""One cut: a fault at one operation of one command, and the verdict on what is left."""

from collections.abc import Callable, Iterable, Iterator
import contextlib
import gc
import os
import pathlib
from typing import Any, NamedTuple
from unittest import mock

from experiments.faults import hooks, inject, judge, world as world_lib
from experiments.faults.ends import Asked
from experiments.faults.scenarios import Scenario
from experiments.faults.world import World
from legonet_jax import errors
from legonet_jax.runs import durable, requests as requests_lib
from legonet_jax.runs.layout import Layout

KINDS = (*inject.KINDS, "twice")
# A prime, so that second cuts are spread over the whole of the next command, which has
# about this many operations if nobody has counted them.
_SPREAD, _USUAL = 7919, 40
_SECOND = ("kill", "fail", "unread")


class Cut(NamedTuple):
  """What was done and what came of it.

  Attributes:
    scenario: its name.
    kind: of fault, see `inject`; "twice": killed, and the next command is killed, or
      fails, as well.
    at: which operation.
    operation: its name, or "" if the command has fewer.
    recovery: how many operations the next command has, at least 1.
    problems: complaints.
  """

  scenario: str
  kind: str
  at: int
  operation: str
  recovery: int
  problems: list[str]


@contextlib.contextmanager
def quick_disk() -> Iterator[None]:
  """Waits for no disk: what a process leaves is what the system holds."""
  with mock.patch.object(os, "fsync", return_value=None):
    yield


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
  """Starts no threads, which takes longer than reading a tiny run."""

  def for_all(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    return [function(item) for item in items]

  with mock.patch.object(durable, "for_all", for_all):
    yield


@contextlib.contextmanager
def _listening(world: World, asked: list[Asked]) -> Iterator[None]:
  """Notes every request on the run that is made, and whether it was acknowledged."""
  real = requests_lib.drop

  def drop(layout: Layout, request: requests_lib.Request) -> str:
    if layout.root != world.run:
      return real(layout, request)
    asked.append(Asked(request, ""))
    name = real(layout, request)
    asked[-1] = Asked(request, name)
    return name

  with mock.patch.object(requests_lib, "drop", drop):
    yield


def prepare(scenario: Scenario, folder: pathlib.Path) -> World:
  """The world of a scenario, ready to be cut."""
  world = World(folder / "world")
  with quick_disk():
    scenario.prepare(world)
  world_lib.keep(world)
  return world


def cut(scenario: Scenario, world: World, kind: str, at: int, second: int = 0) -> Cut:
  """Spoils the `at`-th operation of a scenario; with `second`, one of the next command.

  Args:
    scenario: the command.
    world: prepared for it.
    kind: of fault.
    at: which operation, from 1.
    second: at which operation the next command is killed or fails.
  """
  asked: list[Asked] = []
  problems: list[str] = []
  world_lib.restore(world)
  wanted = scenario.requests(world)
  with quick_disk(), _listening(world, asked):
    first = _strike(world, kind, at, lambda: scenario.call(world, wanted), problems)
    if not first.hit:
      return Cut(scenario.name, kind, at, "", 1, problems)
    with _one_thread():
      problems += judge.judge_crashed(scenario, world, asked)
    if second:
      again = _SECOND[second % len(_SECOND)]
      _strike(world, again, second, lambda: scenario.again(world), problems)
      with _one_thread():
        problems += judge.judge_crashed(scenario, world, asked)
    next_one = _strike(world, "kill", 0, lambda: scenario.again(world), problems)
    with _one_thread():
      problems += judge.judge_recovered(scenario, world, asked)
  kind = "twice" if second else kind
  recovery = max(1, len(next_one.asked))
  return Cut(scenario.name, kind, at, first.hit, recovery, problems)


def _strike(
  world: World, kind: str, at: int, call: Callable[[], None], problems: list[str]
) -> inject.Injector:
  """Calls with a fault at operation `at` (0: none), and looks how it ends."""
  with hooks.injected(world.root, kind, at) as injector:
    try:
      call()
    except (inject.Killed, KeyboardInterrupt):
      if not injector.hit:
        raise
    except (errors.LegoError, OSError) as e:
      if not injector.hit:
        problems.append(f"fails without a fault: {judge.say(e)}")
    except Exception as e:
      problems.append(f"ends with {judge.say(e)}")
  if injector.disk is not None and injector.hit:
    injector.disk.fail(keep_names=kind == "blank")
  problems += _let_go(world, bool(injector.hit) and kind in inject.DEADLY)
  return injector


def _let_go(world: World, died: bool) -> list[str]:
  """Closes what a dead process would not have open; a living one must have done it."""
  if _open_below(world):
    gc.collect()  # before a handle is closed here that a Python file would close again
  left = _open_below(world)
  for handle in left:
    os.close(handle)
  return [] if died else [f"{path} was left open" for path in left.values()]


def _open_below(world: World) -> dict[int, str]:
  found = {}
  for handle in os.listdir("/proc/self/fd"):
    with contextlib.suppress(OSError):
      found[int(handle)] = os.readlink(f"/proc/self/fd/{handle}")
  root = os.path.realpath(world.root)
  return {h: p for h, p in found.items() if p == root or p.startswith(f"{root}/")}


def all_cuts(
  scenario: Scenario, world: World, stride: int = 1, offset: int = 0
) -> Iterator[Cut]:
  """Cuts at every operation with every kind of fault, or every `stride`-th of these.

  Args:
    scenario: the command.
    world: prepared for it.
    stride: how far one cut is from the next.
    offset: where to begin.
  """
  killed = None  # the last one that was: what it tells holds for its neighbours
  ended: set[str] = set()
  number = offset
  while len(ended) < len(KINDS):
    at, kind = 1 + number // len(KINDS), KINDS[number % len(KINDS)]
    number += stride
    if killed is not None and killed.at != at:
      killed = None
    if kind in ended or (killed and kind == "torn" and not _writes(killed)):
      continue
    second = 1 + at * _SPREAD % (killed.recovery if killed else _USUAL)
    if kind == "twice":
      found = cut(scenario, world, "kill", at, second)
    else:
      found = cut(scenario, world, kind, at)
    if found.problems or found.operation:
      yield found
    if not found.operation:
      # There are as many to read, or else as many of all others.
      ended |= {kind} if kind == "unread" else {*KINDS} - {"unread"}
    killed = found if kind == "kill" else killed


def _writes(found: Cut) -> bool:
  """Whether an operation can be torn; if not, the cut would be the same as a kill."""
  return found.operation in inject.WRITES
