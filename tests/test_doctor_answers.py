"""The known answers of `legonet doctor` are those of independent oracles."""

from fractions import Fraction
import statistics

import flint
import ml_dtypes
import numpy as np
import portable_reference
import pytest

from legonet_jax import doctor

MASK = 2**32 - 1


def lcg(start, low, high, *shape):
  values = []
  for _ in range(int(np.prod(shape))):
    start = (1103515245 * start + 12345) % 2**31
    values.append(low + (start >> 16) % (high - low + 1))
  return np.array(values, dtype=object).reshape(shape)


def weighted(values):
  flat = [int(v) for v in np.asarray(values, dtype=object).ravel()]
  return sum(i * v for i, v in enumerate(flat, 1)) % (2**31 - 1)


def code(value, norm2, power, m=127):
  """round(m (|e| / ||e||)^(1/power)), decided in integers; and that it is no tie.

  The code is the c with (c - 1/2)^2p ||e||² < m^2p e² < (c + 1/2)^2p ||e||². With 1/2 ±
  1/1000 in its place, the answer is the same: rounding errors cannot change it.
  """
  for c in range(m + 1):
    edge = Fraction(2 * c + 1, 2)
    left = Fraction(m ** (2 * power) * value**2)
    near, far = edge - Fraction(1, 1000), edge + Fraction(1, 1000)
    if left < near ** (2 * power) * norm2:
      return c if value >= 0 else -c
    assert left > far ** (2 * power) * norm2, "too close to a tie"
  raise AssertionError


def codes_of(encodings, power):
  return [
    [code(int(v), sum(int(w) ** 2 for w in row), power) for v in row]
    for row in encodings
  ]


def threefry(key, count):
  """Threefry-2x32 with 20 rounds (Salmon et al., 2011)."""
  ks = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA]
  x = [(count[0] + ks[0]) & MASK, (count[1] + ks[1]) & MASK]
  for i in range(5):
    for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
      x[0] = (x[0] + x[1]) & MASK
      x[1] = ((x[1] << r | x[1] >> (32 - r)) & MASK) ^ x[0]
    x[0] = (x[0] + ks[(i + 1) % 3]) & MASK
    x[1] = (x[1] + ks[(i + 2) % 3] + i + 1) & MASK
  return x


def normals(seed, stream, sample_id, count):
  """Normal numbers from an id, by the inverse of their distribution function."""
  key = [0, seed]
  for word in (stream, sample_id >> 32, sample_id & MASK):
    key = threefry(key, (0, word))
  values = []
  for i in range(count):
    high, low = threefry(key, (0, i))
    u = 2 * Fraction((high ^ low) >> 9, 2**23) - 1 + Fraction(1, 2**24)
    values.append(statistics.NormalDist().inv_cdf(float((u + 1) / 2)))
  return np.array(values)


def softmax(z):
  e = np.exp(z - z.max(axis=0))
  return e / e.sum(axis=0)


def nearest(codes, keys, k):
  c, K = codes.astype(np.int64), keys.astype(np.int64)
  distance2 = (c**2).sum(1)[:, None] - 2 * c @ K.T + (K**2).sum(1)[None]
  return np.argsort(distance2, axis=1, kind="stable")[:, :k]


def oracle_codes():
  e = lcg(doctor.CODES_START, -999, 999, 4, 12)
  return np.array([codes_of(e, 2), codes_of(e, 1)])


