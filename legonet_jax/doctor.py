"""Known answers: does the installed JAX compute correct results?

A release of JAX, a driver or a compiler flag can silently give wrong numbers, and then
every digest faithfully records a wrong model. So this module makes a few tiny problems
from a formula, runs them through the library's own functions on the default device, and
compares the results with the numbers stored below.

The problems are integers v_i = s_i >> 16 with s_i = (1103515245 s_{i-1} + 12345) mod
2^31, so anyone can reproduce them. Integer answers must be equal; a long array of
integers is compared by its checksum Σ i v_i mod (2^31 - 1), i = 1, 2, .... Other
answers are stored in millionths and compared within a tolerance: several times the
error of float32, and far below the error of a product in TF32 or bfloat16. The stored
numbers (`known_answers`) come from an oracle in `tests/test_doctor_answers.py` (Python
integers and float64).
"""

from collections.abc import Callable, Iterator
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core import (
  features,
  ids as ids_lib,
  keys as keys_lib,
  logits,
  prediction,
  routing,
  samples as samples_lib,
  single,
)
from legonet_jax.core.config import LegoConfig, for_prediction
from legonet_jax.core.model import Model
from legonet_jax.core.samples import Samples
from legonet_jax.host import requests
from legonet_jax.host.digest import digest
from legonet_jax.known_answers import KNOWN
from legonet_jax.runtime import flags
from legonet_jax.runtime.checks import Check
from legonet_jax.solvers import exact_sums
from legonet_jax.solvers.exact_sums import Sums
from legonet_jax.solvers.ridge import Ridge
from legonet_jax.solvers.sgd import Sgd

CURE = (
  "do not train or verify with it; install another release of jax and jaxlib (or of the"
  " device's driver), unset XLA_FLAGS, and run `legonet doctor` again"
)
# Width, classes and adapters of the small problems; the wide problems set their own.
DIM, CLASSES, ADAPTERS = 12, 3, 5
MILLIONTHS = 1e-6
SMALL = LegoConfig(CLASSES, ADAPTERS, top_k=3, seed=5, key_noise=0.05, solver=Ridge())
L2 = LegoConfig(CLASSES, ADAPTERS, 3, feature_map="l2", solver=Ridge())
PROBS = LegoConfig(CLASSES, ADAPTERS, 3, aggregate="probs", solver=Ridge())
WIDE = LegoConfig(CLASSES, num_adapters=64, top_k=10, solver=Ridge())
IDS = np.asarray([3, 7, 11, 2**33 + 1, 2**40 + 5])

# Values of s_0 for which no result lies close to a rounding tie.
CODES_START, KEYS_START = 1, 1


class Answer(NamedTuple):
  """An answer that the backend computed.

  Attributes:
    got: values of any shape, to compare with `KNOWN`.
    tolerance: how far a value may be off; 0 for integers.
    what: a description of the values.
  """

  got: NDArray[Any]
  tolerance: float
  what: str


def make_integers(start: int, low: int, high: int, *shape: int) -> NDArray[np.int64]:
  """Integers in low ... high by the formula above, with s_0 = `start`."""
  values, s = [], start
  for _ in range(int(np.prod(shape))):
    s = (1103515245 * s + 12345) % 2**31
    values.append(low + (s >> 16) % (high - low + 1))
  return np.asarray(values, np.int64).reshape(shape)


def checksum(values: NDArray[Any]) -> NDArray[np.int64]:
  """Σ i v_i mod (2^31 - 1) of all values, as an array [1]."""
  flat = values.ravel()
  broken = np.sum(~np.isfinite(flat) | (flat != np.rint(flat)))
  if broken:
    raise ArithmeticError(f"{broken} of {flat.size} values are wrong: not integers")
  terms = np.arange(1, flat.size + 1) * flat.astype(np.int64) % (2**31 - 1)
  return np.asarray([terms.sum() % (2**31 - 1)])


def make_samples(codes: NDArray[np.int64], labels: NDArray[np.int64]) -> Samples:
  """A table of codes [m, d] without a fingerprint, with ids 0 ... m-1."""
  m = len(codes)
  return Samples(
    np.arange(m),
    codes.astype(np.int8),
    labels.astype(np.int32),
    np.zeros((m, 16), np.uint8),
    np.zeros(32, np.uint8),
  )


