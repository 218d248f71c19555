"""Signatures: what holds is what was signed, and everything else is refused."""

import base64
import hashlib
import json
import os
import pathlib
import stat
import subprocess
import sys
import warnings

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given, settings, strategies as st
import pytest

from legonet_jax import errors
from legonet_jax.cli import main as cli
from legonet_jax.io import durable
from legonet_jax.runs import key_files, signing

# RFC 8032, section 7.1, tests 1 and 2: (seed, public key, message, signature).
RFC_8032 = (
  (
    "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
    "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    "",
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bac"
    "c61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
  ),
  (
    "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
    "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
    "72",
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e"
    "458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
  ),
)
KEY, OTHER = (
  ed25519.Ed25519PrivateKey.from_private_bytes(bytes.fromhex(case[0]))
  for case in RFC_8032
)
# RFC 8410, section 10.
RFC_8410_PRIVATE = b"""-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC
-----END PRIVATE KEY-----
"""
RFC_8410_PUBLIC = b"""-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
"""
HEAD = hashlib.sha256(b"a journal").hexdigest()
PREDICATE = {"digest": "ab" * 32, "samples": 60, "ξ": [1.5, None, True, {"k": "v"}]}


def signed(key=KEY, predicate=PREDICATE, kind=signing.CERTIFICATE):
  return signing.sign(key, "certificate.json", HEAD, kind, predicate)


def opened(data, key=KEY, kind=signing.CERTIFICATE):
  return signing.open_envelope(data, key.public_key(), kind)


def b64(data):
  return base64.b64encode(data).decode()


def statement(**changes):
  """The bytes of a statement; a change to None drops the field."""
  value = {
    "_type": "https://in-toto.io/Statement/v1",
    "subject": [{"name": "certificate.json", "digest": {"sha256": HEAD}}],
    "predicateType": signing.CERTIFICATE,
    "predicate": PREDICATE,
    **changes,
  }
  return json.dumps({k: v for k, v in value.items() if v is not None}).encode()


def sealed(payload, kind="application/vnd.in-toto+json", keys=(KEY,), encode=b64):
  """An envelope made by other hands: any payload, with signatures that hold."""
  head = f"DSSEv1 {len(kind.encode())} {kind} {len(payload)} ".encode()
  entries = [{"sig": encode(key.sign(head + payload))} for key in keys]
  value = {"payload": encode(payload), "payloadType": kind, "signatures": entries}
  return json.dumps(value).encode()


def changed(**changes):
  """A sound envelope with some fields changed; a change to None drops the field."""
  value = {**json.loads(signed()), **changes}
  return json.dumps({k: v for k, v in value.items() if v is not None}).encode()


# Known answers


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


# What is signed can be read


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


json_values = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False,
  allow_infinity=False) | st.text(),
  lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
  max_leaves=10,
)  # fmt: skip


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


# What was not signed does not hold


def flips(data):
  """`data` with one byte changed, for every byte and for several changes."""
  for i in range(len(data)):
    for bit in (1, 0x20, 0x80):
      yield data[:i] + bytes([data[i] ^ bit]) + data[i + 1 :]


def test_no_byte_of_the_payload_can_change():
  envelope = json.loads(signed())
  for bad in flips(base64.b64decode(envelope["payload"])):
    with pytest.raises(signing.SignatureError, match="was changed since"):
      opened(changed(payload=b64(bad)))


def test_no_byte_of_the_signature_can_change():
  (entry,) = json.loads(signed())["signatures"]
  for bad in flips(base64.b64decode(entry["sig"])):
    with pytest.raises(signing.SignatureError, match="was changed since"):
      opened(changed(signatures=[{**entry, "sig": b64(bad)}]))


def test_no_character_of_the_payload_type_can_change():
  for bad in flips(signing.PAYLOAD_TYPE.encode()):
    with pytest.raises(errors.RunError) as caught:
      opened(changed(payloadType=bad.decode("latin-1")))
    line = bad.decode("latin-1").isprintable()
    assert isinstance(caught.value, signing.SignatureError) == line


def test_a_byte_changed_anywhere_gives_the_same_statement_or_a_refusal():
  data, found = signed(), opened(signed())
  held = 0
  for bad in flips(data):
    try:
      assert opened(bad) == found
      held += 1
    except errors.RunError:
      pass
  # White space and the keyid, which is a hint, are all that does not matter.
  assert 0 < held < 3 * 200


