"""The queue: one file per request, whole and durable before any work on it begins.

    requests/<number>-<random>.npz    kind, ids, salt, and for `learn` the rows to learn

Any process may add a request, also while another one works on the run. The process that
holds the run's lock takes requests in the order of their numbers, which count up and do
not depend on a clock. Only request files contain the ids of samples to forget. Only its
maker can read a request file, and it is shredded once its samples are forgotten.
"""

import io
import json
import os
import pathlib
import re
import secrets
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from legonet_jax import errors
from legonet_jax.core import samples as samples_lib
from legonet_jax.core.ids import Ids
from legonet_jax.io import durable, lock, untrusted
from legonet_jax.runs import journal
from legonet_jax.runs.layout import Layout

Kind = Literal["unlearn", "learn", "heal", "compact"]
KINDS = ("unlearn", "learn", "heal", "compact")
_SUFFIX = ".npz"
_NAME = re.compile(r"[0-9]{20}-[0-9a-f]{16}")
_LOCK_SECONDS = 60.0


class Request(NamedTuple):
  """A request to a run.

  Attributes:
    kind: `unlearn`, `learn`, `heal` or `compact`.
    ids: [m] int64, which samples.
    salt: random bytes for the journal's hashes of these ids.
    defer: whether to mask adapters now and train them at the next `heal`.
    defer_over: defers if more than this many adapters would have to be trained (-1: no
      limit).
    relearn: whether `learn` may bring back samples that the run has forgotten.
    store: a store to learn `ids` from, which stays where it is ("": the run's stores).
    encodings: [m, d] rows to learn that are in no store; they are copied into the run.
    labels: [m] their labels.
    source: the path of the file that `encodings` are from, if there is one.
  """

  kind: Kind
  ids: Ids
  salt: bytes
  defer: bool = False
  defer_over: int = -1
  relearn: bool = False
  store: str = ""
  encodings: NDArray[np.floating] | None = None
  labels: NDArray[np.int32] | None = None
  source: str = ""


def make(kind: Kind, ids: ArrayLike | None = None, **rest: Any) -> Request:
  """A request with a salt of its own.

  Args:
    kind: `unlearn`, `learn`, `heal` or `compact`.
    ids: [m] integers, which samples; at least one to `unlearn` or `learn`.
    **rest: other fields of the request.

  Raises:
    ConfigError: if there is no such kind of request.
    EmptyRequestError: if there is no id to `unlearn` or `learn`.
    SampleError: if the ids are not integers.
    DuplicateIdError: if an id occurs twice.
  """
  if kind not in KINDS:
    raise errors.ConfigError(
      f"kind is {errors.brief(kind)}; give one of {', '.join(KINDS)}"
    )
  wanted = samples_lib.check_ids([] if ids is None else ids)
  if kind in ("unlearn", "learn") and not len(wanted):
    raise errors.EmptyRequestError("the request names no sample; give at least one id")
  return Request(kind, wanted, secrets.token_bytes(32), **rest)


def drop(
  layout: Layout, request: Request, entries: list[journal.Entry] | None = None
) -> str:
  """Adds a request to a run's queue, durable when this returns; returns its name.

  Args:
    layout: of the run.
    request: the request.
    entries: the journal, if the caller holds the run's lock; else it is read here.
  """
  head = {
    "kind": request.kind,
    "defer": request.defer,
    "defer_over": request.defer_over,
    "relearn": request.relearn,
    "store": request.store,
    "source": os.path.abspath(request.source) if request.source else "",
  }
  arrays: dict[str, NDArray[Any]] = {
    "head": np.frombuffer(json.dumps(head).encode(), np.uint8),
    "ids": request.ids,
    "salt": np.frombuffer(request.salt, np.uint8),
  }
  if request.encodings is not None and request.labels is not None:
    arrays |= {"encodings": request.encodings, "labels": request.labels}
  buffer = io.BytesIO()
  np.savez(buffer, allow_pickle=False, **arrays)
  durable.make_folder(layout.requests)
  with hold_queue(layout):
    name = f"{_next_number(layout, entries):020d}-{secrets.token_hex(8)}"
    path = layout.requests / f"{name}{_SUFFIX}"
    durable.write(path, buffer.getvalue(), mode=0o600)
  return name


