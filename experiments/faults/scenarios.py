"""Which commands are cut: what each starts from, asks for, and must leave."""

from collections.abc import Callable, Sequence
import contextlib
from typing import NamedTuple

import numpy as np

from experiments.faults import commands, world as world_lib
from experiments.faults.commands import Requests, reopen
from experiments.faults.world import IDS, NEW_IDS, World
from legonet_jax.runs import (
  checkpoint,
  create as create_lib,
  key_files,
  requests as requests_lib,
  service,
)
from legonet_jax.runs.layout import Layout
from legonet_jax.runs.requests import Request

_ALL = frozenset(IDS.tolist())
_PLAIN = np.setdiff1d(IDS, world_lib.anchors())
# An anchor, which moves keys when it leaves, and a sample that is none.
_GONE = np.asarray([world_lib.anchors()[0], _PLAIN[0]])
_LEFT = _ALL - {*_GONE.tolist()}
# Another run erases this one.
_ERASED = _PLAIN[2:3]


class Scenario(NamedTuple):
  """One command, to be cut at every file operation.

  Attributes:
    name: for the table.
    prepare: makes the world that it starts from.
    call: the command, which makes these requests; after a cut it is called once more,
      with those that are not done.
    requests: what it asks for; a function of the world.
    again: what comes next after the cut, as a user would do it.
    held: the samples that the run holds before.
    erased: samples whose rows another run has erased, which leave with any request.
    rejected: the requests cannot be carried out, and must end as `rejected`.
    sound: whether there is a run, and its state can be loaded, whenever the cut comes.
    check: what else must hold in the end; complaints.
  """

  name: str
  prepare: Callable[[World], None]
  call: Callable[[World, Requests], None]
  requests: Callable[[World], Requests]
  again: Callable[[World], None] = reopen
  held: frozenset[int] = _ALL
  erased: frozenset[int] = frozenset()
  rejected: bool = False
  sound: bool = True
  check: Callable[[World], list[str]] = lambda _: []


def _prepared(*before: Callable[[], Request]) -> Callable[[World], None]:
  """A run after these requests."""

  def prepare(world: World) -> None:
    world_lib.make_run(world)
    for make in before:
      service.carry_out(world.run, make())

  return prepare


def _unlearn(_: World) -> Requests:
  return [world_lib.unlearn(_GONE)]


def _nothing(_: World) -> Requests:
  return []


def _with_new_store(world: World) -> None:
  world_lib.make_run(world)
  world_lib.make_store(world.new_store, NEW_IDS)


def _learn_from_store(world: World) -> Requests:
  store = str(world.new_store.resolve())
  return [requests_lib.make("learn", np.sort(NEW_IDS), store=store)]


def _shared(world: World) -> None:
  """Another run on the same store has forgotten a sample."""
  world_lib.make_run(world)
  create_lib.create(world.other, world_lib.CONFIG, world.store)
  service.carry_out(world.other, world_lib.unlearn(_ERASED))


def _nearly_all(_: World) -> Requests:
  """As many as may leave; but one more must, because another run has erased it."""
  least = world_lib.CONFIG.num_adapters
  return [world_lib.unlearn(np.setdiff1d(IDS, _ERASED)[least - 1 :])]


def _signed(world: World) -> None:
  """A run with a certificate and a signed head, which the next request makes void."""
  world.tools.mkdir(exist_ok=True)
  key = commands.sign_key(world)
  if not key.exists():
    key_files.generate(key)
  world_lib.make_run(world)
  commands.run_command("heal", world.run, "--sign-key", key, "--json")
  commands.verify(world)


def _damage(world: World) -> None:
  """The newest checkpoint loses a byte."""
  folder = Layout(world.run).checkpoints
  state = checkpoint.path_of(folder, checkpoint.numbers(folder)[0]) / "state"
  files = [p for p in state.rglob("*") if p.is_file()]
  file = max(files, key=lambda p: (p.stat().st_size, p))
  file.write_bytes(file.read_bytes()[:-1])


def _damaged(world: World) -> None:
  _prepared(lambda: world_lib.unlearn(_GONE))(world)
  _damage(world)


