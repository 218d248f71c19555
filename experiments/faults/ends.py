"""What became of the requests: none lost, none done twice, none that nobody made."""

from collections.abc import Sequence
from typing import NamedTuple

from experiments.faults.scenarios import Scenario
from experiments.faults.world import World
from legonet_jax.runs import journal
from legonet_jax.runs.layout import Layout
from legonet_jax.runs.requests import Request


class Asked(NamedTuple):
  """A request that somebody began to make; its name if it was acknowledged, else ""."""

  request: Request
  name: str


class _End(NamedTuple):
  """What the journal says of a request: its names, and how often it ended in what."""

  names: set[str]
  completed: int
  rejected: int


def judge_requests(
  scenario: Scenario, world: World, asked: Sequence[Asked]
) -> list[str]:
  """Complaints about the requests since the world was noted."""
  problems = []
  entries = _new_entries(world)
  known = _pending(world)
  ended = [n for e in entries for n in e.get("requests", ()) if n in known]
  if sorted(ended) != sorted(known):
    problems.append(f"{len(known)} requests waited, {len(ended)} were completed")
  for one in asked:
    end, what = _end_of(entries, one.request), one.request.kind
    known |= end.names
    times = end.completed + end.rejected
    if one.name and one.name not in end.names:
      problems.append(f"an acknowledged {what} is not in the journal")
    elif end.names and not times:
      problems.append(f"an accepted {what} is not complete")
    if times > 1 or len(end.names) > 1:
      problems.append(f"a {what} was done {times} times")
    if end.completed if scenario.rejected else end.rejected:
      problems.append(f"a {what} has come to a wrong end")
  for entry in entries:
    names = {*entry.get("requests", ()), entry.get("request", "")} - {""}
    if names - known:
      problems.append(f"the journal has a request that nobody made: {entry['event']}")
  return problems


def find_done(world: World, asked: Sequence[Asked]) -> list[Request]:
  """The requests that have ended, as they should or not."""
  entries = _new_entries(world)
  ends = [(one.request, _end_of(entries, one.request)) for one in asked]
  return [request for request, end in ends if end.completed or end.rejected]


def find_missing(
  scenario: Scenario, world: World, done: Sequence[Request]
) -> list[Request]:
  """What the command of a scenario asks for and is not done."""
  there = {(r.kind, tuple(r.ids.tolist())) for r in done}
  wanted = scenario.requests(world)
  return [r for r in wanted if (r.kind, tuple(r.ids.tolist())) not in there]


def held_after(scenario: Scenario, done: Sequence[Request]) -> frozenset[int]:
  """The samples that the run must hold when these requests are done."""
  held = set(scenario.held)
  if scenario.rejected or not done:
    return frozenset(held)
  for request in done:
    named = set(request.ids.tolist())
    held = held | named if request.kind == "learn" else held - named
  return frozenset(held - scenario.erased)


def _new_entries(world: World) -> list[journal.Entry]:
  """What the journal has since the world was noted."""
  return journal.read(Layout(world.run).journal)[len(_old_entries(world)) :]


def _old_entries(world: World) -> list[journal.Entry]:
  file = Layout(world.kept / world.run.name).journal
  return journal.read(file) if file.exists() else []


def _pending(world: World) -> set[str]:
  """Requests that were accepted and not settled when the world was noted."""
  accepted, settled = journal.of_requests(_old_entries(world))
  return {*accepted} - settled


def _end_of(entries: Sequence[journal.Entry], request: Request) -> _End:
  hashes = journal.salted(request.salt, request.ids)
  about = [
    e
    for e in entries
    if e["event"] in ("accepted", "rejected")
    and e["kind"] == request.kind
    and e["ids"] == hashes
  ]
  names = {e["request"] for e in about}
  completed = [n for e in entries for n in e.get("requests", ()) if n in names]
  rejected = [e for e in entries if e["event"] == "rejected" and e["request"] in names]
  return _End(names, len(completed), len(rejected))
