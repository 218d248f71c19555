"""Signatures of journal heads and certificates that others' tools can check.

A signature says who vouches for a statement; it does not make the statement true, and
it does not say when it was made. What is signed is an in-toto Statement v1, in a DSSE
envelope, by an Ed25519 key:

    envelope   {"payloadType", "payload": base64 of the statement, "signatures"}
    statement  {"_type", "subject": [{"name", "digest"}], "predicateType", "predicate"}

The subject names the thing that is signed by its sha256, the predicate is what is said
about it. Formats: github.com/secure-systems-lab/dsse, github.com/in-toto/attestation.

Keys are files: the private key is PKCS#8 PEM without a password, readable by its owner
only; the public key is SubjectPublicKeyInfo PEM. `openssl` reads both.

The package `cryptography` is an optional extra, so it is imported only where a key is
used.
"""

import base64
from collections.abc import Iterator, Mapping
import contextlib
import hashlib
import json
import os
import pathlib
import re
import secrets
import shlex
import stat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard
import warnings

from legonet_jax import errors, untrusted
from legonet_jax.runs import durable

if TYPE_CHECKING:
  from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
  )

CERTIFICATE = "https://legonet-jax.github.io/certificate/v1"
JOURNAL_HEAD = "https://legonet-jax.github.io/journal-head/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"

# An Ed25519 key has about 120 bytes; the rest is room to name other kinds of keys.
_MAX_KEY = 16 << 10
# A certificate has about 140 bytes per adapter.
_MAX_PAYLOAD = 64 << 20
_MAX_ENVELOPE = 96 << 20
# Every signature that is tried costs a pass over the payload.
_MAX_SIGNATURES = 32
_MAX_LINE = 1024
_SHA256 = re.compile("[0-9a-f]{64}")


class KeyFileError(errors.LegoError):
  """A key file is missing, of another kind, open to others, or cannot be written."""


class SignatureError(errors.RunError):
  """A readable envelope has no signature of the given key that holds."""


class KeyFiles(NamedTuple):
  """A new pair of keys on disk."""

  private: pathlib.Path
  public: pathlib.Path
  key_id: str


class Statement(NamedTuple):
  """What the holder of a key has signed.

  Attributes:
    subject_name: what it is about, for people.
    subject_sha256: what it is about, as 64 hex digits. A reader compares it with the
      thing at hand: a signature of something else proves nothing about it.
    predicate_type: the URI that says how to read `predicate`.
    predicate: what is said about the subject.
  """

  subject_name: str
  subject_sha256: str
  predicate_type: str
  predicate: dict[str, Any]


class _Signature(NamedTuple):
  key_id: str  # a hint that anybody can change; it decides nothing
  value: bytes


class _Envelope(NamedTuple):
  payload_type: str
  payload: bytes
  signatures: list[_Signature]


def generate(path: pathlib.Path) -> KeyFiles:
  """Writes a new private key to `path` and its public key to `path` + ".pub".

  Nothing is overwritten, and no link is followed. The private key gets its name last
  and when its bytes are on disk, so where it is, the pair is whole. After an error
  neither file is left; a process that is killed may leave files `.keygen-*`, which
  nothing uses: delete them.

  Args:
    path: the private key, in a folder that exists. Only its owner may read it; the
      public key may be read by whom the umask allows.

  Raises:
    ConfigError: if the package `cryptography` is not installed.
    KeyFileError: if one of the files exists or cannot be written.
  """
  with _extra():
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


def load_private(path: pathlib.Path) -> "Ed25519PrivateKey":
  """The private key in a PEM file that nobody but its owner may use.

  Raises:
    ConfigError: if the package `cryptography` is not installed.
    KeyFileError: if the file is missing, holds anything but an Ed25519 private key
      without a password, or is open to other users.
  """
  with _extra():
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
  # cosign encrypts in a format of its own, which only its label tells.
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


def load_public(path: pathlib.Path) -> "Ed25519PublicKey":
  """The public key in a PEM file.

  Raises:
    ConfigError: if the package `cryptography` is not installed.
    KeyFileError: if the file is missing, holds anything but an Ed25519 public key, or a
      key for which everybody can sign.
  """
  with _extra():
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
  with _extra():
    from cryptography.hazmat.primitives import serialization
  der = public.public_bytes(
    serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
  )
  return hashlib.sha256(der).hexdigest()


