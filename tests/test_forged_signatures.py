"""What was not signed does not hold, and nothing makes `open` fail in another way."""

import base64
import json

from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given, settings, strategies as st
import pytest
from signing_world import (
  KEY,
  OTHER,
  b64,
  changed,
  json_values,
  opened,
  sealed,
  signed,
  statement,
)

from legonet_jax import errors
from legonet_jax.runs import key_files, signing


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