def check_codes() -> Answer:
  """Norms, square roots and rounding, in both feature maps."""
  e = make_integers(CODES_START, -999, 999, 4, DIM)
  got = [features.encode_array(cfg, e) for cfg in (SMALL, L2)]
  return Answer(np.stack(got), 0, "96 codes")


def check_keys() -> Answer:
  """K_j = codes + ξ_j, from ids beyond 32 bits."""
  codes = make_integers(KEYS_START, -60, 60, ADAPTERS, DIM)
  codes, words = codes[::-1].astype(np.int8), ids_lib.to_words(IDS[::-1])
  seed = jnp.uint32(SMALL.seed)
  got = keys_lib.make_keys(SMALL, seed, jnp.asarray(codes), jnp.asarray(words))
  return Answer(np.asarray(got), 0, "60 components of keys")


def check_routes() -> Answer:
  """The k nearest keys, of many samples and of few, with a tie for every sample."""
  codes = make_integers(1, -100, 100, 1040, 300).astype(np.int8)
  keys = make_integers(2, -100, 100, 64, 300).astype(np.int8)
  keys[9] = keys[40]  # the lower index comes first
  route = jax.jit(functools.partial(routing.route, k=WIDE.top_k))
  got = [np.asarray(route(part, keys)) for part in (codes, codes[:16])]
  return Answer(checksum(np.concatenate(got)), 0, "a checksum of 10,560 routes")


def check_sums() -> Answer:
  """A_j and B_j, in all block shapes; some samples are subtracted."""
  samples = make_samples(
    make_integers(3, -127, 127, 1300, 136), make_integers(4, 0, CLASSES - 1, 1300)
  )
  signs = np.where(np.arange(1300) < 1200, 1, -1).astype(np.int8)
  who = np.uint32(0), np.zeros(2, np.uint32)
  data = samples.data
  most = single.carry_rows(WIDE, data, np.arange(1290), signs[:1290], who)[0]
  last = np.arange(1290, 1300)
  got, _ = single.carry_rows(WIDE, data, last, signs[1290:], who, most)
  sums = np.concatenate([checksum(np.asarray(part)) for part in got])
  return Answer(sums, 0, "checksums of 49,560 sums")


def check_ridge() -> Answer:
  """W_j = round(2^g B_j (A_j + s I)^-1), correctly rounded."""
  x, dim = make_integers(5, -30, 30, 400, 136), 136
  hit = np.arange(CLASSES)[:, None] == make_integers(6, 0, CLASSES - 1, 400)
  gram = np.pad(x.T @ x, (0, exact_sums.padded(dim) - dim))
  parts = [gram[r : r + exact_sums.BAND, r:] for r, _ in exact_sums.bands(dim)]
  sums = Sums(
    jnp.asarray(np.concatenate(parts, axis=1), jnp.int32),
    jnp.asarray(hit @ x, jnp.int32),
  )
  weights = single.solve_carry(WIDE, sums, True).weights
  return Answer(checksum(np.asarray(weights)), 0, "a checksum of 408 weights")


def check_logits() -> Answer:
  """Σ W x over the activated adapters, in integers of more than 32 bits."""
  w = 8192 * make_integers(13, -127, 127, ADAPTERS, CLASSES, 1100)
  w += make_integers(14, -4000, 4000, *w.shape)
  codes = make_integers(15, -127, 127, 6, 1100)
  active = make_integers(16, 0, ADAPTERS - 1, 6, 4)

  @jax.jit
  def add_up(w: jax.Array, codes: jax.Array, active: jax.Array) -> Any:
    every = jnp.ones(active.shape, bool)
    return logits.sum_terms(*logits.of_adapters(w, codes, active), every)

  args = (w.astype(np.int32), codes.astype(np.int8), active.astype(np.int32))
  total = np.zeros((6, CLASSES), np.int64)
  for limb in add_up(*args):
    total = (total << logits.LOW_BITS) + np.asarray(limb)
  return Answer(total, 0, "18 sums")


def check_digest() -> Answer:
  """The first 48 bits of the digests of a tiny model: fitted, then six samples less."""
  e = make_integers(17, -999, 999, 60, DIM)
  y = make_integers(18, 0, CLASSES - 1, 60)
  samples = samples_lib.make_samples(SMALL, e, y, np.arange(60) * 2**28)
  state, _ = requests.fit(SMALL, samples)
  gone = [*state.anchors[:2].tolist(), *state.ids[20:24].tolist()]
  after, _ = requests.unlearn(state, samples, gone)
  words = [int(digest(each)[:12], 16) for each in (state, after)]
  return Answer(np.asarray(words), 0, "two digests")


