"""Keys for signing, as files.

The private key is PKCS#8 PEM without a password, readable by its owner only; the public
key is SubjectPublicKeyInfo PEM. `openssl` reads both. Only Ed25519 keys are accepted.

The package `cryptography` is an optional extra, so it is imported only where a key is
used.
"""

from collections.abc import Iterator
import contextlib
import hashlib
import os
import pathlib
import secrets
import shlex
import stat
from typing import TYPE_CHECKING, NamedTuple
import warnings

from legonet_jax import errors
from legonet_jax.io import durable, files, untrusted
from legonet_jax.io.files import PathLike

if TYPE_CHECKING:
  from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
  )

# An Ed25519 key has about 120 bytes; the rest is room to name other kinds of keys.
_MAX_KEY = 16 << 10


class KeyFileError(errors.LegoError):
  """A key file is missing, of another kind, open to others, or cannot be written."""


class KeyFiles(NamedTuple):
  """A new pair of keys on disk."""

  private: pathlib.Path
  public: pathlib.Path
  key_id: str


def generate(path: PathLike) -> KeyFiles:
  """Writes a new private key to `path` and its public key to `path` + ".pub".

  Nothing is overwritten, and no link is followed. The private key gets its name last,
  after its bytes are on disk: if it exists, so does the public key. After an error
  neither file is left. A killed process may leave files `.keygen-*`, which nothing
  uses: delete them.

  Args:
    path: the private key, in a folder that exists. Only its owner may read it; the
      umask decides who may read the public key.

  Raises:
    ConfigError: if the package `cryptography` is not installed.
    KeyFileError: if one of the files exists or cannot be written.
  """
  path = pathlib.Path(path)
  with need_cryptography():
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
  private = Ed25519PrivateKey.generate()
  public = private.public_key()
  private_pem = private.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
  )
  public_pem = public.public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
  )
  try:
    if path.is_dir():
      raise KeyFileError(f"{path} is a folder; name a new file in it")
    folder, public_path = path.parent, path.with_name(f"{path.name}.pub")
    if not folder.is_dir():
      raise KeyFileError(f"no folder {folder}; make it first")
    with contextlib.ExitStack() as undo:
      with (
        _staged(folder, private_pem, 0o600) as private_file,
        _staged(folder, public_pem, 0o644) as public_file,
      ):
        _name_new(public_file, public_path)
        undo.callback(public_path.unlink, missing_ok=True)
        _name_new(private_file, path)
        undo.callback(path.unlink, missing_ok=True)
      durable.sync_folder(folder)
      undo.pop_all()
  except OSError as e:
    raise KeyFileError(
      f"{path} and its .pub cannot be written ({e.strerror}); mend that, or name a file"
      " in another folder"
    ) from None
  return KeyFiles(path, public_path, key_id(public))


def load_private(path: PathLike) -> "Ed25519PrivateKey":
  """The private key in a PEM file that nobody but its owner may use.

  Raises:
    ConfigError: if the package `cryptography` is not installed.
    KeyFileError: if the file is missing, holds anything but an Ed25519 private key
      without a password, or is open to other users.
  """
  path = pathlib.Path(path)
  with need_cryptography():
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
  data, mode = _read_key(path, "make one with `legonet keygen`")
  if b"PUBLIC KEY-----" in data and b"PRIVATE KEY-----" not in data:
    raise KeyFileError(
      f"{path} is a public key, which cannot sign; give the private key, usually the"
      " same name without .pub"
    )
  locked = KeyFileError(
    f"{path} has a password, which cannot be asked for here; give a key without one"
    " (`legonet keygen` makes one)"
  )
  # cosign has its own encrypted format, recognisable only by its label.
  if b"-----BEGIN ENCRYPTED " in data:
    raise locked
  try:
    with _no_warnings():
      key = load_pem_private_key(data, None)
  except TypeError:
    raise locked from None
  except (ValueError, UnsupportedAlgorithm):
    raise KeyFileError(
      f"{path} is not an Ed25519 private key in PEM; make one with `legonet keygen`"
    ) from None
  if not isinstance(key, Ed25519PrivateKey):
    raise KeyFileError(
      f"{path} is a key of another kind; give an Ed25519 key (`legonet keygen` makes"
      " one)"
    )
  if mode & (stat.S_IRWXG | stat.S_IRWXO):
    raise KeyFileError(
      f"{path} is a private key that other users may use; run: chmod 600"
      f" {shlex.quote(str(path))}"
    )
  return key


