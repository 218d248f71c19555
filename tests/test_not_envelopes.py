"""What is no envelope or no statement is one line, and no failed check."""

import base64
import json

import pytest
from signing_world import (
  HEAD,
  PREDICATE,
  b64,
  changed,
  opened,
  sealed,
  signed,
  statement,
)

from legonet_jax import errors
from legonet_jax.runs import signing


def loose(text):
  """Base64 text with another last digit that decodes to the same bytes."""
  assert text.endswith("==")
  digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
  return text[:-3] + digits[digits.index(text[-3]) + 1] + "=="


SIG = json.loads(signed())["signatures"][0]["sig"]
DEEP = b"[" * 200_000
NOT_ENVELOPES = {
  "nothing": b"",
  "not JSON": b"not JSON",
  "half of one": signed()[:-20],
  "no UTF-8": b"\xff\xfe\xfd",
  "nested too deeply": DEEP,
  "nested too deeply inside": b'{"payload":' + DEEP,
  "a list": b"[]",
  "text": b'"payload"',
  "null": b"null",
  "a number beyond all digits": b'{"payload": ' + b"9" * 5000 + b"}",
  "an empty object": b"{}",
  "a certificate that nobody signed": json.dumps(PREDICATE).encode(),
  "no payload": changed(payload=None),
  "a payload that is no text": changed(payload=5),
  "a payload in the clear": changed(payload=json.loads(statement())),
  "no base64": changed(payload="{}"),
  "base64 with a line break": changed(payload=b64(statement()) + "\n"),
  "base64 with a space": changed(payload=" " + b64(statement())),
  "base64 cut short": changed(payload="QQ="),
  "base64 without its padding": changed(payload="QQ"),
  "base64 with too much padding": changed(payload="QQ==="),
  "base64 with loose bits": changed(payload="QR=="),
  "both alphabets at once": changed(payload="+-+-"),
  "base64 of other letters": changed(payload="ＱＱ=="),
  "no payload type": changed(payloadType=None),
  "a payload type that is no text": changed(payloadType=["x"]),
  "an empty payload type": changed(payloadType=""),
  "half a character in the payload type": changed(payloadType="a\ud800"),
  "a terminal's escapes in the payload type": changed(payloadType="\x1b[2J"),
  "an endless payload type": changed(payloadType="x" * 100_000),
  "no signatures": changed(signatures=None),
  "an empty list of signatures": changed(signatures=[]),
  "signatures that are no list": changed(signatures={"sig": SIG}),
  "too many signatures": changed(signatures=[{"sig": SIG}] * 33),
  "a signature that is text": changed(signatures=[SIG]),
  "a signature without sig": changed(signatures=[{"keyid": "x"}]),
  "a sig that is no text": changed(signatures=[{"sig": 7}]),
  "a sig in hex": changed(signatures=[{"sig": base64.b64decode(SIG).hex() + "!"}]),
  "a sig with loose bits": changed(signatures=[{"sig": loose(SIG)}]),
  "a keyid that is no text": changed(signatures=[{"keyid": 1, "sig": SIG}]),
  "a bad signature beside a good one": changed(signatures=[{"sig": SIG}, None]),
}
SUBJECT = {"name": "x", "digest": {"sha256": HEAD}}
NOT_STATEMENTS = {
  "nothing": b"",
  "not JSON": b"hello world",
  "not UTF-8": b"\xfb\xff\xbf",
  "nested too deeply": DEEP,
  "a list": b"[]",
  "no type": statement(_type=None),
  "an older version": statement(_type="https://in-toto.io/Statement/v0.1"),
  "a type that is no text": statement(_type={}),
  "no predicate type": statement(predicateType=None),
  "another predicate type": statement(predicateType="https://slsa.dev/provenance/v1"),
  "a predicate type that is no text": statement(predicateType=[]),
  "a type with a terminal's escapes": statement(predicateType="\x1b[2J\n"),
  "a type with half a character": statement(predicateType="\ud800"),
  "a predicate that is a list": statement(predicate=[]),
  "no subject": statement(subject=None),
  "an empty list of subjects": statement(subject=[]),
  "two subjects": statement(subject=[SUBJECT, SUBJECT]),
  "a subject that is no list": statement(subject=SUBJECT),
  "a subject that is text": statement(subject=["x"]),
  "a subject without a name": statement(subject=[{"digest": SUBJECT["digest"]}]),
  "an empty name": statement(subject=[{**SUBJECT, "name": ""}]),
  "a name of two lines": statement(subject=[{**SUBJECT, "name": "a\nb"}]),
  "a name that is no text": statement(subject=[{**SUBJECT, "name": 1}]),
  "no digest": statement(subject=[{"name": "x"}]),
  "a digest that is text": statement(subject=[{"name": "x", "digest": HEAD}]),
  "another digest": statement(subject=[{"name": "x", "digest": {"md5": HEAD}}]),
  "a short digest": statement(subject=[{"name": "x", "digest": {"sha256": HEAD[1:]}}]),
  "a digest in capitals": statement(
    subject=[{"name": "x", "digest": {"sha256": HEAD.upper()}}]
  ),
  "a digest with a line break": statement(
    subject=[{"name": "x", "digest": {"sha256": HEAD + "\n"}}]
  ),
}


def check_unreadable(data):
  with pytest.raises(errors.RunError) as caught:
    opened(data)
  assert not isinstance(caught.value, signing.SignatureError)
  message = str(caught.value)
  assert message.isprintable()
  assert message.startswith("the envelope is not a signed statement")
  assert len(message) < 500


@pytest.mark.parametrize("name", NOT_ENVELOPES)
def test_what_is_no_envelope_is_one_line_and_no_failed_check(name):
  check_unreadable(NOT_ENVELOPES[name])


@pytest.mark.parametrize("name", NOT_STATEMENTS)
def test_what_is_signed_but_no_statement_is_one_line_and_no_failed_check(name):
  check_unreadable(sealed(NOT_STATEMENTS[name]))


@pytest.mark.parametrize("kind", ["text/plain", "application/vnd.exämple+json"])
def test_what_is_signed_as_another_type_is_one_line_and_no_failed_check(kind):
  check_unreadable(sealed(statement(), kind=kind))


def test_an_envelope_beyond_the_limits_is_refused(monkeypatch):
  data = signed()
  with monkeypatch.context() as patch:
    patch.setattr(signing, "_MAX_ENVELOPE", len(data) - 1)
    check_unreadable(data)
    assert not signing.is_envelope(data)
  monkeypatch.setattr(signing, "_MAX_PAYLOAD", 100)
  check_unreadable(data)
  with pytest.raises(errors.RunError, match="over 100 bytes"):
    signed()


def test_an_envelope_is_told_from_a_plain_certificate():
  assert signing.is_envelope(signed())
  assert signing.is_envelope(changed(payload="no base64"))
  plain = [b"", b"{}", b"[]", b"\xff", DEEP, json.dumps(PREDICATE).encode()]
  assert not any(signing.is_envelope(data) for data in plain)
