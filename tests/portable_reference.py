"""docs/portable.md once more, in plain Python: integers, fractions and single floats.

It imports nothing of the library and no numpy, and is written for reading, not speed.
Matrices are lists of rows. Python's float is float64; `to_float32` rounds to float32.
"""

from fractions import Fraction
import hashlib
import json
import math
import struct
from typing import NamedTuple

_64 = 2**64 - 1
_32 = 2**32 - 1


class Settings(NamedTuple):
  """The settings; the last four only enter the fingerprint of the settings."""

  classes: int
  n: int
  k: int
  seed: int = 0
  key_noise: float = 0.01
  feature_map: str = "sqrt"
  feature_range: float | None = None
  penalty: float = 0.01
  key_policy: str = "replace"
  scale: float = 10.0
  encoder: str = ""
  aggregate: str = "logits"


class Fitted(NamedTuple):
  """A state: in hash order `ids`, `routes` and `prints`, and by adapter the others."""

  keys: list
  weights: list
  live: list
  anchors: list
  ids: list
  routes: list
  prints: list


def to_float32(value) -> float:
  """`value` as the nearest float32, ties to even."""
  return struct.unpack("<f", struct.pack("<f", value))[0]


def find_range(s: Settings, d: int) -> float:
  if s.feature_range is not None:
    return s.feature_range
  return 1.0 if s.feature_map == "sqrt" else min(1.0, 16 / math.sqrt(d))


def find_levels(s: Settings, d: int) -> int:
  r = find_range(s, d)
  nu0 = {"sqrt": math.sqrt(d), "l2": 1.0, "none": math.inf}[s.feature_map]
  nu = min(nu0 / (r * r), float(d))
  for m in range(127, 0, -1):
    length = m * math.sqrt(nu) + 0.5 * math.sqrt(d)
    if 1.5 * (length * length) < 2**23:
      return m
  raise ValueError("too wide")


def encode(s: Settings, e: list) -> list[int]:
  """The codes x [d] of one encoding e [d]. Python's round(float) is rint."""
  d = len(e)
  m, r = find_levels(s, d), find_range(s, d)
  e = [to_float32(v) for v in e]
  if s.feature_map == "none":
    return [round(m * min(max(v / r, -1.0), 1.0)) for v in e]
  p = max(abs(v) for v in e)
  if p == 0:
    return [0] * d
  exponent = math.frexp(p)[1]  # 2^(E-1) <= p < 2^E
  q = [round(Fraction(v) * Fraction(2) ** (22 - exponent)) for v in e]
  norm = math.sqrt(float(sum(v * v for v in q)))
  codes = []
  for v in q:
    u = abs(v) / norm
    u = math.sqrt(u) if s.feature_map == "sqrt" else u
    x = round(m * min(u / r, 1.0))
    codes.append(x if v >= 0 else -x)
  return codes


def _mix(x: int) -> int:
  x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _64
  x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _64
  return x ^ (x >> 31)


def hash_id(seed: int, i: int) -> int:
  return _mix(_mix(i) ^ _mix((seed + 0x9E3779B97F4A7C15) & _64))


def threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
  """Threefry-2x32-20, after the paper of Salmon et al. and its constants."""
  rotations = (13, 15, 26, 6, 17, 29, 16, 24)
  schedule = (key[0], key[1], 0x1BD11BDA ^ key[0] ^ key[1])
  x, y = (counter[0] + key[0]) & _32, (counter[1] + key[1]) & _32
  for step in range(20):
    x = (x + y) & _32
    turn = rotations[step % 8]
    y = ((y << turn | y >> (32 - turn)) & _32) ^ x
    if step % 4 == 3:
      j = step // 4 + 1
      x = (x + schedule[j % 3]) & _32
      y = (y + schedule[(j + 1) % 3] + j) & _32
  return x, y