@settings(max_examples=300, deadline=None)
@given(st.binary() | json_values.map(lambda v: json.dumps(v).encode()))
def test_no_bytes_at_all_make_open_fail_in_another_way(data):
  signing.is_envelope(data)
  with pytest.raises(errors.RunError):
    opened(data)


envelope_like = st.fixed_dictionaries(
  {
    "payload": json_values | st.binary().map(b64),
    "payloadType": json_values | st.just(signing.PAYLOAD_TYPE),
    "signatures": json_values
    | st.lists(st.fixed_dictionaries({"keyid": json_values, "sig": json_values}))
    | st.lists(st.fixed_dictionaries({"sig": st.binary().map(b64)})),
  }
)


@settings(max_examples=300, deadline=None)
@given(envelope_like)
def test_nothing_shaped_like_an_envelope_makes_open_fail_in_another_way(value):
  data = json.dumps(value).encode()
  assert signing.is_envelope(data)
  with pytest.raises(errors.RunError):
    opened(data)


@settings(max_examples=200, deadline=None)
@given(json_values | envelope_like, st.data())
def test_nothing_that_is_signed_makes_open_fail_in_another_way(value, data):
  parts = {"_type", "subject", "predicateType", "predicate"}
  part = data.draw(st.sampled_from(sorted(parts)))
  payload = data.draw(st.sampled_from([json.dumps(value).encode(), b"\xff", b""]))
  for bad in (payload, statement(**{part: value})):
    try:
      assert isinstance(opened(sealed(bad)), signing.Statement)
    except signing.SignatureError:
      pytest.fail("a signature that holds was refused")
    except errors.RunError:
      pass


def test_the_signature_of_another_key_does_not_hold():
  with pytest.raises(signing.SignatureError, match="another key signed it"):
    opened(signed(), OTHER)


def test_a_keyid_proves_nothing():
  (entry,) = json.loads(signed(OTHER))["signatures"]
  mine = key_files.key_id(KEY.public_key())
  with pytest.raises(signing.SignatureError):
    opened(changed(signatures=[{**entry, "keyid": mine}]))


def test_a_false_or_missing_keyid_does_not_hide_a_signature_that_holds():
  (entry,) = json.loads(signed())["signatures"]
  for hint in ({"keyid": "somebody else"}, {"keyid": ""}, {}):
    data = changed(signatures=[{"sig": entry["sig"], **hint}])
    assert opened(data) == opened(signed())


def test_of_several_signatures_any_one_of_the_key_is_enough():
  third = ed25519.Ed25519PrivateKey.generate()
  both = sealed(statement(), keys=(OTHER, KEY))
  assert opened(both) == opened(both, OTHER)
  with pytest.raises(signing.SignatureError):
    opened(both, third)
  # Another scheme's signatures have other lengths, and stand beside ours.
  (entry,) = json.loads(signed())["signatures"]
  others = [{"sig": b64(bytes(71))}, {"sig": ""}, {"sig": b64(bytes(64))}]
  assert opened(changed(signatures=[*others, entry])) == opened(signed())


def test_a_signature_is_checked_before_the_payload_is_looked_at(monkeypatch):
  def looked(*_):
    raise AssertionError("the payload was parsed")

  monkeypatch.setattr(signing, "_parse_statement", looked)
  for payload in (b"{", b"[" * 5000, statement()):
    with pytest.raises(signing.SignatureError):
      opened(sealed(payload, keys=(OTHER,)))


def test_a_signature_under_another_payload_type_does_not_hold():
  other = json.loads(sealed(statement(), kind="application/vnd.example+json"))
  with pytest.raises(signing.SignatureError):
    opened(json.dumps({**other, "payloadType": signing.PAYLOAD_TYPE}).encode())


def test_a_signed_journal_head_does_not_pass_for_a_certificate():
  with pytest.raises(errors.RunError, match="predicateType") as caught:
    opened(signed(kind=signing.JOURNAL_HEAD))
  assert not isinstance(caught.value, signing.SignatureError)


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


# Key files


@pytest.fixture
def umask():
  before = os.umask(0o022)
  yield os.umask
  os.umask(before)


def mode_of(path):
  return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
  ("mask", "public"), [(0o022, 0o644), (0o077, 0o600), (0o027, 0o640), (0, 0o644)]
)
def test_the_private_key_is_the_owners_and_the_public_key_follows_the_umask(
  tmp_path, umask, mask, public
):
  umask(mask)
  made = key_files.generate(tmp_path / "key")
  assert made[:2] == (tmp_path / "key", tmp_path / "key.pub")
  assert mode_of(made.private) == 0o600
  assert mode_of(made.public) == public
  assert sorted(tmp_path.iterdir()) == [made.private, made.public]
  assert made.private.stat().st_nlink == 1


