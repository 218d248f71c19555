"""What a run tells about an id, to somebody who has its key or the salt of a request.

The journal names nobody. Two secrets open it, each in its own way:

    forgotten.key   of the run's owner: every mark of a forgotten id, so also the entry
                    that says that its request is complete
    a salt          of a request's maker: which ids this one request names

So a salt that was lost need not be kept anywhere: once its request is complete, the key
answers for it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from legonet_jax import errors
from legonet_jax.core.ids import Ids
from legonet_jax.runs import journal, tombstones
from legonet_jax.runs.journal import Entry
from legonet_jax.runs.run import Run

HELD, FORGOTTEN = "held", "forgotten"
NEVER, UNKNOWN = "never held", "not known"


class Found(NamedTuple):
  """The answer for one id.

  Attributes:
    id: the id.
    status: whether the model holds it now, has forgotten it, or never held it; not
      known if that would take a key that is lost or not ours.
    requests: with a salt, the requests that name the id, otherwise those that were
      carried out when it was forgotten (several, if they were merged).
    entries: the numbers of the journal's entries about these requests.
  """

  id: int
  status: str
  requests: list[str]
  entries: list[int]


def by_key(run: Run, entries: Sequence[Entry], ids: Ids) -> list[Found]:
  """Answers for each of `ids` [m] by the run's key.

  Raises:
    RunError: if the key is missing, damaged or not ours to read.
  """
  key = _key(run, entries)
  statuses = _statuses(run, entries, ids, key)
  ends = tombstones.find_entries(key, entries, ids)
  accepted, _ = journal.of_requests(entries)
  found = []
  for i, status, entry in zip(ids.tolist(), statuses, ends, strict=True):
    if status != FORGOTTEN or entry is None:
      found.append(Found(i, status, [], []))
      continue
    names = entry["requests"]
    unlearns = [n for n in names if n in accepted and accepted[n]["kind"] == "unlearn"]
    found.append(Found(i, status, unlearns or names, [entry["seq"]]))
  return found


def by_salt(run: Run, entries: Sequence[Entry], ids: Ids, salt: bytes) -> list[Found]:
  """Answers for each of `ids` [m] by the salt of a request.

  The key answers for ids that the request does not name, if we may read it.

  Raises:
    UnknownIdError: if no request names one of the ids with this salt.
  """
  try:
    key = _key(run, entries)
  except errors.RunError:
    key = None
  statuses = _statuses(run, entries, ids, key)
  accepted, settled = journal.of_requests(entries)
  found = []
  for at, status in enumerate(statuses):
    [hashed] = journal.salted(salt, ids[at : at + 1])
    named = [e["request"] for e in entries if hashed in e.get("ids", ())]
    names = list(dict.fromkeys(named))
    done = [n for n in names if n in settled and n in accepted]
    if status == UNKNOWN and any(accepted[n]["kind"] == "unlearn" for n in done):
      status = FORGOTTEN
    numbers = [e["seq"] for e in entries if _is_about(e, names)]
    found.append(Found(int(ids[at]), status, names, numbers))
  if not any(one.requests for one in found):
    raise errors.UnknownIdError(
      "no request of the journal names these ids and salt; `legonet status RUN --salts`"
      " prints the salts of waiting requests, and for complete ones the owner of the"
      " run's key needs no salt: leave out --salt"
    )
  return found


def _is_about(entry: Entry, names: Sequence[str]) -> bool:
  """Whether an entry is about one of these requests."""
  return not {entry.get("request"), *entry.get("requests", ())}.isdisjoint(names)


def _key(run: Run, entries: Sequence[Entry]) -> bytes:
  """The run's key, if it is ours to read."""
  path = run.layout.forgotten_key
  try:
    return tombstones.current_key(path, entries)
  except PermissionError:
    raise errors.RunError(
      f"{path} can be read by the run's owner only; give the --salt of the request that"
      " names these ids"
    ) from None


def _statuses(
  run: Run, entries: Sequence[Entry], ids: Ids, key: bytes | None
) -> list[str]:
  """Whether the run holds, has forgotten or never held each of `ids` [m]."""
  held = set(run.state.ids.tolist())
  forgotten: set[int] = set()
  if key is not None:
    more = run.manifest.report.get("forgotten", ())
    marks = tombstones.all_marks(entries, more)
    forgotten.update(ids[tombstones.find_marked(key, marks, ids)].tolist())
  whole = key is not None and tombstones.marks_all(key, entries)
  rest = NEVER if whole else UNKNOWN
  return [
    HELD if i in held else FORGOTTEN if i in forgotten else rest for i in ids.tolist()
  ]