def hold_queue(layout: Layout) -> Any:
  """The lock for adding files to the queue and for removing leftovers."""
  advice = "it adds a request, which takes a moment; try again"
  return lock.hold(layout.root, lock.QUEUE, _LOCK_SECONDS, advice)


def _next_number(layout: Layout, entries: list[journal.Entry] | None) -> int:
  """One more than the highest number of any request so far.

  The queue is listed before the journal is read, so that no request is missed: one that
  is carried out meanwhile is in the journal before its file is removed.
  """
  names = waiting(layout.requests)
  for entry in journal.read(layout.journal) if entries is None else entries:
    names += [entry["request"]] if "request" in entry else []
  numbers = [int(name.partition("-")[0]) for name in names if _NAME.fullmatch(name)]
  return 1 + max(numbers, default=0)


def waiting(folder: pathlib.Path) -> list[str]:
  """Names of the requests in the queue, oldest first."""
  if folder.is_symlink() or not folder.is_dir():
    return []
  found = (p.stem for p in folder.iterdir() if p.suffix == _SUFFIX)
  return sorted(name for name in found if _NAME.fullmatch(name))


def read(folder: pathlib.Path, name: str) -> Request:
  """The request called `name`.

  Raises:
    DamagedRequestError: if its file is damaged or gone.
    PermissionError: if it was made by another user.
  """
  path = folder / f"{name}{_SUFFIX}"
  try:
    arrays = untrusted.read_npz(path, follow=False)
    head = untrusted.parse_json(arrays["head"].tobytes(), name)
    request = Request(
      kind=head["kind"],
      ids=arrays["ids"],
      salt=arrays["salt"].tobytes(),
      defer=bool(head["defer"]),
      defer_over=int(head.get("defer_over", -1)),
      relearn=bool(head.get("relearn", False)),
      store=str(head["store"]),
      encodings=arrays.get("encodings"),
      labels=arrays.get("labels"),
      source=str(head.get("source", "")),
    )
    sound = request.kind in KINDS and request.ids.ndim == 1 and len(request.salt) == 32
    sound = sound and request.ids.dtype == np.int64
    sound = sound and (not request.source or os.path.isabs(request.source))
    sound = sound and (request.encodings is None) == (request.labels is None)
  except (FileNotFoundError, ValueError, KeyError, TypeError, OverflowError):
    sound = False
  if not sound:
    raise errors.DamagedRequestError(
      f"request {path} is damaged or gone; make the request again"
    )
  return request


def remove(folder: pathlib.Path, names: list[str]) -> None:
  """Shreds requests, durable when this returns.

  They are renamed to hidden files first, because a crash must not leave a request that
  is half overwritten. `clean` removes hidden files that a crash has left.
  """
  paths = [folder / f"{name}{_SUFFIX}" for name in names]
  nameless = [folder / f".{path.name}" for path in paths if path.exists()]
  for path in nameless:
    path.with_name(path.name[1:]).rename(path)
  if nameless:
    durable.sync_folder(folder)
  for path in nameless:
    durable.shred(path)
  if nameless:
    durable.sync_folder(folder)


def clean(layout: Layout, settled: set[str]) -> None:
  """Shreds half-written files and settled requests that a killed process has left."""
  if not any(_hidden(layout.requests)) and not settled & {*waiting(layout.requests)}:
    return
  with hold_queue(layout):  # nobody else is writing these files now
    for path in _hidden(layout.requests):
      durable.shred_tree(path)
    remove(layout.requests, sorted(settled & {*waiting(layout.requests)}))


def _hidden(folder: pathlib.Path) -> list[pathlib.Path]:
  if not folder.is_dir():
    return []
  return [path for path in folder.iterdir() if path.name.startswith(".")]


def leftovers(folder: pathlib.Path, settled: set[str]) -> list[pathlib.Path]:
  """Files in the queue's folder that are not unsettled requests."""
  if not folder.is_dir():
    return []
  live = {f"{name}{_SUFFIX}" for name in waiting(folder) if name not in settled}
  return sorted(p for p in folder.iterdir() if p.name not in live)