def test_a_new_pair_signs_and_verifies(tmp_path):
  made = key_files.generate(tmp_path / "key")
  private, public = (
    key_files.load_private(made.private),
    key_files.load_public(made.public),
  )
  assert made.key_id == key_files.key_id(public)
  data = signed(private)
  assert signing.open_envelope(data, public, signing.CERTIFICATE).predicate == PREDICATE
  assert made.private.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----\n")
  assert made.public.read_bytes().startswith(b"-----BEGIN PUBLIC KEY-----\n")


def test_two_pairs_are_never_the_same(tmp_path):
  pairs = {key_files.generate(tmp_path / f"{i}").key_id for i in range(5)}
  assert len(pairs) == 5


def snapshot(folder):
  """Name, kind and content of all that is in a folder."""
  return {
    (p.name, p.lstat().st_mode, p.read_bytes() if p.is_file() else b"")
    for p in folder.iterdir()
  }


def put_file(path):
  path.write_bytes(b"precious")


def put_link(path):
  path.symlink_to(path.with_name("elsewhere"))


def put_link_to_a_file(path):
  path.with_name("elsewhere").write_bytes(b"precious")
  path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("name", ["key", "key.pub"])
@pytest.mark.parametrize(
  "put", [put_file, put_link, put_link_to_a_file, pathlib.Path.mkdir, os.mkfifo]
)
def test_nothing_is_overwritten_no_link_followed_and_nothing_left_behind(
  tmp_path, name, put
):
  put(tmp_path / name)
  before = snapshot(tmp_path)
  with pytest.raises(key_files.KeyFileError, match=r"exists|is a folder"):
    key_files.generate(tmp_path / "key")
  assert snapshot(tmp_path) == before


def failing(*_):
  raise OSError(28, "No space left on device")


def interrupted(*_):
  raise KeyboardInterrupt


@pytest.mark.parametrize(
  ("module", "name"), [(os, "fsync"), (os, "link"), (durable, "sync_folder")]
)
@pytest.mark.parametrize("fault", [failing, interrupted])
def test_a_fault_at_any_step_leaves_neither_file(
  tmp_path, monkeypatch, module, name, fault
):
  real = getattr(module, name)
  for working in range(3):
    calls = []

    def step(*args, working=working, calls=calls):
      calls.append(args)
      return real(*args) if len(calls) <= working else fault()

    monkeypatch.setattr(module, name, step)
    try:
      key_files.generate(tmp_path / "key")
      assert len(calls) <= working  # every step went well
      (tmp_path / "key").unlink()
      (tmp_path / "key.pub").unlink()
    except key_files.KeyFileError as e:
      assert "No space left" in str(e)  # noqa: PT017
    except KeyboardInterrupt:
      pass
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())


def pem(key, password=None, form=serialization.PrivateFormat.PKCS8):
  encryption = serialization.NoEncryption()
  if password:
    encryption = serialization.BestAvailableEncryption(password)
  return key.private_bytes(serialization.Encoding.PEM, form, encryption)


def public_pem(key):
  return key.public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
  )


EC = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)
COSIGN = b"""-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----
eyJrZGYiOnsibmFtZSI6InNjcnlwdCJ9fQ==
-----END ENCRYPTED SIGSTORE PRIVATE KEY-----
"""
BAD_PRIVATE = {
  "nothing": (b"", "not an Ed25519 private key"),
  "text": (b"my key", "not an Ed25519 private key"),
  "bytes": (bytes(range(256)), "not an Ed25519 private key"),
  "a damaged key": (
    RFC_8410_PRIVATE.replace(b"MC4C", b"MC5C"),
    "not an Ed25519 private key",
  ),
  "half a key": (RFC_8410_PRIVATE[:60], "not an Ed25519 private key"),
  "a public key": (RFC_8410_PUBLIC, "is a public key, which cannot sign"),
  "an encrypted key": (pem(KEY, b"secret"), "has a password"),
  "an encrypted key of old": (
    pem(RSA, b"secret", serialization.PrivateFormat.TraditionalOpenSSL),
    "has a password",
  ),
  "an encrypted key of cosign": (COSIGN, "has a password"),
  "a key of RSA": (pem(RSA), "another kind; give an Ed25519 key"),
  "a key of a NIST curve": (pem(EC), "another kind; give an Ed25519 key"),
  "a long file": (pem(KEY) + b" " * 20_000, "too long"),
}
BAD_PUBLIC = {
  "nothing": (b"", "not an Ed25519 public key"),
  "text": (b"ssh-ed25519 AAAA me@here", "not an Ed25519 public key"),
  "bytes": (bytes(range(256)), "not an Ed25519 public key"),
  "a damaged key": (
    RFC_8410_PUBLIC.replace(b"MCow", b"MCox"),
    "not an Ed25519 public key",
  ),
  "a private key": (RFC_8410_PRIVATE, "is a private key, which only its owner"),
  "an encrypted private key": (pem(KEY, b"secret"), "is a private key"),
  "a key of RSA": (public_pem(RSA.public_key()), "another kind"),
  "a key of a NIST curve": (public_pem(EC.public_key()), "another kind"),
  "a long file": (RFC_8410_PUBLIC + b" " * 20_000, "too long"),
}