def _damaged_midway(world: World) -> None:
  """A request was killed when its checkpoint was the only one, and that is damaged."""

  def stop(step: str) -> None:
    if step == "checkpoints deleted":
      raise KeyboardInterrupt

  world_lib.make_run(world)
  with contextlib.suppress(KeyboardInterrupt):
    service.carry_out(world.run, world_lib.unlearn(_GONE), on_step=stop)
  _damage(world)


def _without_key(world: World) -> None:
  """The key that tells which samples were forgotten is lost."""
  _prepared(lambda: world_lib.unlearn(_GONE))(world)
  Layout(world.run).forgotten_key.unlink()


def _table(world: World) -> None:
  world.root.mkdir()
  commands.make_table(world)


def _request(
  name: str,
  make: Callable[[], Request],
  before: Sequence[Callable[[], Request]] = (),
  held: frozenset[int] = _ALL,
) -> Scenario:
  """One request, as a command, after others."""
  prepare = _prepared(*before)
  return Scenario(name, prepare, commands.carry_out, lambda _: [make()], held=held)


_SHARED = Scenario(
  "shared store",
  _shared,
  commands.carry_out,
  _unlearn,
  erased=frozenset(_ERASED.tolist()),
  check=commands.check_other,
)
_REPAIR = Scenario(
  "repair",
  _damaged,
  commands.repair,
  _nothing,
  commands.repair_again,
  held=_LEFT,
  sound=False,
)

SCENARIOS = (
  _request("unlearn", lambda: world_lib.unlearn(_GONE)),
  _request("unlearn --defer", lambda: world_lib.unlearn(_GONE, defer=True)),
  _request("learn .npz", lambda: world_lib.learn(NEW_IDS)),
  Scenario("learn store", _with_new_store, commands.carry_out, _learn_from_store),
  _request(
    "relearn",
    lambda: world_lib.learn(NEW_IDS, relearn=True),
    [lambda: world_lib.learn(NEW_IDS[:2]), lambda: world_lib.unlearn(NEW_IDS[:2])],
  ),
  _request(
    "heal",
    lambda: requests_lib.make("heal"),
    [lambda: world_lib.unlearn(_GONE, defer=True)],
    held=_LEFT,
  ),
  _request(
    "compact",
    lambda: requests_lib.make("compact"),
    [lambda: world_lib.learn(NEW_IDS), lambda: world_lib.unlearn(NEW_IDS[:1])],
    held=_ALL | {*NEW_IDS[1:].tolist()},
  ),
  _request(
    "unlearn, two stores",
    lambda: world_lib.unlearn([_GONE[0], NEW_IDS[0]]),
    [lambda: world_lib.learn(NEW_IDS)],
    held=_ALL | {*NEW_IDS.tolist()},
  ),
  Scenario("service", _prepared(), commands.serve, _unlearn),
  Scenario(
    "two in a batch",
    _prepared(),
    commands.queue,
    lambda _: [world_lib.unlearn(_GONE), world_lib.learn(NEW_IDS)],
  ),
  Scenario(
    "rejected",
    _prepared(lambda: world_lib.learn(NEW_IDS[:1])),
    commands.queue,
    lambda _: [world_lib.learn(NEW_IDS)],
    held=_ALL | {int(NEW_IDS[0])},
    rejected=True,
  ),
  _SHARED,
  _SHARED._replace(name="shared, other first", again=commands.open_other_first),
  Scenario(
    "rejected late",
    _shared,
    commands.carry_out,
    _nearly_all,
    erased=frozenset(_ERASED.tolist()),
    rejected=True,
  ),
  Scenario(
    "signed head",
    _signed,
    commands.unlearn_signed,
    _unlearn,
    check=commands.check_head,
  ),
  _REPAIR,
  _REPAIR._replace(name="repair midway", prepare=_damaged_midway),
  _REPAIR._replace(name="repair of the key", prepare=_without_key, sound=True),
  Scenario(
    "verify --full",
    _prepared(lambda: world_lib.unlearn(_GONE)),
    commands.verify,
    _nothing,
    held=_LEFT,
    check=commands.check_certificate,
  ),
  Scenario(
    "fit",
    lambda world: world_lib.make_store(world.store, IDS),
    commands.fit,
    _nothing,
    commands.fit_again,
    sound=False,
  ),
  Scenario(
    "import-encodings",
    _table,
    commands.import_encodings,
    _nothing,
    commands.import_encodings,
    held=frozenset(),
    sound=False,
    check=commands.check_import,
  ),
)