def make_key(s: Settings, i: int, codes: list[int]) -> list[int]:
  """K [d] of the anchor with id `i` and these codes."""
  d = len(codes)
  m, r = find_levels(s, d), find_range(s, d)
  factor = round(80265 * ((s.key_noise * m) / r))
  a = threefry((s.seed, 1), (i >> 32, i & _32))
  key = []
  for t, x in enumerate(codes):
    words = threefry(a, (0, t))
    total = sum(w >> shift & 255 for w in words for shift in (0, 8, 16, 24)) - 1020
    noise = (total * factor + 2**23) // 2**24
    key.append(min(max(x + noise, -m), m))
  if _dot(key, key) > 5592405:
    c = math.isqrt(5592405 // d)
    key = [min(max(v, -c), c) for v in key]
  return key


def find_route(s: Settings, keys: list, x: list[int], live: list | None = None):
  """The k nearest adapters, nearest first; not live ones only where none are left."""
  score = [2 * _dot(x, key) - _dot(key, key) for key in keys]
  far = [False] * len(keys) if live is None else [not alive for alive in live]
  return sorted(range(len(keys)), key=lambda j: (far[j], -score[j], j))[: s.k]


def _dot(a: list[int], b: list[int]) -> int:
  return sum(x * y for x, y in zip(a, b, strict=True))


def penalty_of(s: Settings) -> Fraction:
  return Fraction(repr(s.penalty))


def choose_shift(s: Settings, trace: int, d: int) -> int:
  return max(1, math.floor(penalty_of(s) * trace / d + Fraction(1, 2)))


def choose_grid(s: Settings, d: int) -> int:
  g = 0
  while 4 ** (g + 1) * d <= 2 * penalty_of(s) * 4**30:
    g += 1
  return g


def solve(matrix: list[list[int]], right: list[list[int]]) -> list[list[Fraction]]:
  """X [C, d] with X M = R, for a symmetric M [d, d]: Gauss in fractions."""
  d = len(matrix)
  rows = [[Fraction(v) for v in (*matrix[i], *(r[i] for r in right))] for i in range(d)]
  for i in range(d):  # M is positive definite, so no pivot is zero
    rows[i] = [v / rows[i][i] for v in rows[i]]
    for other in range(d):
      if other != i and rows[other][i]:
        factor = rows[other][i]
        pairs = zip(rows[other], rows[i], strict=True)
        rows[other] = [a - factor * b for a, b in pairs]
  return [[rows[i][d + c] for i in range(d)] for c in range(len(right))]


def train(s: Settings, codes: list, labels: list[int], d: int) -> list[list[int]]:
  """W_j [C, d] of an adapter whose members have these codes and labels."""
  gram = [[sum(x[a] * x[b] for x in codes) for b in range(d)] for a in range(d)]
  pairs = list(zip(codes, labels, strict=True))
  cross = [
    [sum(x[t] for x, y in pairs if y == c) for t in range(d)] for c in range(s.classes)
  ]
  shift = choose_shift(s, sum(gram[i][i] for i in range(d)), d)
  for i in range(d):
    gram[i][i] += shift
  g = choose_grid(s, d)
  half = Fraction(1, 2)
  return [[math.floor(2**g * v + half) for v in row] for row in solve(gram, cross)]


def print_sample(i: int, label: int, codes: list[int]) -> bytes:
  data = b"%d,%d:" % (i, label) + struct.pack(f"<{len(codes)}b", *codes)
  return hashlib.blake2b(data, digest_size=16).digest()


def fit(s: Settings, encodings: list, labels: list, ids: list, points=None) -> Fitted:
  """The state of a set of samples; `points` are the keys of the policy `given`."""
  d = len(encodings[0])
  by_id = {i: (encode(s, e), y) for i, e, y in zip(ids, encodings, labels, strict=True)}
  order = sorted(ids, key=lambda i: hash_id(s.seed, i))
  if points is None:
    anchors = order[: s.n]
    keys = [make_key(s, i, by_id[i][0]) for i in anchors]
  else:
    anchors, keys = list(range(s.n)), [encode(s, e) for e in points]
  routes = [find_route(s, keys, by_id[i][0]) for i in order]
  weights, live = [], []
  for j in range(s.n):
    members = [by_id[i] for i, route in zip(order, routes, strict=True) if j in route]
    weights.append(train(s, [x for x, _ in members], [y for _, y in members], d))
    live.append(bool(members))
  prints = [print_sample(i, by_id[i][1], by_id[i][0]) for i in order]
  return Fitted(keys, weights, live, anchors, order, routes, prints)


def sum_logits(s: Settings, state: Fitted, x: list[int]) -> list[int]:
  """z [C] of codes x [d]."""
  near = [j for j in find_route(s, state.keys, x, state.live) if state.live[j]]
  return [sum(_dot(state.weights[j][c], x) for j in near) for c in range(s.classes)]


def classify(s: Settings, state: Fitted, e: list) -> int:
  z = sum_logits(s, state, encode(s, e))
  return z.index(max(z))


def settings_fingerprint(s: Settings) -> bytes:
  """[32]: sha256 of the JSON of all settings: keys sorted, ", " and ": ", ASCII.

  `keep` cannot change a state and is always written as true.
  """
  solver = {"type": "Ridge", "penalty": s.penalty, "scale": s.scale, "keep": True}
  text = json.dumps(
    {
      "type": "LegoConfig",
      "num_classes": s.classes,
      "num_adapters": s.n,
      "top_k": s.k,
      "seed": s.seed,
      "key_policy": s.key_policy,
      "key_noise": s.key_noise,
      "feature_map": s.feature_map,
      "feature_range": s.feature_range,
      "encoder": s.encoder,
      "aggregate": s.aggregate,
      "solver": solver,
    },
    sort_keys=True,
  )
  return hashlib.sha256(text.encode()).digest()


def digest(s: Settings, state: Fitted, fingerprint: bytes | None = None) -> str:
  d, count = len(state.keys[0]), len(state.ids)
  sha = hashlib.sha256(b"legonet-jax state 2")

  def add(kind: str, shape: tuple[int, ...], values: list) -> None:
    sha.update(f"{kind}{shape}".encode())
    letter = {"|i1": "b", "<i4": "i", "<i8": "q", "|b1": "?", "|u1": "B"}[kind]
    sha.update(struct.pack(f"<{len(values)}{letter}", *values))

  flat = [v for w in state.weights for row in w for v in row]
  add("|i1", (s.n, d), [v for key in state.keys for v in key])
  add("<i4", (s.n, s.classes, d), flat)
  add("|b1", (s.n,), state.live)
  add("<i8", (s.n,), state.anchors)
  add("<i8", (count,), state.ids)
  add("<i4", (count, s.k), [j for route in state.routes for j in route])
  add("|u1", (count, 16), [b for print_ in state.prints for b in print_])
  add("|u1", (32,), list(fingerprint or settings_fingerprint(s)))
  return sha.hexdigest()
