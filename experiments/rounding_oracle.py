r"""Every weight of real adapters against an exact rational solver.

    python -m experiments.rounding_oracle [--adapters 50] [--systems 1000]
        [--encodings DIR]

W_j must be floor(2^g B_j (A_j + s_j I)^-1 + 1/2), entry by entry. FLINT solves the same
system in rational numbers (`pip install python-flint`), and every entry is compared.
A_j and B_j are summed here once more. The adapters are spread over all sizes, from the
smallest to the largest. Both forms of certified rounding inside jit, in float64 and in
limbs, are compared as well, and with `--systems` on random small systems: few members,
large sums, one-hot rows. Result in experiments/results/rounding_oracle.json. Exit code
1 if an entry differs.
"""

import argparse
from fractions import Fraction
import functools
import importlib
import json
import pathlib
import sys
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from experiments import common
import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import console
from legonet_jax.data import embedded
from legonet_jax.runtime import parallel
from legonet_jax.solvers import certified, rounding


class Problem(NamedTuple):
  """One system: A [d, d] int64, B [C, d] int64, s and g."""

  gram: NDArray[np.int64]
  cross: NDArray[np.int64]
  shift: int
  grid: int


def make_problem(
  codes: NDArray[np.int8], labels: NDArray[Any], classes: int, penalty: Fraction
) -> Problem:
  """The system of members with `codes` [m, d] and `labels` [m]."""
  # float64 holds these sums exactly and is faster than int64.
  x, dim = codes.astype(np.float64), codes.shape[1]
  gram = (x.T @ x).astype(np.int64)
  hit = np.arange(classes)[:, None] == np.asarray(labels)[None, :]
  cross = (hit.astype(np.float64) @ x).astype(np.int64)
  shift = rounding.choose_shift(penalty, int(np.trace(gram)), dim)
  return Problem(gram, cross, shift, rounding.choose_grid(penalty, dim))


def to_system(problem: Problem) -> rounding.System:
  """The same system, as the library takes it."""
  gram = problem.gram.astype(np.float64)
  cross = problem.cross.astype(np.int32)
  return rounding.System(gram, problem.shift, cross, problem.grid)


def solve_exactly(problem: Problem) -> list[list[Fraction]]:
  """2^g B (A + s I)^-1 [C, d], as rational numbers; for small systems."""
  numerators, denominator = _solve(problem)
  low = int(denominator)
  return [
    [Fraction(int(x) << problem.grid, low) for x in row]
    for row in numerators.transpose().tolist()
  ]


def round_exactly(problem: Problem) -> tuple[NDArray[np.int64], int]:
  """floor(2^g B (A + s I)^-1 + 1/2) [C, d], and how many entries are exact ties."""
  numerators, low = _solve(problem)
  doubled = numerators.transpose() * (2 << problem.grid)  # 2 p, where W = round(p / q)
  twice = 2 * low
  rounded, ties = [], 0
  for row in doubled.tolist():
    pairs = [divmod(x + low, twice) for x in row]
    rounded.append([int(q) for q, _ in pairs])
    ties += sum(rest == 0 for _, rest in pairs)
  return np.array(rounded, np.int64).reshape(problem.cross.shape), ties


def _solve(problem: Problem) -> tuple[Any, Any]:
  """FLINT's (P [d, C], q) with P / q = ((A + s I)^-1 Bᵀ) and q > 0."""
  flint = load_flint()
  dim = len(problem.gram)
  rows = problem.gram.tolist()
  for i in range(dim):
    rows[i][i] += problem.shift
  right = flint.fmpz_mat(problem.cross.T.tolist())
  numerators, low = flint.fmpz_mat(rows).solve(right).numer_denom()
  return (numerators, low) if low > 0 else (-numerators, -low)


def load_flint() -> Any:
  """The module `flint`; ConfigError if it is not installed."""
  try:
    return importlib.import_module("flint")
  except ImportError as e:
    raise errors.ConfigError("FLINT is not installed; pip install python-flint") from e


def load_samples(
  folder: pathlib.Path | None, penalty: float
) -> tuple[lego.Samples, int]:
  """The training samples of a folder, or the embedded ones, and the classes."""
  ids: NDArray[np.int64] | None = None
  encodings: NDArray[Any]
  if folder is None:
    split = embedded.load_embedded()[0]
    encodings, labels, ids = split.encodings, split.labels, split.ids
  else:
    encodings, labels = common.load(folder, "train")
  classes = int(labels.max()) + 1
  cfg = lego.LegoConfig(classes, solver=lego.Ridge(penalty=penalty))
  return lego.make_samples(cfg, encodings, labels, ids), classes


def members_of(state: lego.LegoState, samples: lego.Samples, j: int) -> NDArray[Any]:
  """The rows of the table that activate adapter j."""
  mine = state.ids[(state.routes == j).any(axis=1)]
  return np.searchsorted(samples.ids, np.sort(mine))


@functools.cache
def compiled(penalty: Fraction, form: certified.Arithmetic) -> Any:
  """One form of certified rounding inside jit."""
  solve = functools.partial(certified.solve_rounded, penalty, arithmetic=form)
  return jax.jit(solve)


def compare_forms(problem: Problem, penalty: Fraction, expected: Any) -> dict[str, int]:
  """Entries that each form gets wrong, and those that it leaves to the host."""
  found = {}
  for form in ("float64", "limbs"):
    weights, undecided = compiled(penalty, form)(
      problem.gram.astype(np.int32), problem.cross.astype(np.int32)
    )
    wrong = (np.asarray(weights) != expected) & ~np.asarray(undecided)
    found[f"wrong_in_{form}"] = int(wrong.sum())
    found[f"undecided_in_{form}"] = int(undecided.sum())
  return found


