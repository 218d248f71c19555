"""What the tests of the store share."""

import numpy as np
import pytest

from legonet_jax import errors
from legonet_jax.store import (
  read as store_read,
  seals,
  write as store_write,
)

ROWS = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)
HOW = {"encoder": "x", "size": 64}


@pytest.fixture
def same_salts(monkeypatch):
  """Salts are random, so two stores of the same rows could not be compared."""
  monkeypatch.setattr(seals.secrets, "token_bytes", bytes)


def _finish(writer):
  ids, labels = np.arange(10), np.zeros(10, np.int32)
  return store_write.finish(writer, ids, labels, np.zeros(10, np.uint8))


def _bytes(path):
  return {p.name: p.read_bytes() for p in path.iterdir()}


def _make(path, how=HOW, labels=None, ids=None):
  """A complete store of ten rows."""
  writer = store_write.put(store_write.start(path, how, ROWS.shape, "float32"), ROWS)
  labels = np.zeros(10, np.int32) if labels is None else labels
  ids = np.arange(10) if ids is None else ids
  store_write.finish(writer, ids, labels, np.zeros(10, np.uint8))
  return path


def _refuses(path, *words, **kwargs):
  with pytest.raises(errors.StoreError) as caught:
    store_read.open_store(path, **kwargs)
  message = str(caught.value)
  assert message.isprintable()
  for word in words:
    assert word in message


FILES = [
  "encodings.npy", "ids.npy", "labels.npy", "split.npy", "salts.npy", "seals.npy",
  "meta.json",
]  # fmt: skip
