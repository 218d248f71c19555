"""Files that are no keys, or not safe ones, are refused."""

import os
import pathlib
import warnings

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
import pytest
from signing_world import KEY, RFC_8410_PRIVATE, RFC_8410_PUBLIC

from legonet_jax.runs import key_files


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
