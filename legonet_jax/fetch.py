"""Files from the web: fetched once, resumed if a connection broke, checked by sha256.

A file has its final name only when its hash is right. What has arrived of it so far is
kept beside it as `.part`, and the next attempt asks the server for the rest.
"""

import errno
import hashlib
import http.client
import os
import pathlib
from typing import NamedTuple
import urllib.error
import urllib.request

import tqdm

from legonet_jax import errors

_CHUNK = 1 << 20
# Trying again does not help against these, and the network is not to blame.
_DISK_ERRORS = {
  errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO,
}  # fmt: skip


class Remote(NamedTuple):
  """A file on the web and the hash that it must have."""

  url: str
  sha256: str

  @property
  def filename(self) -> str:
    """The last part of the address."""
    return self.url.rsplit("/", 1)[-1]


def cache_dir() -> pathlib.Path:
  """$LEGONET_CACHE, or legonet-jax in the user's cache folder."""
  if path := os.environ.get("LEGONET_CACHE"):
    return pathlib.Path(path)
  base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
  return pathlib.Path(base) / "legonet-jax"


def sha256_of(path: pathlib.Path) -> str:
  """The sha256 of a file, in hexadecimal."""
  with path.open("rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(
  remote: Remote,
  folder: pathlib.Path,
  *,
  attempts: int = 3,
  timeout: float = 30.0,
  progress: bool = True,
) -> pathlib.Path:
  """The path of `remote` in `folder`, downloaded unless it is there already.

  Raises:
    DownloadError: if the server cannot be reached, or the hash is wrong.
  """
  path = folder / remote.filename
  if path.exists():
    if sha256_of(path) != remote.sha256:
      raise errors.DownloadError(
        f"{path} is damaged or another file (sha256 is not {remote.sha256[:12]}…);"
        " delete it and try again"
      )
    return path
  folder.mkdir(parents=True, exist_ok=True)
  part = path.with_name(path.name + ".part")
  problem = ""
  for _ in range(attempts):
    try:
      _append(remote.url, part, timeout, progress)
      break
    except (urllib.error.URLError, http.client.HTTPException, OSError) as e:
      if isinstance(e, OSError) and e.errno in _DISK_ERRORS:
        raise
      problem = str(getattr(e, "reason", e)) or type(e).__name__
  else:
    raise errors.DownloadError(
      f"cannot download {remote.url} ({problem}); run again to resume, or put the file"
      f" at {path}"
    )
  found = sha256_of(part)
  if found != remote.sha256:
    part.unlink()
    raise errors.DownloadError(
      f"{remote.url} has sha256 {found[:12]}…, not {remote.sha256[:12]}…;"
      " nothing was kept, try again or another network"
    )
  part.replace(path)
  return path


def _append(url: str, part: pathlib.Path, timeout: float, progress: bool) -> None:
  """Fetches what is missing of `url` after the bytes that `part` has."""
  have = part.stat().st_size if part.exists() else 0
  request = urllib.request.Request(url, headers={"User-Agent": "legonet-jax"})
  if have:
    request.add_header("Range", f"bytes={have}-")
  try:
    response = urllib.request.urlopen(request, timeout=timeout)
  except urllib.error.HTTPError as e:
    with e:
      if e.code != 416:
        raise
      # "Range not satisfiable": all bytes are here, or too many. The hash decides.
      size = e.headers.get("Content-Range", "").rpartition("/")[2]
    if size != str(have):
      part.unlink()
      raise
    return
  with response:
    resumed = response.status == 206
    have = have if resumed else 0
    left = response.headers.get("Content-Length")
    total = have + int(left) if left else None
    bar = tqdm.tqdm(
      total=total, initial=have, unit="B", unit_scale=True, desc=part.stem,
      disable=not progress, leave=False,
    )  # fmt: skip
    with bar, part.open("ab" if resumed else "wb") as file:
      while chunk := response.read(_CHUNK):
        file.write(chunk)
        bar.update(len(chunk))
      file.flush()
      os.fsync(file.fileno())
      have = file.tell()
    if total is not None and have < total:
      raise http.client.IncompleteRead(b"", total - have)