def draw_problem(rng: np.random.Generator, penalty: Fraction) -> Problem:
  """A small system of random members, some of them degenerate."""
  dim, m = int(rng.choice([1, 3, 17, 40])), int(rng.integers(1, 60))
  most = int(rng.choice([1, 5, 127]))
  codes = rng.integers(-most, most + 1, (m, dim))
  kind = rng.integers(4)
  if kind == 1:  # members of one coordinate each
    codes = most * np.eye(dim, dtype=int)[rng.integers(0, dim, m)]
  elif kind == 2:  # a few members, many times
    codes = codes[rng.integers(0, min(2, m), m)]
  elif kind == 3:  # nearly dependent coordinates
    codes[:, dim // 2 :] = codes[:, : dim - dim // 2]
  return make_problem(codes.astype(np.int8), rng.integers(0, 3, m), 3, penalty)


def compare_systems(count: int, seed: int) -> dict[str, int]:
  """Counts over `count` random systems and four penalties."""
  rng, total = np.random.default_rng(seed), dict[str, int]()
  for i in range(count):
    penalty = Fraction(("0.000001", "0.01", "1", "1000000")[i % 4])
    problem = draw_problem(rng, penalty)
    expected, ties = round_exactly(problem)
    host = rounding.solve_rounded(to_system(problem)).weights
    row = {"systems": 1, "entries": expected.size, "ties": ties}
    row["wrong_on_the_host"] = int((host != expected).sum())
    row |= compare_forms(problem, penalty, expected)
    total = {name: total.get(name, 0) + value for name, value in row.items()}
  return total


def compare(
  problem: Problem, weights: NDArray[np.int32], penalty: Fraction
) -> dict[str, Any]:
  """One adapter of a fit: its weights, those of its system, and those of FLINT."""
  start = time.perf_counter()
  with parallel.one_blas_thread():  # as the library does
    found = rounding.solve_rounded(to_system(problem))
  middle = time.perf_counter()
  expected, ties = round_exactly(problem)
  end = time.perf_counter()
  return {
    "entries": expected.size,
    "wrong": int((found.weights != expected).sum()),
    "wrong_in_the_fit": int((weights != expected).sum()),
    "refined": found.refined,
    "exact": found.exact,
    "ties": found.ties,
    "ties_by_flint": ties,
    "largest": int(np.abs(expected).max(initial=0)),
    "seconds": middle - start,
    "flint_seconds": end - middle,
    **compare_forms(problem, penalty, expected),
  }


def main() -> int:
  """Compares adapters, prints the counts and writes them."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--adapters", type=int, default=50, help="how many to compare")
  parser.add_argument("--systems", type=int, default=0, help="random small systems")
  parser.add_argument("--n", type=int, help="of how many; 1000, or 100 if embedded")
  parser.add_argument("--penalty", type=float, default=0.01)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument(
    "--encodings",
    type=pathlib.Path,
    metavar="DIR",
    help="folder with train_{encodings,labels}.npy; the embedded data if not given",
  )
  parser.add_argument(
    "--out",
    type=pathlib.Path,
    default=common.RESULTS / "rounding_oracle.json",
    metavar="FILE",
  )
  args = parser.parse_args()
  load_flint()
  samples, classes = load_samples(args.encodings, args.penalty)
  n = args.n or (100 if args.encodings is None else 1000)
  solver = lego.Ridge(penalty=args.penalty)
  cfg = lego.LegoConfig(classes, n, seed=args.seed, solver=solver)
  state, _ = lego.fit(cfg, samples)
  by_size = np.argsort(state.sizes, kind="stable")
  at = np.linspace(0, n - 1, min(args.adapters, n)).astype(int)
  chosen = by_size[at].tolist()
  rows: list[dict[str, Any]] = []
  with console.bar("adapters", quiet=False) as progress:
    for j in chosen:
      mine = members_of(state, samples, j)
      problem = make_problem(
        samples.codes[mine], samples.labels[mine], classes, solver.exact_penalty
      )
      row = compare(problem, state.solutions[j].weights, solver.exact_penalty)
      rows.append({"adapter": j, "members": len(mine), **row})
      progress(len(rows), len(chosen))
  apart = ("adapter", "members", "largest")
  total = {name: sum(r[name] for r in rows) for name in rows[0] if name not in apart}
  report = {
    "data": "embedded" if args.encodings is None else args.encodings.name,
    "samples": len(samples.ids),
    "d": samples.codes.shape[1],
    "n": n,
    "k": cfg.top_k,
    "penalty": args.penalty,
    "seed": args.seed,
    "adapters": len(rows),
    "total": total,
    "systems": compare_systems(args.systems, args.seed),
    "largest": max(row["largest"] for row in rows),
    "each": rows,
  }
  print(
    f"{len(rows)} adapters, {total['entries']:,} entries: {total['wrong']} wrong,"
    f" {total['wrong_in_the_fit']} wrong in the fit; {total['refined']} rows refined,"
    f" {total['exact']} in integers, {total['ties']} ties; largest"
    f" |W| {report['largest']:,}; {total['seconds']:.2f} s,"
    f" FLINT {total['flint_seconds']:.0f} s"
  )
  print(json.dumps(report["systems"]))
  print(common.save(args.out.parent, args.out.stem, report))
  counts = (total, report["systems"])
  agreed = not sum(c[k] for c in counts for k in c if k.startswith("wrong"))
  return 0 if agreed and total["ties"] == total["ties_by_flint"] else 1


if __name__ == "__main__":
  sys.exit(main())