def check_sgd() -> Answer:
  """Random initial weights, then two steps of one adapter and one of another."""
  solver = Sgd(
    epochs=1,
    batch_size=4,
    optimizer="sgd",
    options=(("learning_rate", 0.5), ("momentum", 0.9)),
    init_scale=0.1,
  )
  cfg = LegoConfig(CLASSES, num_adapters=2, top_k=1, seed=5, solver=solver)
  samples = make_samples(
    make_integers(7, -100, 100, 11, DIM), make_integers(8, 0, CLASSES - 1, 11)
  )
  got = []
  words = ids_lib.to_words(IDS[-2:])
  for rows, word in zip((np.arange(8), np.arange(8, 11)), words, strict=True):
    signs, who = np.ones(len(rows), np.int8), (cfg.seed, word)
    carry = single.carry_rows(cfg, samples.data, rows, signs, who)
    got.append(single.solve_carry(cfg, *carry))
  return Answer(np.stack([w.weights for w in got]), 1e-5, "72 weights after training")


def check_prediction() -> Answer:
  """p = 1/k Σ softmax(W_j x) over the nearest adapters that are live."""
  model = Model(
    for_prediction(PROBS),
    keys=jnp.asarray(make_integers(9, -100, 100, ADAPTERS, DIM), jnp.int8),
    weights=jnp.asarray(
      make_integers(10, -128, 128, ADAPTERS, CLASSES, DIM) / 64, jnp.float32
    ),
    live=jnp.asarray([True, True, False, True, True]),
  )
  e = make_integers(CODES_START, -999, 999, 4, DIM)
  got = prediction.predict_array(model, e)
  return Answer(got, 1e-5, "12 probabilities")


def check_squares() -> Answer:
  """Σ (M r)² of many rows, which jax 0.10.2 gets wrong on CPU (jax-ml/jax 39103)."""
  matrix = jnp.asarray(make_integers(11, -9, 9, 3, 3), jnp.float32)
  rows = jnp.asarray(make_integers(12, -99, 99, 40_000, 3), jnp.float32)
  f = jax.jit(jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2)))
  return Answer(checksum(np.asarray(f(rows))), 0, "a checksum of 40,000 sums")


CHECKS: dict[str, Callable[[], Answer]] = {
  "codes": check_codes,
  "keys": check_keys,
  "routes": check_routes,
  "sums": check_sums,
  "ridge": check_ridge,
  "logits": check_logits,
  "digest": check_digest,
  "sgd": check_sgd,
  "prediction": check_prediction,
  "squares": check_squares,
}


def examine() -> Iterator[Check]:
  """Runs every check on the default device; an exception counts as a failed check.

  Yields:
    Each result, as soon as it is known.
  """
  for name in CHECKS:
    yield run_check(name)


def run_check(name: str) -> Check:
  """Runs one of `CHECKS`."""
  try:
    with flags.pinned():
      answer = CHECKS[name]()
    return _judge(name, answer)
  except Exception as e:  # whatever a broken backend raises
    lines = str(e).strip().splitlines() or [""]
    return Check(name, False, f"{type(e).__name__}: {errors.brief(lines[0], 300)}")


def _judge(name: str, answer: Answer) -> Check:
  """Compares an answer with the known one."""
  known = np.asarray(KNOWN[name].split(), np.float64)
  if answer.tolerance:
    known = known * MILLIONTHS
  got = np.asarray(answer.got, np.float64).ravel()
  if got.shape != known.shape:
    return Check(name, False, f"{got.size} values instead of {known.size}")
  error = np.abs(got - known)
  wrong = np.flatnonzero(~(error <= answer.tolerance))  # NaN is wrong as well
  if len(wrong):
    at = wrong[0]
    return Check(
      name,
      False,
      f"{answer.what}: {len(wrong)} of {len(known)} wrong, {got[at]:.12g} instead of"
      f" {known[at]:.12g} first",
    )
  if not answer.tolerance:
    return Check(name, True, f"{answer.what}: equal")
  off = f"off by {error.max():.0e} at most, {answer.tolerance:.0e} is allowed"
  return Check(name, True, f"{answer.what}: {off}")
