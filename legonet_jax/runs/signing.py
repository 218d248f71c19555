"""Signatures of journal heads and certificates that standard tools can check.

A signature says who vouches for a statement, not that it is true, and not when it was
made. An Ed25519 key signs an in-toto Statement v1 in a DSSE envelope:

    envelope   {"payloadType", "payload": base64 of the statement, "signatures"}
    statement  {"_type", "subject": [{"name", "digest"}], "predicateType", "predicate"}

The subject identifies the signed thing by its sha256; the predicate describes it.
Formats: github.com/secure-systems-lab/dsse, github.com/in-toto/attestation.

Keys are made and read by `key_files`.
"""

import base64
from collections.abc import Mapping
import contextlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from legonet_jax import errors
from legonet_jax.io import hashing, untrusted
from legonet_jax.runs.key_files import key_id, need_cryptography

if TYPE_CHECKING:
  from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
  )

CERTIFICATE = "https://legonet-jax.github.io/certificate/v1"
JOURNAL_HEAD = "https://legonet-jax.github.io/journal-head/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"

# A certificate has about 140 bytes per adapter.
_MAX_PAYLOAD = 64 << 20
_MAX_ENVELOPE = 96 << 20
# Every signature that is tried costs a pass over the payload.
_MAX_SIGNATURES = 32
_MAX_LINE = 1024
_SHA256 = re.compile("[0-9a-f]{64}")


class SignatureError(errors.RunError):
  """No signature in a readable envelope is valid for the given key."""


class Statement(NamedTuple):
  """A signed statement.

  Attributes:
    subject_name: the subject's name, for people.
    subject_sha256: the subject's sha256, 64 hex digits. The reader must compare it with
      the thing at hand: a signature of something else proves nothing about it.
    predicate_type: the URI that says how to read `predicate`.
    predicate: the claims about the subject.
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
    subject_name: the subject's name, for people; one line.
    subject_sha256: the subject's sha256, 64 lower-case hex digits.
    predicate_type: `CERTIFICATE` or `JOURNAL_HEAD`.
    predicate: the claims about the subject, as JSON values.

  Raises:
    RunError: if `open_envelope` would not accept the result.
  """
  statement = {
    "_type": STATEMENT_TYPE,
    "subject": [{"name": subject_name, "digest": {"sha256": subject_sha256}}],
    "predicateType": predicate_type,
    "predicate": dict(predicate),
  }
  name = "what is to be signed"
  try:
    payload = payload_of(statement)
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
  return hashing.to_text(envelope)


def payload_of(statement: Mapping[str, Any]) -> bytes:
  """The bytes of a statement, as they are signed."""
  return json.dumps(
    statement, sort_keys=True, separators=(",", ":"), allow_nan=False
  ).encode()


def is_envelope(data: bytes) -> bool:
  """Whether a file looks like an envelope; it may still be damaged."""
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
  """The statement in an envelope, after checking its signature.

  The payload is not parsed before that. One valid signature by this key is enough;
  unknown fields are ignored, as both formats require.

  Args:
    data: the envelope, JSON text.
    public: the signer's key, known from elsewhere and never from the envelope.
    predicate_type: the required type, `CERTIFICATE` or `JOURNAL_HEAD`.
    name: the envelope's name in messages, such as its path.

  Raises:
    SignatureError: if no signature by this key is valid: the check has failed.
    RunError: if this is not an envelope, or is signed but has another type: there was
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


def _holds(public: "Ed25519PublicKey", message: bytes, signature: bytes) -> bool:
  with need_cryptography():
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
  """The bytes of base64 text, which must be strict and in one alphabet only."""
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
  """An untrusted value as a short line of ASCII."""
  return ascii(value)[:100] if isinstance(value, str | None) else "no text"


def _unreadable(name: str, why: str) -> errors.RunError:
  return errors.RunError(
    f"{name} is not a signed statement that can be read: {why}; ask the signer for the"
    " file as it was written"
  )