def check_key_error(load, path, message):
  with pytest.raises(key_files.KeyFileError, match=message) as caught:
    load(path)
  assert str(caught.value).isprintable()
  assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", BAD_PRIVATE)
def test_a_file_that_is_no_private_key_is_one_line_that_says_why(tmp_path, name):
  data, message = BAD_PRIVATE[name]
  path = tmp_path / "key"
  path.write_bytes(data)
  path.chmod(0o600)
  check_key_error(key_files.load_private, path, message)


@pytest.mark.parametrize("name", BAD_PUBLIC)
def test_a_file_that_is_no_public_key_is_one_line_that_says_why(tmp_path, name):
  data, message = BAD_PUBLIC[name]
  path = tmp_path / "key.pub"
  path.write_bytes(data)
  check_key_error(key_files.load_public, path, message)


@pytest.mark.parametrize("kind", ["private", "public"])
def test_a_kind_that_is_deprecated_is_refused_without_a_warning(
  tmp_path, monkeypatch, kind
):
  def load(*_):
    warnings.warn("this kind will be removed", DeprecationWarning, stacklevel=2)
    return EC

  monkeypatch.setattr(serialization, f"load_pem_{kind}_key", load)
  path = tmp_path / "key"
  path.write_bytes(b"")
  check_key_error(getattr(key_files, f"load_{kind}"), path, "another kind")


@pytest.mark.parametrize("load", [key_files.load_private, key_files.load_public])
def test_a_key_is_read_from_a_plain_file_only(tmp_path, load):
  check_key_error(load, tmp_path / "none", "no key file")
  check_key_error(load, tmp_path, "not a regular file")
  os.mkfifo(tmp_path / "fifo")
  check_key_error(load, tmp_path / "fifo", "not a regular file")
  check_key_error(load, pathlib.Path("/dev/zero"), "not a regular file")
  (tmp_path / "loop").symlink_to("loop")
  check_key_error(load, tmp_path / "loop", "cannot be read")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644, 0o777])
def test_a_private_key_that_others_may_use_is_refused(tmp_path, mode):
  path = key_files.generate(tmp_path / "my key").private
  path.chmod(mode)
  check_key_error(key_files.load_private, path, "chmod 600 '.*my key'$")
  path.chmod(0o400)
  key_files.load_private(path)


def test_a_link_may_stand_for_a_key_but_not_hide_its_mode(tmp_path):
  made = key_files.generate(tmp_path / "key")
  link = tmp_path / "link"
  link.symlink_to(made.private)
  assert key_files.key_id(key_files.load_private(link).public_key()) == made.key_id
  made.private.chmod(0o644)
  check_key_error(key_files.load_private, link, "chmod 600")


