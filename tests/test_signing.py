"""Signed statements: known answers, and what was signed can be read again."""

import base64
import hashlib
import json

from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given, settings, strategies as st
import pytest
from signing_world import (
  HEAD,
  KEY,
  PREDICATE,
  RFC_8032,
  RFC_8410_PRIVATE,
  RFC_8410_PUBLIC,
  b64,
  json_values,
  opened,
  sealed,
  signed,
  statement,
)

from legonet_jax import errors
from legonet_jax.runs import key_files, signing


def test_the_signed_bytes_are_those_of_the_dsse_specification():
  expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
  assert signing.pae("http://example.com/HelloWorld", b"hello world") == expected
  assert signing.pae("", b"") == b"DSSEv1 0  0 "


def test_lengths_in_the_signed_bytes_count_bytes_and_not_characters():
  assert signing.pae("ä", "ö!".encode()) == "DSSEv1 2 ä 3 ö!".encode()


@pytest.mark.parametrize("case", RFC_8032)
def test_keys_and_signatures_are_those_of_rfc_8032(case):
  seed, public, message, signature = (bytes.fromhex(part) for part in case)
  key = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
  assert key.public_key().public_bytes_raw() == public
  assert key.sign(message) == signature


def test_a_dsse_signature_is_the_one_that_the_dsse_test_vectors_have():
  # secure-systems-lab/dsse, testvectors, "single-signature"; key A is RFC 8032 test 1.
  payload = b'{"_type":"https://in-toto.io/Statement/v1"}'
  signature = KEY.sign(signing.pae("application/vnd.in-toto+json", payload))
  assert b64(signature) == (
    "2WAfaHm5jluo0w+0rk8uVkluELJYWjSmU9x7EUzx+AyteDGJ4/nqyJXfmAUVFIAoQafWm7AxBZNw5M9ixN"
    "HiCA=="
  )


def test_key_files_are_those_of_rfc_8410(tmp_path):
  private, public = tmp_path / "key", tmp_path / "key.pub"
  private.write_bytes(RFC_8410_PRIVATE)
  private.chmod(0o600)
  public.write_bytes(RFC_8410_PUBLIC)
  key = key_files.load_private(private).public_key()
  assert key_files.key_id(key) == key_files.key_id(key_files.load_public(public))
  der = base64.b64decode(RFC_8410_PUBLIC.split(b"\n")[1])
  assert key_files.key_id(key) == hashlib.sha256(der).hexdigest()


@pytest.mark.parametrize("kind", [signing.CERTIFICATE, signing.JOURNAL_HEAD])
def test_what_was_signed_comes_back(kind):
  found = opened(signed(kind=kind), kind=kind)
  assert found == signing.Statement("certificate.json", HEAD, kind, PREDICATE)


def test_the_same_input_gives_the_same_bytes():
  backwards = dict(reversed(PREDICATE.items()))
  assert signed() == signed(predicate=backwards)
  assert signed() == json.dumps(
    json.loads(signed()), indent=1, sort_keys=True
  ).encode() + b"\n"  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(), json_values))
def test_any_predicate_comes_back(predicate):
  assert opened(signed(predicate=predicate)).predicate == predicate


def test_others_can_check_an_envelope_with_a_few_lines_of_their_own():
  envelope = json.loads(signed())
  assert set(envelope) == {"payload", "payloadType", "signatures"}
  kind = envelope["payloadType"].encode()
  assert kind == b"application/vnd.in-toto+json"
  body = base64.standard_b64decode(envelope["payload"])
  (entry,) = envelope["signatures"]
  parts = [b"DSSEv1", str(len(kind)).encode(), kind, str(len(body)).encode(), body]
  public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(RFC_8032[0][1]))
  public.verify(base64.standard_b64decode(entry["sig"]), b" ".join(parts))
  spki = bytes.fromhex("302a300506032b6570032100" + RFC_8032[0][1])
  assert entry["keyid"] == hashlib.sha256(spki).hexdigest()
  assert json.loads(body) == {
    "_type": "https://in-toto.io/Statement/v1",
    "subject": [{"name": "certificate.json", "digest": {"sha256": HEAD}}],
    "predicateType": "https://legonet-jax.github.io/certificate/v1",
    "predicate": PREDICATE,
  }


def test_what_others_sign_can_be_read_here_whatever_they_add():
  more = {"name": "c", "uri": "x", "digest": {"md5": "0", "sha256": HEAD}}
  value = json.loads(sealed(statement(subject=[more], by="cosign")))
  value["signatures"][0]["cert"] = "-----BEGIN CERTIFICATE-----"
  value["more"] = [1]
  found = opened(json.dumps(value).encode())
  assert (found.subject_name, found.predicate) == ("c", PREDICATE)


def test_both_alphabets_of_base64_are_read():
  # ">>>" and "???" are "Pj4+" and "Pz8/", so the two spellings differ.
  payload = statement(predicate={"p": ">>>???" * 3})
  safe = sealed(payload, encode=lambda d: base64.urlsafe_b64encode(d).decode())
  assert safe != sealed(payload)
  assert opened(safe) == opened(sealed(payload))


def test_a_statement_without_a_predicate_has_an_empty_one():
  assert opened(sealed(statement(predicate=None))).predicate == {}


def test_sign_refuses_what_could_not_be_read_again():
  sign = signing.sign
  bad = [
    (KEY, "", HEAD, signing.CERTIFICATE, {}),
    (KEY, "two\nlines", HEAD, signing.CERTIFICATE, {}),
    (KEY, "x", HEAD.upper(), signing.CERTIFICATE, {}),
    (KEY, "x", HEAD[1:], signing.CERTIFICATE, {}),
    (KEY, "x", HEAD, signing.CERTIFICATE, {"v": float("nan")}),
    (KEY, "x", HEAD, signing.CERTIFICATE, {"v": b"bytes"}),
  ]
  for args in bad:
    with pytest.raises(errors.RunError, match="is to be signed"):
      sign(*args)
