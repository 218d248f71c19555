"""Signed statements about a run: certificates and heads of its journal.

A certificate describes a model; a signature says who vouches for it. A signed head
fixes a history: kept outside the run, it reveals a rollback, because the journal of an
older copy does not have that entry (`verify --since`).
"""

import base64
import pathlib
from typing import Any, NamedTuple

from legonet_jax import errors
from legonet_jax.io import untrusted
from legonet_jax.io.files import PathLike
from legonet_jax.runs import certificate as certificate_lib, journal, key_files, signing
from legonet_jax.runs.certificate import Certificate
from legonet_jax.runs.run import Run
from legonet_jax.runtime.checks import Check

_LIMIT = 96 << 20


class Attested(NamedTuple):
  """The contents of a certificate or signed head, and the checks of its signature.

  Attributes:
    certificate: the certificate, or None if the file is a signed head.
    head: the hash of the journal's last entry when the file was made.
    checks: about the signature; empty if no public key was given.
    signed: whether there is a signature at all.
  """

  certificate: Certificate | None
  head: str
  checks: list[Check]
  signed: bool


def sign_certificate(private: Any, certificate: Certificate) -> bytes:
  """The certificate in a signed envelope, as JSON text."""
  sealed = certificate_lib.sealed(certificate)
  return signing.sign(
    private, "legonet-jax state", sealed["digest"], signing.CERTIFICATE, sealed
  )


def sign_head(private: Any, run: Run, entries: list[journal.Entry]) -> bytes:
  """The head of a run's journal in a signed envelope, as JSON text."""
  last = entries[-1]
  claims = claims_about(run, last)
  return signing.sign(
    private, "legonet-jax journal", last["hash"], signing.JOURNAL_HEAD, claims
  )


def claims_about(run: Run, last: journal.Entry) -> dict[str, Any]:
  """The claims of a signed head about a run whose journal ends in `last`."""
  return {
    "entries": last["seq"] + 1,
    "time": last["time"],
    "digest": run.manifest.digest,
    "samples": len(run.state.ids),
  }


def read(path: PathLike, public: Any | None) -> Attested:
  """A certificate or a signed head from a file.

  Args:
    path: the file.
    public: the signer's key; without it the signature is not checked.

  Raises:
    RunError: if the file is neither.
  """
  path = pathlib.Path(path)
  try:
    data = untrusted.read_bytes(path, limit=_LIMIT)
  except FileNotFoundError:
    raise errors.RunError(f"no file {path}; check the path") from None
  if not signing.is_envelope(data):
    value = certificate_lib.check_seal(untrusted.parse_json(data, str(path)), str(path))
    checks = []
    if public is not None:
      checks = [Check("signature", False, f"{path} is not signed")]
    return Attested(value, str(value.get("journal", "")), checks, False)
  statement, checks = _open(data, public, str(path))
  if statement["predicateType"] == signing.JOURNAL_HEAD:
    head = str(statement["subject"][0]["digest"]["sha256"])
    return Attested(None, head, checks, True)
  value = certificate_lib.check_seal(statement["predicate"], str(path))
  if statement["subject"][0]["digest"]["sha256"] != value.get("digest"):
    raise errors.RunError(f"{path} is about another state than its certificate")
  return Attested(value, str(value.get("journal", "")), checks, True)


def _open(
  data: bytes, public: Any | None, name: str
) -> tuple[dict[str, Any], list[Check]]:
  """The statement in an envelope, and the check of its signature."""
  try:
    payload = base64.b64decode(untrusted.parse_json(data, name)["payload"])
    statement = untrusted.parse_json(payload, name)
    kind = statement["predicateType"]
    sound = kind in (signing.CERTIFICATE, signing.JOURNAL_HEAD)
    sound = sound and isinstance(statement["predicate"], dict)
    sound = sound and isinstance(statement["subject"][0]["digest"]["sha256"], str)
  except (ValueError, KeyError, TypeError, IndexError):
    sound = False
  if not sound:
    raise errors.RunError(f"{name} is not a statement about a run; check the file")
  if public is None:
    return statement, []
  try:
    signing.open_envelope(data, public, kind, name)
  except signing.SignatureError as e:
    return statement, [Check("signature", False, str(e))]
  text = f"signed by key {key_files.key_id(public)[:16]}"
  return statement, [Check("signature", True, text)]


def check_signed_head(
  run_head: pathlib.Path, public: Any, entries: list[journal.Entry]
) -> list[Check]:
  """Whether the run's signed head is the last entry of its journal."""
  if not run_head.exists():
    text = "the run has no signed head; requests make one with --sign-key"
    return [Check("signature", False, text)]
  try:
    found = read(run_head, public)
  except errors.LegoError as e:
    return [Check("signature", False, str(e))]
  if not found.checks[0].passed or not entries:
    return found.checks
  if found.head != entries[-1]["hash"]:
    text = f"{run_head} is about another moment than the journal's last entry"
    return [Check("signature", False, text)]
  return found.checks