def pae(payload_type: str, payload: bytes) -> bytes:
  """The bytes that DSSE signs: type and payload, each with its length before it."""
  kind = payload_type.encode()
  return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(
  private: "Ed25519PrivateKey",
  subject_name: str,
  subject_sha256: str,
  predicate_type: str,
  predicate: Mapping[str, Any],
) -> bytes:
  """A signed envelope as JSON text; the same input gives the same bytes.

  Args:
    private: the key.
    subject_name: what the statement is about, for people; one line.
    subject_sha256: sha256 of that, 64 lower-case hex digits.
    predicate_type: `CERTIFICATE` or `JOURNAL_HEAD`.
    predicate: what is said about the subject, in values that JSON has.

  Raises:
    RunError: if `open_envelope` would not take the result.
  """
  statement = {
    "_type": STATEMENT_TYPE,
    "subject": [{"name": subject_name, "digest": {"sha256": subject_sha256}}],
    "predicateType": predicate_type,
    "predicate": dict(predicate),
  }
  name = "what is to be signed"
  try:
    payload = json.dumps(
      statement, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()
  except (TypeError, ValueError, RecursionError) as e:
    raise _unreadable(name, f"it is not JSON ({e})") from None
  _parse_statement(payload, predicate_type, name)
  signature = private.sign(pae(PAYLOAD_TYPE, payload))
  envelope = {
    "payloadType": PAYLOAD_TYPE,
    "payload": base64.b64encode(payload).decode(),
    "signatures": [
      {
        "keyid": key_id(private.public_key()),
        "sig": base64.b64encode(signature).decode(),
      }
    ],
  }
  return (json.dumps(envelope, indent=1, sort_keys=True) + "\n").encode()


def is_envelope(data: bytes) -> bool:
  """Whether a file's bytes are meant as an envelope, sound or not."""
  if len(data) > _MAX_ENVELOPE:
    return False
  try:
    value = untrusted.parse_json(data, "")
  except errors.DataError:
    return False
  return {"payloadType", "payload", "signatures"} <= value.keys()


def open_envelope(
  data: bytes,
  public: "Ed25519PublicKey",
  predicate_type: str,
  name: str = "the envelope",
) -> Statement:
  """The statement in an envelope, after a signature of it was found to hold.

  Nothing of the payload is looked at before. Of several signatures one by this key is
  enough; fields that are not known are passed over, as both formats ask for.

  Args:
    data: the envelope, JSON text.
    public: the signer's key, known from elsewhere and never from the envelope.
    predicate_type: what the statement has to be, `CERTIFICATE` or `JOURNAL_HEAD`.
    name: what to call the envelope in messages, such as its path.

  Raises:
    SignatureError: if no signature by this key holds: the check has failed.
    RunError: if this is no envelope, or a signed one of something else: there was
      nothing to check.
  """
  envelope = _parse_envelope(data, name)
  message = pae(envelope.payload_type, envelope.payload)
  if not any(_holds(public, message, s.value) for s in envelope.signatures):
    mine = key_id(public)
    if any(s.key_id == mine for s in envelope.signatures):
      why = f"the signature of key {mine[:16]} does not hold: it was changed since"
    else:
      why = f"no signature of key {mine[:16]} holds: another key signed it"
    raise SignatureError(f"{name}: {why}; do not trust it, ask the signer")
  if envelope.payload_type != PAYLOAD_TYPE:
    kind = _shown(envelope.payload_type)
    raise _unreadable(name, f"payloadType is {kind}, not {PAYLOAD_TYPE}")
  return _parse_statement(envelope.payload, predicate_type, name)


@contextlib.contextmanager
def _extra() -> Iterator[None]:
  try:
    yield
  except ImportError:
    raise errors.ConfigError(
      "signing needs the extra: pip install 'legonet-jax[sign]'"
    ) from None


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
  """Hides warnings about old kinds of keys, which are refused a line later anyway."""
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    yield


@contextlib.contextmanager
def _staged(folder: pathlib.Path, data: bytes, mode: int) -> Iterator[pathlib.Path]:
  """A file with `data` on disk under a passing name."""
  path = folder / f".keygen-{secrets.token_hex(8)}"
  flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
  handle = os.open(path, flags, mode)
  try:
    with os.fdopen(handle, "wb") as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    yield path
  finally:
    path.unlink(missing_ok=True)


def _name_new(file: pathlib.Path, path: pathlib.Path) -> None:
  """Gives a file a second name; unlike a rename, never one that is taken."""
  try:
    os.link(file, path)
  except FileExistsError:
    raise KeyFileError(
      f"{path} exists, and keys are never overwritten; name another file"
    ) from None


def _read_key(path: pathlib.Path, remedy: str) -> tuple[bytes, int]:
  """A key file's bytes and mode, both of the file that was opened."""
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
  # 8A = 0 if y is 0, 1 or -1, or if the y of 2A is 0. The latter, x² = -y², put into
  # the curve -x² + y² = 1 + d·x²·y² with d = -121665/121666, gives the last factor.
  last = 121666 * (2 * square - 1) - 121665 * square * square
  return y * (square - 1) * last % p == 0


def _holds(public: "Ed25519PublicKey", message: bytes, signature: bytes) -> bool:
  with _extra():
    from cryptography.exceptions import InvalidSignature
  try:
    public.verify(signature, message)
  except InvalidSignature:
    return False
  return True


def _parse_envelope(data: bytes, name: str) -> _Envelope:
  if len(data) > _MAX_ENVELOPE:
    raise _unreadable(name, f"it has {len(data):,} bytes, over {_MAX_ENVELOPE:,}")
  value = _parse_json(data, "it", name)
  kind, entries = value.get("payloadType"), value.get("signatures")
  if not _is_line(kind):
    raise _unreadable(name, "payloadType is not a line of text")
  payload = _decode(value.get("payload"), "payload", name)
  if len(payload) > _MAX_PAYLOAD:
    raise _unreadable(name, f"its payload is over {_MAX_PAYLOAD:,} bytes")
  if not isinstance(entries, list) or not 1 <= len(entries) <= _MAX_SIGNATURES:
    raise _unreadable(name, f"signatures is not a list of 1 to {_MAX_SIGNATURES}")
  signatures = []
  for entry in entries:
    if not isinstance(entry, dict) or not isinstance(entry.get("keyid", ""), str):
      raise _unreadable(name, "a signature is not an object with keyid and sig")
    sig = _decode(entry.get("sig"), "sig", name)
    signatures.append(_Signature(entry.get("keyid", ""), sig))
  return _Envelope(kind, payload, signatures)


def _parse_statement(payload: bytes, predicate_type: str, name: str) -> Statement:
  if len(payload) > _MAX_PAYLOAD:
    raise _unreadable(name, f"its payload is over {_MAX_PAYLOAD:,} bytes")
  value = _parse_json(payload, "its payload", name)
  kind = value.get("_type")
  if kind != STATEMENT_TYPE:
    raise _unreadable(name, f"_type is {_shown(kind)}, not {STATEMENT_TYPE}")
  kind = value.get("predicateType")
  if kind != predicate_type:
    raise _unreadable(name, f"predicateType is {_shown(kind)}, not {predicate_type}")
  predicate = value.get("predicate", {})
  if not isinstance(predicate, dict):
    raise _unreadable(name, "predicate is not an object")
  subjects = value.get("subject")
  if not isinstance(subjects, list) or len(subjects) != 1:
    raise _unreadable(name, "subject is not a list of one")
  subject = subjects[0] if isinstance(subjects[0], dict) else {}
  called, digests = subject.get("name"), subject.get("digest")
  if not _is_line(called):
    raise _unreadable(name, "the subject's name is not a line of text")
  sha256 = digests.get("sha256") if isinstance(digests, dict) else None
  if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
    raise _unreadable(name, "the subject has no sha256 of 64 lower-case hex digits")
  return Statement(called, sha256, predicate_type, predicate)


def _parse_json(text: bytes, part: str, name: str) -> dict[str, Any]:
  try:
    return untrusted.parse_json(text, part)
  except errors.DataError as e:
    raise _unreadable(name, str(e)) from None


def _decode(text: Any, part: str, name: str) -> bytes:
  """The bytes of base64 text in one of the two alphabets, with nothing besides."""
  if isinstance(text, str):
    with contextlib.suppress(ValueError):
      standard = text.replace("-", "+").replace("_", "/")
      data = base64.b64decode(standard, validate=True)
      # Unused bits and mixed alphabets would give one signature many spellings.
      if text.encode() in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
        return data
  raise _unreadable(name, f"{part} is not base64")


def _is_line(value: Any) -> TypeGuard[str]:
  """Whether a value is short text that can be encoded and shown on a terminal."""
  return isinstance(value, str) and 0 < len(value) <= _MAX_LINE and value.isprintable()


def _shown(value: Any) -> str:
  """A value from outside, short and in one line of ASCII."""
  return ascii(value)[:100] if isinstance(value, str | None) else "no text"


def _unreadable(name: str, why: str) -> errors.RunError:
  return errors.RunError(
    f"{name} is not a signed statement that can be read: {why}; ask the signer for the"
    " file as it was written"
  )