def oracle_keys():
  """ξ from the sum of eight bytes, as docs/portable.md defines it."""
  codes = lcg(doctor.KEYS_START, -60, 60, 5, 12)
  factor = round(80265 * (0.05 * 127 / 1.0))
  keys = []
  for row, i in zip(codes, [3, 7, 11, 2**33 + 1, 2**40 + 5], strict=True):
    start = threefry((5, 1), (i >> 32, i & MASK))
    drawn = [threefry(start, (0, t)) for t in range(12)]
    sums = [sum(w >> s & 255 for w in pair for s in (0, 8, 16, 24)) for pair in drawn]
    xi = [((t - 1020) * factor + 2**23) // 2**24 for t in sums]
    keys.append([min(max(c + x, -127), 127) for c, x in zip(row, xi, strict=True)])
  return keys[::-1]


def oracle_routes():
  codes, keys = lcg(1, -100, 100, 1040, 300), lcg(2, -100, 100, 64, 300)
  keys[9] = keys[40]
  routes = nearest(codes, keys, 10)
  return [weighted(np.concatenate([routes, routes[:16]]))]


def oracle_sums():
  x = lcg(3, -127, 127, 1300, 136).astype(np.int64)
  y, signs = lcg(4, 0, 2, 1300), np.r_[np.ones(1200, int), -np.ones(100, int)]
  A = np.zeros((256, 256), np.int64)
  A[:136, :136] = (x * signs[:, None]).T @ x
  B = [(signs * (y == c)) @ x for c in range(3)]
  bands = np.concatenate([A[:128], A[128:, 128:]], axis=1)
  return [weighted(bands), weighted(B)]


def oracle_ridge():
  """The exact rational solution, rounded half up."""
  x, y = lcg(5, -30, 30, 400, 136), lcg(6, 0, 2, 400)
  A, B = x.T.dot(x), np.array([(y == c).astype(int).dot(x) for c in range(3)])
  shift = max(1, (2 * int(A.trace()) + 100 * 136) // (2 * 100 * 136))
  g = max(g for g in range(60) if 4**g * 136 * 100 <= 2 * 4**30)
  M = flint.fmpq_mat(flint.fmpz_mat((A + shift * np.eye(136, dtype=object)).tolist()))
  w = M.solve(flint.fmpq_mat(flint.fmpz_mat((B.T * 2**g).tolist())))
  half = flint.fmpq(1, 2)
  return [weighted([[int((w[i, c] + half).floor()) for i in range(136)]
                    for c in range(3)])]  # fmt: skip


def oracle_logits():
  w = 8192 * lcg(13, -127, 127, 5, 3, 1100) + lcg(14, -4000, 4000, 5, 3, 1100)
  codes, active = lcg(15, -127, 127, 6, 1100), lcg(16, 0, 4, 6, 4)
  return [sum(w[j].dot(x) for j in near) for x, near in zip(codes, active, strict=True)]


def oracle_digest():
  """By the second implementation, which shares no code with the library."""
  settings = portable_reference.Settings(classes=3, n=5, k=3, seed=5, key_noise=0.05)
  rows = [[float(v) for v in row] for row in lcg(17, -999, 999, 60, 12)]
  labels = [int(v) for v in lcg(18, 0, 2, 60)]
  left = {i * 2**28: (e, y) for i, (e, y) in enumerate(zip(rows, labels, strict=True))}
  found = []
  for _ in range(2):
    columns = zip(*left.values(), strict=True)
    state = portable_reference.fit(settings, *map(list, columns), list(left))
    found.append(int(portable_reference.digest(settings, state)[:12], 16))
    for i in [*state.anchors[:2], *state.ids[20:24]]:
      del left[i]
  return found


def oracle_sgd(rounded=lambda a: a):
  x = lcg(7, -100, 100, 11, 12).astype(float) / 127
  y = lcg(8, 0, 2, 11)
  trained = []
  batches = {2**33 + 1: (slice(0, 4), slice(4, 8)), 2**40 + 5: (slice(8, 11),)}
  for adapter, parts in batches.items():
    w = 0.1 * normals(5, 2, adapter, 36).reshape(3, 12)
    speed = np.zeros((3, 12))
    for part in parts:
      hit = np.array([y[part] == c for c in range(3)], float)
      p = softmax(rounded(w) @ rounded(x[part]).T)
      grad = rounded(p - hit) @ rounded(x[part]) / len(x[part])
      speed = 0.9 * speed + grad
      w = w - 0.5 * speed
    trained.append(w)
  return np.array(trained)


def oracle_prediction(rounded=lambda a: a):
  keys = lcg(9, -100, 100, 5, 12)
  weights = lcg(10, -128, 128, 5, 3, 12).astype(float) / 64
  live = [0, 1, 3, 4]
  codes = np.array(codes_of(lcg(doctor.CODES_START, -999, 999, 4, 12), 2))
  routes = np.array(live)[nearest(codes, keys[live], 3)]
  x = codes / 127
  return [
    np.mean([softmax(rounded(weights[j]) @ rounded(e)) for j in active], axis=0)
    for e, active in zip(x, routes, strict=True)
  ]


def oracle_squares():
  matrix, rows = lcg(11, -9, 9, 3, 3), lcg(12, -99, 99, 40_000, 3)
  squares = (rows.dot(matrix.T) ** 2).sum(axis=1)
  assert max(squares) < 2**24  # every partial sum is exact in float32
  return [weighted(squares)]


INTEGERS = {
  "codes": oracle_codes,
  "keys": oracle_keys,
  "routes": oracle_routes,
  "sums": oracle_sums,
  "ridge": oracle_ridge,
  "logits": oracle_logits,
  "digest": oracle_digest,
  "squares": oracle_squares,
}
REALS = {
  "sgd": oracle_sgd,
  "prediction": oracle_prediction,
}


@pytest.mark.parametrize("name", INTEGERS)
def test_stored_integers_are_the_oracles(name):
  stored = [int(word) for word in doctor.KNOWN[name].split()]
  assert stored == np.ravel(INTEGERS[name]()).tolist()


@pytest.mark.parametrize("name", REALS)
def test_stored_millionths_are_the_oracles(name):
  stored = [int(word) for word in doctor.KNOWN[name].split()]
  assert stored == np.rint(np.ravel(REALS[name]()) * 1e6).tolist()


def test_there_is_an_oracle_for_every_check():
  assert doctor.CHECKS.keys() == doctor.KNOWN.keys() == {**INTEGERS, **REALS}.keys()


@pytest.mark.parametrize("name", doctor.CHECKS)
def test_this_backend_gets_it_right(name):
  check = doctor.run_check(name)
  assert check.passed, check.detail


def to_tf32(a):
  """Rounded to the 10 bits after the point that tensor cores take of a float32."""
  bits = np.asarray(a, np.float32).view(np.uint32)
  return ((bits + 0x1000) & 0xFFFFE000).view(np.float32).astype(np.float64)


def to_bfloat16(a):
  return np.asarray(a).astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.parametrize("rounded", [to_tf32, to_bfloat16])
@pytest.mark.parametrize("name", REALS)
def test_a_backend_that_rounds_products_is_beyond_the_tolerance(name, rounded):
  off = np.abs(np.ravel(REALS[name](rounded)) - np.ravel(REALS[name]()))
  assert off.max() > 5 * doctor.CHECKS[name]().tolerance
