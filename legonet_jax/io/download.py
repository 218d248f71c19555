"""Files from the web: fetched once, resumed if a connection broke, checked by sha256.

A file gets its final name only when its hash is right. Until then, the bytes that have
arrived are kept beside it as `.part`, and the next attempt asks the server for the
rest. A server counts as hostile until the hash is checked: it cannot fill the disk, and
no link in the cache can redirect its bytes.
"""

import errno
import http.client
import os
import pathlib
import stat
from typing import BinaryIO, NamedTuple, NoReturn
import urllib.error
import urllib.request

import tqdm

from legonet_jax import errors
from legonet_jax.io import files, untrusted

_CHUNK = 1 << 20
MAX_BYTES = 1 << 30  # six times the largest file that is fetched
# Errors of the disk, not of the network: trying again does not help.
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
  if base := os.environ.get("XDG_CACHE_HOME"):
    return pathlib.Path(base) / "legonet-jax"
  try:
    return pathlib.Path.home() / ".cache" / "legonet-jax"
  except RuntimeError:  # the system does not know the user, as in some containers
    raise errors.DownloadError(
      "this user has no home folder for the cache; name one in LEGONET_CACHE"
    ) from None


def sha256_of(path: pathlib.Path) -> str:
  """The sha256 of a regular file, in hexadecimal."""
  return untrusted.sha256_of(path, follow=True)


def fetch(
  remote: Remote,
  folder: pathlib.Path,
  *,
  attempts: int = 3,
  timeout: float = 30.0,
  progress: bool = True,
) -> pathlib.Path:
  """The path of `remote` in `folder`; downloads it if it is not there yet.

  Raises:
    DownloadError: if the server cannot be reached, or the hash is wrong.
  """
  path = folder / remote.filename
  if path.exists():
    if not path.is_file() or sha256_of(path) != remote.sha256:
      raise errors.DownloadError(
        f"{path} is damaged or a different file (sha256 is not {remote.sha256[:12]}…);"
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
  """Fetches the bytes of `url` that `part` still lacks."""
  have = _size_of(part)
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
    total = None if response.length is None else have + response.length
    if total is not None and total > MAX_BYTES:
      _refuse(url, part)
    bar = tqdm.tqdm(
      total=total, initial=have, unit="B", unit_scale=True, desc=part.stem,
      disable=not progress, leave=False,
    )  # fmt: skip
    with bar, _open_part(part, resumed) as file:
      while chunk := response.read(_CHUNK):
        have += len(chunk)
        if have > MAX_BYTES:  # the server did not announce the size
          _refuse(url, part)
        file.write(chunk)
        bar.update(len(chunk))
      file.flush()
      files.flush(file.fileno())
    if total is not None and have < total:
      raise http.client.IncompleteRead(b"", total - have)


def _size_of(part: pathlib.Path) -> int:
  """How many bytes have arrived; deletes a part that grew too large."""
  try:
    found = part.lstat()
  except FileNotFoundError:
    return 0
  if not stat.S_ISREG(found.st_mode):
    raise errors.DownloadError(f"{part} is not a regular file; delete it and try again")
  if found.st_size > MAX_BYTES:
    part.unlink()
    return 0
  return found.st_size


def _open_part(part: pathlib.Path, resumed: bool) -> BinaryIO:
  """Opens a part for writing, never through a link."""
  flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
  flags |= os.O_APPEND if resumed else os.O_TRUNC
  return os.fdopen(os.open(part, flags, 0o666), "wb")


def _refuse(url: str, part: pathlib.Path) -> NoReturn:
  part.unlink(missing_ok=True)
  raise errors.DownloadError(
    f"{url} sends more than {MAX_BYTES:,} bytes, so it is not the file; nothing was"
    " kept, try another network"
  )
