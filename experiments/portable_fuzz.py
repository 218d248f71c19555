r"""Random requests end in the digest of a fit that was computed in another way.

    python -m experiments.portable_fuzz [--sequences 1000]

Each sequence draws settings and samples, fits on some of them and makes requests: it
unlearns (samples, anchors, batches, deferred and healed later), learns, and does both
at once. The digest at the end must be that of two other ways to the same samples:

    refit     a fresh fit
    batched   a fit on another set, then one request for the whole difference

Both run with another float solver (LU instead of Cholesky), on one thread, and keep no
sums between requests, so that nothing compiled is shared. Result in
experiments/results/portable_fuzz.json. Exit code 1 if a digest differs.
"""

import argparse
import collections
from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import pathlib
import sys
import time
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from experiments import common
import legonet_jax as lego
from legonet_jax.cli import console
from legonet_jax.runtime import parallel
from legonet_jax.solvers import rounding_f64

COUNT, DIM, CLASSES, ADAPTERS, TOP_K = 40, 6, 3, 6, 2
_MAPS = (("sqrt", None), ("l2", None), ("l2", 0.4), ("none", 2.0))
_NOISES = (0.0, 0.01, 0.05, 1.0)
_PENALTIES = (1e-6, 0.01, 0.01, 0.3, 1e6)


class World(NamedTuple):
  """One problem: settings, and encodings [N, d], labels [N] and ids [N]."""

  cfg: lego.LegoConfig
  encodings: NDArray[np.float32]
  labels: NDArray[np.int64]
  ids: NDArray[np.int64]


class Outcome(NamedTuple):
  """The end of a sequence.

  Attributes:
    ids: what remains.
    digest: after the requests.
    others: the digests of the other ways, by name.
    requests: how many of each kind there were.
  """

  ids: NDArray[np.int64]
  digest: str
  others: dict[str, str]
  requests: collections.Counter[str]


def make_world(rng: np.random.Generator) -> World:
  """Settings and samples; some samples are equal, and one is all zeros."""
  feature_map, feature_range = _MAPS[rng.integers(len(_MAPS))]
  cfg = lego.LegoConfig(
    CLASSES,
    ADAPTERS,
    TOP_K,
    seed=int(rng.integers(2**32)),
    key_noise=float(rng.choice(_NOISES)),
    feature_map=feature_map,  # type: ignore[arg-type]
    feature_range=feature_range,
    solver=lego.Ridge(penalty=float(rng.choice(_PENALTIES))),
  )
  e = rng.normal(size=(COUNT, DIM)).astype(np.float32)
  e[rng.random(e.shape) < rng.choice([0, 0.3])] = 0
  e[1], e[2] = 0, e[3]
  labels = rng.integers(0, CLASSES, COUNT)
  ids = rng.choice(2**40, COUNT, replace=False)
  return World(cfg, e, labels, ids)


def run(seed: int) -> Outcome:
  """One sequence of requests, and the other ways to the same samples."""
  rng = np.random.default_rng([seed, 77])
  cfg, e, labels, ids = world = make_world(rng)
  samples = lego.make_samples(cfg, e, labels, ids)
  requests: collections.Counter[str] = collections.Counter()
  start = rng.permutation(ids)[: rng.integers(ADAPTERS + 2, COUNT + 1)]
  state, _ = lego.fit(cfg, lego.select(samples, start))
  for _ in range(rng.integers(1, 9)):
    state, kind = _request(rng, world, samples, state)
    requests[kind] += 1
  state, _ = lego.heal(state, samples)
  others = other_ways(rng, world, samples, state.ids)
  return Outcome(state.ids, lego.digest(state), others, requests)


