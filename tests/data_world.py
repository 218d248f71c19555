"""What the tests of datasets share."""

import hashlib
import pickle
import pickletools

import numpy as np
import pytest

from legonet_jax.data import cifar

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (7, 3, 32, 32), np.uint8)  # 4 train in two files, 3 test
LABELS = np.uint8([3, 1, 2, 0, 9, 8, 7])
PARTS = [("one", 0, slice(0, 2)), ("two", 0, slice(2, 4)), ("three", 1, slice(4, 7))]


def _binary(part):
  return b"".join(
    bytes([label]) + image.tobytes()
    for label, image in zip(LABELS[part], PIXELS[part], strict=True)
  )


def _pickled(part):
  """As Python 2 wrote it: every string is a byte string."""
  rows = PIXELS[part].reshape(-1, 3072)
  batch = {b"data": rows, b"labels": LABELS[part].tolist()}
  blob = bytearray(pickle.dumps(batch, 3))
  old = {"BINBYTES": b"T", "SHORT_BINBYTES": b"U", "BINUNICODE": b"T"}
  for op, _, at in pickletools.genops(bytes(blob)):
    if op.name in old:
      blob[at : at + 1] = old[op.name]
  return bytes(blob)


@pytest.fixture
def tiny_cifar(monkeypatch):
  """CIFAR-10 with seven images, in both forms."""
  releases, contents = [], []
  for release, make in zip(
    cifar._RELEASES["cifar10"], (_binary, _pickled), strict=True
  ):
    content = {name: make(part) for name, _, part in PARTS}
    files = tuple(
      (name, split, hashlib.md5(content[name]).hexdigest()) for name, split, _ in PARTS
    )
    releases.append(release._replace(files=files))
    contents.append(content)
  monkeypatch.setitem(cifar._RELEASES, "cifar10", tuple(releases))
  return list(zip(releases, contents, strict=True))


def _unpack(place, release, content):
  (place / release.folder).mkdir(parents=True)
  for name, blob in content.items():
    (place / release.folder / name).write_bytes(blob)
