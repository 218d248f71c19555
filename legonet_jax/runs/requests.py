"""Requests that wait: one file each, whole and durable before anything happens.

    requests/<time>-<random>.npz    kind, ids, salt, and for `learn` the rows to learn

Any process may drop a request, also while another one works on the run; the one that
holds the run's lock takes them in the order of their names. A request file is the only
place where ids of samples to forget are written down, and it is shredded when they are
forgotten.
"""

import io
import json
import pathlib
import secrets
import time
from typing import Any, Literal, NamedTuple
import zipfile
import zlib

import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.ids import Ids
from legonet_jax.runs import durable, lock

Kind = Literal["unlearn", "learn", "heal", "compact"]
_SUFFIX = ".npz"


class Request(NamedTuple):
  """What is to be done.

  Attributes:
    kind: which request.
    ids: [m] int64, which samples.
    salt: random bytes for the journal's hashes of these ids.
    defer: mask now, train at the next `heal`.
    store: a store to learn `ids` from, kept where it is ("": the run's own).
    encodings: [m, d] rows to learn that are in no store; they are copied into the run.
    labels: [m] their labels.
  """

  kind: Kind
  ids: Ids
  salt: bytes
  defer: bool = False
  store: str = ""
  encodings: NDArray[np.floating] | None = None
  labels: NDArray[np.int32] | None = None


def make(kind: Kind, ids: Ids | None = None, **rest: Any) -> Request:
  """A request with a salt of its own."""
  wanted = np.zeros(0, np.int64) if ids is None else ids
  return Request(kind, wanted, secrets.token_bytes(32), **rest)


def drop(folder: pathlib.Path, request: Request) -> str:
  """Leaves a request in the queue, durable when this returns; its name."""
  name = f"{time.time_ns():020d}-{secrets.token_hex(8)}"
  head = {"kind": request.kind, "defer": request.defer, "store": request.store}
  arrays: dict[str, NDArray[Any]] = {
    "head": np.frombuffer(json.dumps(head).encode(), np.uint8),
    "ids": request.ids,
    "salt": np.frombuffer(request.salt, np.uint8),
  }
  if request.encodings is not None and request.labels is not None:
    arrays |= {"encodings": request.encodings, "labels": request.labels}
  buffer = io.BytesIO()
  np.savez(buffer, allow_pickle=False, **arrays)
  durable.make_folder(folder)
  with lock.folder(folder):  # so that `clean` cannot take it for a leftover
    durable.write(folder / f"{name}{_SUFFIX}", buffer.getvalue())
  return name


def waiting(folder: pathlib.Path) -> list[str]:
  """Names of the requests in the queue, oldest first."""
  if not folder.is_dir():
    return []
  found = (p for p in folder.iterdir() if p.suffix == _SUFFIX and p.name[0] != ".")
  return sorted(p.stem for p in found)


def read(folder: pathlib.Path, name: str) -> Request:
  """A request of the queue."""
  path = folder / f"{name}{_SUFFIX}"
  try:
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
      arrays = {key: file[key] for key in file.files}
    head = json.loads(arrays["head"].tobytes())
    return Request(
      kind=head["kind"],
      ids=arrays["ids"].astype(np.int64),
      salt=arrays["salt"].tobytes(),
      defer=bool(head["defer"]),
      store=str(head["store"]),
      encodings=arrays.get("encodings"),
      labels=arrays.get("labels"),
    )
  except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as e:
    raise errors.RunError(
      f"request {path} is damaged ({e}); restore it from a copy, or delete it and make"
      " the request again"
    ) from None


def remove(folder: pathlib.Path, names: list[str]) -> None:
  """Shreds requests, durable when this returns.

  They lose their names first: a crash must not leave a request that is half zeros. What
  is left without a name is for `clean`.
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


def clean(folder: pathlib.Path) -> None:
  """Shreds what a process that died has left half-written."""
  if not folder.is_dir():
    return
  with lock.folder(folder):
    for path in folder.iterdir():
      if path.name.startswith("."):
        durable.shred(path)


def leftovers(folder: pathlib.Path) -> list[pathlib.Path]:
  """Files that are no requests (any more)."""
  if not folder.is_dir():
    return []
  return sorted(p for p in folder.iterdir() if p.stem not in waiting(folder))