def load_public(path: PathLike) -> "Ed25519PublicKey":
  """The public key in a PEM file.

  Raises:
    ConfigError: if the package `cryptography` is not installed.
    KeyFileError: if the file is missing, holds anything but an Ed25519 public key, or
      holds a degenerate key, for which everybody can sign.
  """
  path = pathlib.Path(path)
  with need_cryptography():
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
  data, _ = _read_key(path, "check the path")
  if b"PRIVATE KEY-----" in data:
    raise KeyFileError(
      f"{path} is a private key, which only its owner should have; give the public"
      f" key, usually {path.name}.pub"
    )
  try:
    with _no_warnings():
      key = load_pem_public_key(data)
  except (ValueError, UnsupportedAlgorithm):
    raise KeyFileError(
      f"{path} is not an Ed25519 public key in PEM; give the .pub file that `legonet"
      " keygen` wrote"
    ) from None
  if not isinstance(key, Ed25519PublicKey):
    raise KeyFileError(f"{path} is a key of another kind; give an Ed25519 key")
  if _is_degenerate(key.public_bytes_raw()):
    raise KeyFileError(
      f"{path} is a key for which everybody can sign; ask the signer for a real one"
    )
  return key


def key_id(public: "Ed25519PublicKey") -> str:
  """The name of a key: sha256 of its SubjectPublicKeyInfo in DER, in hex."""
  with need_cryptography():
    from cryptography.hazmat.primitives import serialization
  der = public.public_bytes(
    serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
  )
  return hashlib.sha256(der).hexdigest()


@contextlib.contextmanager
def need_cryptography() -> Iterator[None]:
  """Turns a failed import into an error that says how to install the extra."""
  try:
    yield
  except ImportError:
    raise errors.ConfigError(
      "signing needs the extra: pip install 'legonet-jax[sign]'"
    ) from None


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
  """Hides warnings about old kinds of keys, which the caller refuses anyway."""
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    yield


@contextlib.contextmanager
def _staged(folder: pathlib.Path, data: bytes, mode: int) -> Iterator[pathlib.Path]:
  """Writes `data` durably to a file with a temporary name; removes it at the end."""
  path = folder / f".keygen-{secrets.token_hex(8)}"
  flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
  handle = os.open(path, flags, mode)
  try:
    with os.fdopen(handle, "wb") as file:
      file.write(data)
      file.flush()
      files.flush(file.fileno())
    yield path
  finally:
    path.unlink(missing_ok=True)


def _name_new(file: pathlib.Path, path: pathlib.Path) -> None:
  """Gives a file a second name; unlike a rename, it never replaces a file."""
  try:
    os.link(file, path)
  except FileExistsError:
    raise KeyFileError(
      f"{path} exists, and keys are never overwritten; name another file"
    ) from None


def _read_key(path: pathlib.Path, remedy: str) -> tuple[bytes, int]:
  """A key file's bytes and mode, both read from the same opened file."""
  try:
    with untrusted.open_plain(path) as file:
      mode = os.fstat(file.fileno()).st_mode
      data = file.read(_MAX_KEY + 1)
  except FileNotFoundError:
    raise KeyFileError(f"no key file {path}; {remedy}") from None
  except OSError as e:
    raise KeyFileError(f"{path} cannot be read ({e.strerror}); {remedy}") from None
  except errors.DataError as e:
    raise KeyFileError(str(e)) from None
  if len(data) > _MAX_KEY:
    raise KeyFileError(f"{path} is too long for a key; {remedy}")
  return data, mode


def _is_degenerate(raw: bytes) -> bool:
  """Whether a point A of the curve has 8A = 0.

  A signature holds if S·B = R + h·A. With such an A, h·A has eight values at most, so
  S = 0 and a few tries of R make a signature of anything. A signer who publishes such a
  key could later say that somebody else has signed. OpenSSL lets it pass.
  """
  p = 2**255 - 19
  y = int.from_bytes(raw, "little") % 2**255 % p
  square = y * y
  # 8A = 0 if y is 0, 1 or -1, or if the y of 2A is 0. The latter means x² = -y²; put
  # into the curve -x² + y² = 1 + d·x²·y², d = -121665/121666, it gives the last factor.
  last = 121666 * (2 * square - 1) - 121665 * square * square
  return y * (square - 1) * last % p == 0
