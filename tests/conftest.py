"""Strict flags and one tiny world that all tests share, so that it compiles once."""

import os
import pathlib
import tempfile

import jax
import numpy as np
import pytest

import legonet_jax as lego

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_nans", True)
# Commands keep executables and weights there; never in the home of who runs the tests.
os.environ["LEGONET_CACHE"] = tempfile.mkdtemp(prefix="legonet-tests-")
# JAX sets a level of its own where there is none, and the commands that tests start
# would inherit it: then XLA's false alarm (see `cli.main`) is in their output.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

DIM, CLASSES, COUNT = 7, 3, 60

SGD = lego.Sgd(
  epochs=2,
  batch_size=4,
  lanes=3,
  tile_batches=2,
  optimizer="sgd",
  options=(("learning_rate", 0.5), ("momentum", 0.9)),
)
CONFIG = lego.LegoConfig(
  num_classes=CLASSES, num_adapters=8, top_k=2, seed=3, solver=SGD
)


_MOST_MEMORY = 900_000_000  # bytes; executables of all tests would take 4 GB


@pytest.fixture(autouse=True, scope="module")
def _few_executables_at_a_time():
  yield
  statm = pathlib.Path("/proc/self/statm")
  pages = int(statm.read_text().split()[1]) if statm.exists() else 0
  if pages * os.sysconf("SC_PAGE_SIZE") > _MOST_MEMORY:
    jax.clear_caches()


def encodings(count: int = COUNT, seed: int = 0) -> np.ndarray:
  """Clustered, so that some adapters are hubs and some nearly empty."""
  rng = np.random.default_rng(seed)
  centres = rng.normal(size=(5, DIM))
  which = rng.choice(5, count, p=[0.5, 0.2, 0.15, 0.1, 0.05])
  return (centres[which] + 0.4 * rng.normal(size=(count, DIM))).astype(np.float32)


def labels(count: int = COUNT, seed: int = 0) -> np.ndarray:
  return np.random.default_rng([seed, 1]).integers(0, CLASSES, count)


def ids(count: int = COUNT) -> np.ndarray:
  """Neither dense nor sorted, and beyond 32 bits."""
  return np.random.default_rng(2).permutation(count) * 10_000_000_019 + 5


def refit(cfg, samples, retained, keys=None):
  """A fresh fit on what remains."""
  return lego.fit(cfg, lego.select(samples, retained), keys)[0]


@pytest.fixture(scope="session")
def samples() -> lego.Samples:
  return lego.make_samples(CONFIG, encodings(), labels(), ids())


@pytest.fixture(scope="session")
def state(samples) -> lego.LegoState:
  return lego.fit(CONFIG, samples)[0]
