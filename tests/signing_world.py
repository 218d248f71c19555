"""What the tests of signatures share: keys, envelopes and known answers."""

import base64
import hashlib
import json

from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import strategies as st

from legonet_jax.runs import signing

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


json_values = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False,
  allow_infinity=False) | st.text(),
  lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
  max_leaves=10,
)  # fmt: skip
