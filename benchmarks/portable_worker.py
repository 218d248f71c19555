"""One life of a model, told as digests: `benchmarks.portable` compares them.

    python -m benchmarks.portable_worker [--scale embedded|cifar10] [--encodings DIR]
        [--solver own|noise-1e-9|noise-1e-6|lu|float32] [--one-core]

Fits `Ridge`, forgets samples one by one, some of them anchors, then a whole class, and
classifies all test encodings. Prints one line of JSON: the digest of each state, the
sha256 of the classes, the sha256 of every part (so that a difference can be found), and
what shows that the environment was another: the BLAS, and the bits of float results.

`--solver` puts another float solver below the certified rounding: noise on its
solution, an LU factor, or a Cholesky factor in float32.
"""

import argparse
from collections.abc import Iterable
import hashlib
import json
import os
import pathlib
import time
from typing import Any

SCALES = {"embedded": 100, "cifar10": 1000}  # the number of adapters
SOLVERS = ("own", "noise-1e-9", "noise-1e-6", "lu", "float32")
_ANCHOR_EVERY = 20
_CLASS = 3


def keep_to_one_core() -> None:
  """Binds this process to the first core that it may use; before jax starts."""
  os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def sha256(arrays: Iterable[Any]) -> str:
  """Of the types, shapes and bytes of arrays."""
  import numpy as np

  found = hashlib.sha256()
  for array in arrays:
    flat = np.ascontiguousarray(array)
    found.update(f"{flat.dtype.str}{flat.shape}".encode())
    found.update(flat.data)
  return found.hexdigest()


def load(args: argparse.Namespace) -> tuple[Any, Any]:
  """The training and the test samples: each with encodings, labels and ids."""
  import numpy as np

  from legonet_jax.data import embedded

  if args.scale == "embedded":
    train, test = embedded.load_embedded()
    few = embedded.EmbeddedSplit(*(part[:: args.thin] for part in train))
    return few, test

  def read(split: str) -> embedded.EmbeddedSplit:
    e = np.load(args.encodings / f"{split}_encodings.npy")
    y = np.load(args.encodings / f"{split}_labels.npy").astype(np.int64)
    return embedded.EmbeddedSplit(e, y, np.arange(len(y)))

  return read("train"), read("test")


def choose(state: Any, requests: int) -> list[int]:
  """Ids to forget, spread over the retained set; every 20th, from the 1st, an anchor.

  No random numbers, whose generator might differ between releases of numpy.
  """
  import numpy as np

  rest = state.ids[~np.isin(state.ids, state.anchors)]
  plain = rest[:: max(1, len(rest) // requests)].tolist()
  anchors = state.anchors[:: max(1, len(state.anchors) * _ANCHOR_EVERY // requests)]
  at_anchor = range(0, requests, _ANCHOR_EVERY)
  chosen = dict(zip(at_anchor, anchors.tolist(), strict=False))
  return [chosen.get(i, plain[i]) for i in range(requests)]


def parts_of(samples: Any, state: Any) -> dict[str, str]:
  """sha256 of every part of a state, in the order in which they are computed."""
  sums = [a for s in state.solutions if s.statistics is not None for a in s.statistics]
  model = state.model
  parts = {
    "codes": [samples.codes],
    "anchors": [state.anchors],
    "keys": [model.keys],
    "routes": [state.routes],
    "sums": sums,
    "weights": [s.weights for s in state.solutions],
    "live": [model.live],
    "prints": [state.prints],
    "settings": [state.settings],
  }
  return {name: sha256(arrays) for name, arrays in parts.items()}


def facts() -> dict[str, Any]:
  """The environment, and float results that may differ between environments."""
  import jax
  import jax.numpy as jnp
  import numpy as np
  import threadpoolctl

  import legonet_jax as lego

  x = np.random.default_rng(0).standard_normal((700, 512)).astype(np.float32)
  wide = x.astype(np.float64)
  solved = np.linalg.solve(wide.T @ wide + np.eye(512), wide[0])
  product = jax.jit(lambda x: jax.nn.softmax(x.T @ x / 512))(x)
  blas = threadpoolctl.threadpool_info()
  ours = ("OPENBLAS_", "OMP_", "XLA_", "JAX_")
  known = ("internal_api", "version", "architecture", "num_threads")
  return {
    **lego.environment(),
    "variables": {k: v for k, v in os.environ.items() if k.startswith(ours)},
    "devices": len(jax.devices()),
    "x64": bool(jax.config.jax_enable_x64),
    "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
    "blas": [{name: one.get(name) for name in known} for one in blas],
    "float_bits": {
      "blas": sha256([solved])[:16],
      "xla": sha256([jnp.asarray(product, jnp.float32)])[:16],
    },
  }


def live(args: argparse.Namespace) -> dict[str, Any]:
  """The whole life, and the seconds of its steps."""
  import numpy as np

  from benchmarks import float_solvers
  import legonet_jax as lego

  count_rows = float_solvers.use(args.solver)
  train, test = load(args)
  n = args.adapters or SCALES[args.scale]
  cfg = lego.LegoConfig(int(train.labels.max()) + 1, num_adapters=n)
  samples = lego.make_samples(cfg, train.encodings, train.labels, train.ids)
  digests, classes, parts, seconds = {}, {}, {}, {}
  began = time.perf_counter()

  def note(step: str, state: Any) -> None:
    nonlocal began
    seconds[step] = round(time.perf_counter() - began, 2)
    digests[step], parts[step] = lego.digest(state), parts_of(samples, state)
    found = np.asarray(lego.classify(state.model, test.encodings))
    classes[step] = hashlib.sha256(json.dumps(found.tolist()).encode()).hexdigest()
    correct[step] = int((found == test.labels).sum())
    began = time.perf_counter()

  correct: dict[str, int] = {}
  state, _ = lego.fit(cfg, samples)
  note("fit", state)
  wanted = choose(state, args.requests)
  anchors = int(np.isin(wanted, state.anchors).sum())
  for i in wanted:
    state, _ = lego.unlearn(state, samples, [i])
  note("requests", state)
  gone = np.setdiff1d(train.ids[train.labels == _CLASS], wanted)
  state, _ = lego.unlearn(state, samples, gone)
  note("class", state)
  return {
    "digests": digests,
    "classes": classes,
    "parts": parts,
    "N": len(train.labels),
    "n": n,
    "requests": len(wanted),
    "anchors_forgotten": anchors,
    "correct": correct,
    "tested": len(test.labels),
    "solver": args.solver,
    "rounding": count_rows(),
    "seconds": seconds,
    "environment": facts(),
  }


def main() -> None:
  """Prints the life as JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add("--scale", choices=SCALES, default="embedded")
  add("--encodings", type=pathlib.Path, metavar="DIR", help="for cifar10")
  add("--solver", choices=SOLVERS, default=SOLVERS[0])
  add("--one-core", action="store_true", help="keep to one core")
  add("--requests", type=int, default=100)
  add("--adapters", type=int, help="n, if not that of the scale")
  add("--thin", type=int, default=1, help="every how manyth embedded sample")
  args = parser.parse_args()
  if args.scale == "cifar10" and args.encodings is None:
    parser.error("the scale cifar10 needs --encodings DIR")
  if args.one_core:
    keep_to_one_core()
  print(json.dumps(live(args)))


if __name__ == "__main__":
  main()
