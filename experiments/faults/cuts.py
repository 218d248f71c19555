"""One cut: a fault at one operation of one command, and the verdict on what is left."""

from collections.abc import Callable, Iterator
import contextlib
import functools
import gc
import os
import pathlib
from typing import Any, NamedTuple
from unittest import mock

from experiments.faults import hooks, inject, judge, quick, world as world_lib
from experiments.faults.disk import Disk
from experiments.faults.ends import Asked
from experiments.faults.scenarios import Scenario
from experiments.faults.world import World
from legonet_jax import errors
from legonet_jax.runs import requests as requests_lib
from legonet_jax.runs.layout import Layout

# Cuts with a kill first, and what may come next.
_SECOND = {"twice": ("kill", "fail", "unread"), "restart": inject.POWER}
KINDS = (*inject.KINDS, *_SECOND)
# A prime, so that second cuts are spread over the whole of the next command, which has
# about this many operations if nobody has counted them.
_SPREAD, _USUAL = 7919, 40


class Cut(NamedTuple):
  """What was done and what came of it.

  Attributes:
    scenario: its name.
    kind: of fault, see `inject`; "twice": killed, and the next command is killed or
      fails as well; "restart": killed, and then the power fails, while the next command
      is at work or when it is done.
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
def _listening(world: World, asked: list[Asked]) -> Iterator[None]:
  """Notes every request on the run that is made, and whether it was acknowledged."""
  real = requests_lib.drop

  def drop(layout: Layout, request: requests_lib.Request, *rest: Any) -> str:
    if layout.root != world.run:
      return real(layout, request, *rest)
    asked.append(Asked(request, ""))
    name = real(layout, request, *rest)
    asked[-1] = Asked(request, name)
    return name

  with mock.patch.object(requests_lib, "drop", drop):
    yield


def prepare(scenario: Scenario, folder: pathlib.Path) -> World:
  """The world of a scenario, ready to be cut."""
  world = World(folder / "world")
  with quick.no_waiting():
    scenario.prepare(world)
  world_lib.keep(world)
  return world


def cut(
  scenario: Scenario,
  world: World,
  kind: str,
  at: int,
  second: tuple[str, int] | None = None,
) -> Cut:
  """Spoils the `at`-th operation of a scenario, and maybe one of the next command.

  Args:
    scenario: the command.
    world: prepared for it.
    kind: of fault.
    at: which operation, from 1.
    second: the kind of fault of the next command, and at which operation. The power may
      also fail after its end, and takes with it what neither of the two has synced.
  """
  asked: list[Asked] = []
  problems: list[str] = []
  world_lib.restore(world)
  wanted = scenario.requests(world)
  with contextlib.ExitStack() as stack:
    stack.enter_context(quick.no_waiting())
    stack.enter_context(_listening(world, asked))
    disk = None
    if {kind, second[0] if second else ""} & {*inject.POWER}:
      disk = Disk(world.root)
      stack.callback(disk.close)
    strike = functools.partial(_strike, world, disk, problems)
    first = strike(kind, at, lambda: scenario.call(world, wanted))
    if not first.hit:
      return Cut(scenario.name, kind, at, "", 1, problems)
    if disk is not None and kind in inject.POWER:
      disk.fail(keep_names=kind == "blank")
    with quick.quick_looks():
      problems += judge.judge_crashed(scenario, world, asked)
    if second is not None:
      strike(*second, lambda: scenario.again(world))
      if disk is not None:
        disk.fail(keep_names=second[0] == "blank")
      with quick.quick_looks():
        problems += judge.judge_crashed(scenario, world, asked)
    next_one = strike("kill", 0, lambda: scenario.again(world))
    with quick.quick_looks():
      problems += judge.judge_recovered(scenario, world, asked)
  recovery = max(1, len(next_one.asked))
  return Cut(scenario.name, kind, at, first.hit, recovery, problems)


def _strike(
  world: World,
  disk: Disk | None,
  problems: list[str],
  kind: str,
  at: int,
  call: Callable[[], None],
) -> inject.Injector:
  """Calls with a fault at operation `at` (0: none), and looks how it ends."""
  with hooks.injected(world.root, kind, at, disk) as injector:
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
  left = _close_all(world, set() if disk is None else disk.held)
  if not injector.hit or kind not in inject.DEADLY:
    problems += [f"{path} was left open" for path in left]
  return injector


def _close_all(world: World, others: set[int]) -> list[str]:
  """Closes what a dead process would not have open; what that is."""
  if _open_below(world).keys() - others:
    gc.collect()  # before a handle is closed here that a Python file would close again
  left = {h: path for h, path in _open_below(world).items() if h not in others}
  for handle in left:
    os.close(handle)
  return [*left.values()]


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
  chosen = {KINDS[(offset + i * stride) % len(KINDS)] for i in range(len(KINDS))}
  ended = {*KINDS} - chosen
  number = offset
  while len(ended) < len(KINDS):
    at, kind = 1 + number // len(KINDS), KINDS[number % len(KINDS)]
    number += stride
    if killed is not None and killed.at != at:
      killed = None
    if kind in ended or (killed and kind == "torn" and not _writes(killed)):
      continue
    if kind in _SECOND:
      second = _choose_second(kind, at, killed.recovery if killed else _USUAL)
      found = cut(scenario, world, "kill", at, second)._replace(kind=kind)
    else:
      found = cut(scenario, world, kind, at)
    if found.problems or found.operation:
      yield found
    if not found.operation:
      # There are as many to read, or else as many of all others.
      ended |= {kind} if kind == "unread" else {*KINDS} - {"unread"}
    killed = found if kind == "kill" else killed


def _choose_second(kind: str, at: int, count: int) -> tuple[str, int]:
  """A fault of the next command, at one of its `count` operations or after the last."""
  which = _SECOND[kind]
  place = 1 + at * _SPREAD % (count + 1)
  if kind == "restart" and at % 3 == 0:
    place = count + 1
  return which[at % len(which)], place


def _writes(found: Cut) -> bool:
  """Whether an operation can be torn; if not, the cut would be the same as a kill."""
  return found.operation in inject.WRITES
