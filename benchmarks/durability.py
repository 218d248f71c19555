"""What durability costs: `unlearn` through the journal against the bare function.

    python -m benchmarks.durability --encodings DIR      real encodings, N = 50,000
    python -m benchmarks.durability                      synthetic ones of the same size

In one process, request by request in turn: the same samples are forgotten by
`legonet_jax.unlearn` in memory, and through a run: request file, journal, training,
checkpoint, erasure in the store, old checkpoint shredded, journal. Both end in the same
digest, and then no file of run and store may hold an id or an encoding of the samples.
DIR has train_encodings.npy [N, d] and train_labels.npy [N].
"""

import argparse
import json
import pathlib
import tempfile
import time
from typing import Any

import numpy as np

from experiments import common
import legonet_jax as lego
from legonet_jax.io import lock
from legonet_jax.runs import (
  create as create_lib,
  requests as requests_lib,
  run as run_lib,
  service,
  session as session_lib,
)
from legonet_jax.store import rows as store_rows


def load(args: argparse.Namespace) -> store_rows.StoreRows:
  """The samples, with ids that are spread over 62 bits."""
  rng = np.random.default_rng(0)
  if args.encodings is not None:
    split = common.load(args.encodings, "train")
    encodings, labels = np.asarray(split.encodings), split.labels
  else:
    centres = rng.normal(size=(10, 512))
    labels = rng.integers(0, 10, args.samples)
    noise = rng.normal(size=(args.samples, 512))
    encodings = np.maximum(centres[labels] + 2 * noise, 0).astype(np.float16)
  count = min(len(encodings), args.samples)
  ids = np.sort(rng.integers(2**40, 2**62, count))
  zeros = np.zeros(count, np.uint8)
  return store_rows.StoreRows(
    encodings[:count], labels[:count].astype(np.int32), ids, zeros
  )


def traces(folder: pathlib.Path, rows: store_rows.StoreRows, ids: Any) -> int:
  """How many files below `folder` hold an id or an encoding of these samples."""
  needles = []
  for i in ids:
    row = rows.encodings[np.searchsorted(rows.ids, i)]
    needles += [np.int64(i).tobytes(), str(i).encode(), row.tobytes()]
  files = [p.read_bytes() for p in folder.rglob("*") if p.is_file()]
  return sum(any(needle in data for needle in needles) for data in files)


def main() -> None:
  """Runs the benchmark."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--encodings", type=pathlib.Path, metavar="DIR")
  parser.add_argument("--samples", type=int, default=50_000, metavar="N")
  parser.add_argument("--adapters", type=int, default=1000, metavar="n")
  parser.add_argument("--requests", type=int, default=30)
  parser.add_argument("--solver", choices=("sgd", "ridge"), default="sgd")
  parser.add_argument("--work", type=pathlib.Path, metavar="DIR", help="on which disk")
  parser.add_argument("--out", type=pathlib.Path, default=common.RESULTS)
  args = parser.parse_args()
  rows = load(args)
  solver = lego.Ridge() if args.solver == "ridge" else lego.Sgd()
  cfg = lego.LegoConfig(num_classes=10, num_adapters=args.adapters, solver=solver)
  with tempfile.TemporaryDirectory(dir=args.work) as temporary:
    folder = pathlib.Path(temporary)
    store_rows.land(folder / "store", rows, cfg.encoder)
    start = time.perf_counter()
    run = create_lib.create(folder / "run", cfg, folder / "store")
    fitted = time.perf_counter() - start
    samples = lego.make_samples(cfg, rows.encodings, rows.labels, rows.ids)
    result = measure(args, cfg, run, samples, rows)
  sizes = {"samples": len(rows.ids), "adapters": args.adapters}
  result = {**sizes, "solver": args.solver, **result}
  result |= {"real_encodings": args.encodings is not None, "fit_seconds": fitted}
  print(json.dumps({k: v for k, v in result.items() if k != "steps"}, indent=1))
  print(common.save(args.out, f"durability_{args.solver}", result))


def measure(
  args: argparse.Namespace,
  cfg: lego.LegoConfig,
  run: run_lib.Run,
  samples: lego.Samples,
  rows: store_rows.StoreRows,
) -> dict[str, Any]:
  """Seconds of each request, both ways."""
  path, state = run.layout.root, run.state
  wanted = np.random.default_rng(1).choice(rows.ids, args.requests + 1, replace=False)
  bare: list[float] = []
  durable: list[float] = []
  steps: dict[str, list[float]] = {}
  with lock.hold(path):
    session = session_lib.open_session(path)
    for number, one in enumerate(wanted):
      start = time.perf_counter()
      state, _ = lego.unlearn(state, samples, [one])
      middle = last = time.perf_counter()
      seen: dict[str, float] = {}

      def on_step(name: str, seen: dict[str, float] = seen) -> None:
        nonlocal last
        now = time.perf_counter()
        seen[name] = seen.get(name, 0.0) + now - last
        last = now

      request = requests_lib.make("unlearn", np.asarray([one]))
      service.submit(session, request)
      on_step("requested")
      session = service.settle(session, on_step=on_step)
      end = time.perf_counter()
      if number:  # the first one loads the samples and compiles
        bare.append(middle - start)
        durable.append(end - middle)
        for name, seconds in seen.items():
          steps.setdefault(name, []).append(seconds)
  equal = lego.digest(state) == session.run.manifest.digest
  if not equal:
    raise SystemExit("the two ways do not end in the same digest")
  return {
    "requests": args.requests,
    "bare_median_seconds": float(np.median(bare)),
    "durable_median_seconds": float(np.median(durable)),
    "overhead_median_seconds": float(np.median(np.subtract(durable, bare))),
    "digest": lego.digest(state),
    "same_digest": equal,
    "files_with_a_trace": traces(path.parent, rows, wanted),
    "files_with_a_retained_id": traces(path.parent, rows, session.run.state.ids[:1]),
    "step_median_seconds": {k: float(np.median(v)) for k, v in steps.items()},
  }


if __name__ == "__main__":
  main()