def _request(
  rng: np.random.Generator, world: World, samples: lego.Samples, state: lego.LegoState
) -> tuple[lego.LegoState, str]:
  """A random request that the state allows, and its kind."""
  held = state.ids
  spare = min(len(held) - ADAPTERS, 6)
  absent = np.setdiff1d(world.ids, held)
  kinds = ["heal"]
  if spare > 0:
    kinds += ["unlearn", "anchor", "defer"] * 2
  if len(absent):
    kinds += ["learn"] * 3 + ["update"] * (2 * (spare > 0))
  kind = str(rng.choice(kinds))
  gone = rng.permutation(held)[: rng.integers(1, max(spare, 1) + 1)]
  new = rng.permutation(absent)[: rng.integers(1, 7)]
  if kind == "anchor":
    gone = np.union1d(gone[:-1], rng.choice(state.anchors, 1))
  if kind == "heal":
    state, _ = lego.heal(state, samples)
  elif kind == "learn":
    state, _ = lego.learn(state, samples, new)
  elif kind == "update":
    defer = bool(rng.integers(2))
    state, _ = lego.update(state, samples, gone, new, defer=defer)
  else:
    # What is forgotten need not be in the table any more.
    table = lego.drop(samples, gone) if rng.integers(2) else samples
    state, _ = lego.unlearn(state, table, gone, defer=kind == "defer")
  return state, kind


def other_ways(
  rng: np.random.Generator, world: World, samples: lego.Samples, ids: NDArray[np.int64]
) -> dict[str, str]:
  """The digests of other computations of the state of `ids`."""
  solver = dataclasses.replace(world.cfg.solver, keep=False)
  cfg = dataclasses.replace(world.cfg, solver=solver)
  with another_machine():
    refit, _ = lego.fit(cfg, lego.select(samples, ids))
    start = rng.permutation(world.ids)[: rng.integers(ADAPTERS, COUNT + 1)]
    state, _ = lego.fit(cfg, lego.select(samples, start))
    gone, new = np.setdiff1d(start, ids), np.setdiff1d(ids, start)
    # If all are to go, some must come first, for each request must leave samples.
    if len(gone) == len(start):
      state, _ = lego.learn(state, samples, new[:1])
      new = new[1:]
    state, _ = lego.update(state, samples, gone, new)
  return {"refit": lego.digest(refit), "batched": lego.digest(state)}


@contextlib.contextmanager
def another_machine() -> Iterator[None]:
  """In this context LU solves the systems of what is compiled, on one thread."""
  with (
    mock.patch.object(rounding_f64, "make_solver", make_lu_solver),
    mock.patch.object(parallel, "count", return_value=1),
  ):
    yield


def make_lu_solver(matrix: jax.Array) -> Callable[[jax.Array], jax.Array]:
  """V M = R by LU with pivots, where the library takes a Cholesky factor."""
  return lambda right: jnp.linalg.solve(matrix, right.T).T


def main() -> int:
  """Runs all sequences and writes the counts."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--sequences", type=int, default=1000)
  parser.add_argument("--seed", type=int, default=0, help="the first sequence's seed")
  parser.add_argument(
    "--out",
    type=pathlib.Path,
    default=common.RESULTS / "portable_fuzz.json",
    metavar="FILE",
  )
  args = parser.parse_args()
  begin = time.perf_counter()
  requests: collections.Counter[str] = collections.Counter()
  differ: list[dict[str, Any]] = []
  with console.bar("sequences", quiet=False) as progress:
    for i in range(args.sequences):
      found = run(args.seed + i)
      requests += found.requests
      differ += [
        {"seed": args.seed + i, "way": way}
        for way, digest in found.others.items()
        if digest != found.digest
      ]
      progress(i + 1, args.sequences)
  seconds = time.perf_counter() - begin
  print(
    f"{args.sequences} sequences, {requests.total():,} requests {dict(requests)}:"
    f" {len(differ)} of {2 * args.sequences} digests differ; {seconds:.0f} s"
  )
  report = {
    "sequences": args.sequences,
    "seed": args.seed,
    "shape": {"N": COUNT, "d": DIM, "C": CLASSES, "n": ADAPTERS, "k": TOP_K},
    "requests": dict(sorted(requests.items())),
    "digests_compared": 2 * args.sequences,
    "differ": differ,
    "seconds": seconds,
  }
  print(common.save(args.out.parent, args.out.stem, report))
  return 1 if differ else 0


if __name__ == "__main__":
  sys.exit(main())