def small_order_points():
  """All encodings of points A with 8A = 0, found by search and not by a formula."""
  p = 2**255 - 19
  d = -121665 * pow(121666, -1, p) % p

  def x_of(y):
    square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
    x = pow(square, (p + 3) // 8, p)
    for root in (x, x * pow(2, (p - 1) // 4, p) % p):
      if root * root % p == square:
        return root
    return None

  def add(a, b):
    (x, y), (u, v) = a, b
    t = d * x * u * y * v
    return (
      (x * v + y * u) * pow(1 + t, -1, p) % p,
      (y * v + x * u) * pow(1 - t, -1, p) % p,
    )

  order = 2**252 + 27742317777372353535851937790883648493
  found = set()
  y = 2
  while len(found) < 8:
    if (x := x_of(y)) is not None:
      total, step, left = (0, 1), (x, y), order
      while left:
        total = add(total, step) if left & 1 else total
        step, left = add(step, step), left >> 1
      found.add(total)
    y += 1
  for x, y in found:
    for same in (y, y + p):
      if same < 2**255:
        for sign in (x & 1, 1 - (x & 1)) if x == 0 else (x & 1,):
          yield (same | sign << 255).to_bytes(32, "little")


def test_a_key_for_which_everybody_can_sign_is_refused(tmp_path):
  points = list(small_order_points())
  assert len(points) >= 8
  forged = 0
  for i, raw in enumerate(points):
    key = ed25519.Ed25519PublicKey.from_public_bytes(raw)
    for number in range(64):
      try:
        key.verify(bytes([1]) + bytes(63), b"%d" % number)
        forged += 1
      except InvalidSignature:
        pass
    path = tmp_path / f"{i}.pub"
    path.write_bytes(public_pem(key))
    check_key_error(key_files.load_public, path, "everybody can sign")
  assert forged  # nobody has signed anything


# Without the extra


@pytest.fixture
def no_cryptography(monkeypatch):
  names = [n for n in sys.modules if n.split(".")[0] == "cryptography"]
  for name in {*names, "cryptography"}:
    monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("no_cryptography")
def test_without_the_package_every_function_says_how_to_install_it(tmp_path):
  public = KEY.public_key()
  calls = [
    lambda: key_files.generate(tmp_path / "key"),
    lambda: key_files.load_private(tmp_path / "key"),
    lambda: key_files.load_public(tmp_path / "key"),
    lambda: key_files.key_id(public),
  ]
  for call in calls:
    with pytest.raises(errors.ConfigError, match=r"pip install 'legonet-jax\[sign\]'"):
      call()
  assert not list(tmp_path.iterdir())
  empty = b'{"payload": "", "payloadType": "", "signatures": []}'
  assert signing.is_envelope(empty)  # which needs no key


def test_the_package_is_imported_only_when_a_key_is_used():
  code = (
    "import sys; sys.modules['cryptography'] = None;"
    "import legonet_jax.runs.signing, legonet_jax.cli.keygen"
  )
  subprocess.run([sys.executable, "-c", code], check=True)


# The command


@pytest.fixture
def command(monkeypatch, capsys):

  def call(*args):
    code = cli.main(["keygen", *map(str, args)])
    return code, capsys.readouterr()

  return call


def test_keygen_writes_both_files_and_prints_where_and_the_key_id(tmp_path, command):
  code, printed = command(tmp_path / "key")
  assert code == 0
  key = key_files.load_public(tmp_path / "key.pub")
  for part in (tmp_path / "key", tmp_path / "key.pub", key_files.key_id(key)):
    assert str(part) in printed.out
  assert not printed.err


def test_keygen_with_json_prints_one_object_and_never_the_key(tmp_path, command):
  code, printed = command(tmp_path / "key", "--json")
  assert code == 0
  key = key_files.load_public(tmp_path / "key.pub")
  assert json.loads(printed.out) == {
    "private_key": str(tmp_path / "key"),
    "public_key": str(tmp_path / "key.pub"),
    "key_id": key_files.key_id(key),
  }
  secret = (tmp_path / "key").read_text().split("\n")[1]
  assert secret not in printed.out + printed.err


def test_keygen_says_what_is_wrong_in_one_line_with_exit_code_2(tmp_path, command):
  (tmp_path / "taken").write_bytes(b"precious")
  (tmp_path / "half.pub").write_bytes(b"precious")
  bad = {
    tmp_path / "taken": "keys are never overwritten",
    tmp_path / "half": "half.pub exists",
    tmp_path: "is a folder",
    tmp_path / "..": "is a folder",
    tmp_path / "none" / "key": "make it first",
    tmp_path / "taken" / "key": "make it first",
    tmp_path / ("x" * 300): "File name too long",
    tmp_path / ("x" * 253): "File name too long",
    pathlib.Path("/proc/key"): "cannot be written",
  }
  for path, message in bad.items():
    code, printed = command(path)
    assert code == 2
    assert printed.out == ""
    assert printed.err.startswith("legonet: error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1
  assert sorted(p.name for p in tmp_path.iterdir()) == ["half.pub", "taken"]


def test_keygen_explains_itself(capsys):
  with pytest.raises(SystemExit):
    cli.main(["keygen", "--help"])
  assert "KEY.pub" in capsys.readouterr().out
