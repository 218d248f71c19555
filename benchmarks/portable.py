"""One digest in every environment: processors, threads, flags, solvers, releases.

    python -m benchmarks.portable [--only NAME ...] [--out FILE]
    python -m benchmarks.portable --scale cifar10 --encodings DIR
    python -m benchmarks.portable --releases 0.9.2 0.10.1 --chroot ROOT [--keep DIR]

Runs `benchmarks.portable_worker` (a fit, 100 requests with anchors, a class forgotten,
all test encodings classified) on this machine as it is, and again in environments that
give other float results: BLAS kernels and XLA code of older processors, fewer cores,
more devices, flags of JAX, other and worse float solvers. With `--releases` also other
releases of JAX, each in a virtual environment of its own; with `--chroot` the newest
JAX on the Python of a root folder (see `benchmarks.matrix`).

Every digest and every class must be the same. One line is printed for each environment
as it is done, and what it differs in. Exit code 0 if all are the same, 1 if one differs
or fails, 2 for bad input. An environment that this machine cannot run is skipped, and
its line says so. `--scale embedded` takes about 3 minutes on 2 cores, `cifar10`
(50,000 encodings, n = 1000) about 15.
"""

import argparse
from collections.abc import Callable, Iterator
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any, NamedTuple

from benchmarks.environments import (
  TREE,
  Place,
  StepError,
  check_root,
  install,
  work_folder,
)
from benchmarks.portable_worker import SCALES

_TIMEOUT = 3600.0
_NEWEST = "newest"
_STEPS = ("fit", "requests", "class")


class Environment(NamedTuple):
  """What a worker is given.

  Attributes:
    variables: environment variables to set, or to unset where None.
    options: of the worker.
    needs: a flag that the processor must have, or "".
  """

  variables: dict[str, str | None]
  options: tuple[str, ...] = ()
  needs: str = ""


ENVIRONMENTS = {
  "machine": Environment({}),
  "blas-detected": Environment({"OPENBLAS_CORETYPE": None}),
  "blas-prescott": Environment({"OPENBLAS_CORETYPE": "Prescott"}, needs="ssse3"),
  "blas-haswell": Environment({"OPENBLAS_CORETYPE": "Haswell"}, needs="avx2"),
  "blas-skylakex": Environment({"OPENBLAS_CORETYPE": "SkylakeX"}, needs="avx512f"),
  "xla-sse4.2": Environment({"XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}),
  "xla-avx": Environment({"XLA_FLAGS": "--xla_cpu_max_isa=AVX"}),
  "xla-avx2": Environment({"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}),
  "four-devices": Environment(
    {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
  ),
  "one-core": Environment({}, ("--one-core",)),
  "one-blas-thread": Environment({"OPENBLAS_NUM_THREADS": "1"}),
  "x64": Environment({"JAX_ENABLE_X64": "1"}),
  "bfloat16": Environment({"JAX_DEFAULT_MATMUL_PRECISION": "bfloat16"}),
  "noise-1e-9": Environment({}, ("--solver", "noise-1e-9")),
  "noise-1e-6": Environment({}, ("--solver", "noise-1e-6")),
  "lu-solve": Environment({}, ("--solver", "lu")),
  "float32-cholesky": Environment({}, ("--solver", "float32")),
}


def why_not(environment: Environment) -> str:
  """Why this machine cannot run it, or ""."""
  if "--one-core" in environment.options and not hasattr(os, "sched_setaffinity"):
    return "this system cannot bind a process to a core"
  try:
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
  except OSError:
    return ""
  need = environment.needs
  return f"the processor has no {need}" if need and need not in flags else ""


def run_here(name: str, options: list[str]) -> dict[str, Any]:
  """What the worker prints in one of `ENVIRONMENTS`; StepError if it fails."""
  environment = ENVIRONMENTS[name]
  module = [sys.executable, "-m", "benchmarks.portable_worker"]
  # Executables that were kept would be those of another environment.
  changes = {"JAX_COMPILATION_CACHE_DIR": None, **environment.variables}
  env = {k: v for k, v in {**os.environ, **changes}.items() if v is not None}
  done = subprocess.run(
    [*module, *options, *environment.options],
    cwd=TREE,
    env=env,
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    timeout=_TIMEOUT,
  )
  if done.returncode:
    lines = done.stderr.strip().splitlines()
    raise StepError(lines[-1] if lines else f"exit code {done.returncode}")
  return _parse(done.stdout)


def run_there(place: Place, args: argparse.Namespace) -> dict[str, Any]:
  """What the worker prints with another release of JAX."""
  place.folder.mkdir(parents=True, exist_ok=True)
  install(place)
  options = ["--scale", args.scale]
  copied = place.folder / "encodings"
  if args.encodings is not None:
    shutil.copytree(args.encodings, copied, dirs_exist_ok=True)
    options += ["--encodings", place.inside("encodings")]
  module = [place.inside("venv/bin/python"), "-m", "benchmarks.portable_worker"]
  try:
    return _parse(place.run(*module, *options, inside_tree=True, needs_output=True))
  finally:
    shutil.rmtree(copied, ignore_errors=True)


def _parse(text: str) -> dict[str, Any]:
  try:
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
  except (ValueError, IndexError) as e:
    raise StepError(f"the worker printed no result: {e}") from e
  return found


def compare(first: dict[str, Any], row: dict[str, Any]) -> list[str]:
  """What differs, in the order in which it is computed; empty if nothing does."""
  wrong = []
  for step in _STEPS:
    mine, theirs = row["parts"][step], first["parts"][step]
    wrong += [f"{part} after {step}" for part in mine if mine[part] != theirs[part]]
    for kind in ("digests", "classes"):
      if row[kind][step] != first[kind][step]:
        wrong.append(f"{kind} after {step}")
  return wrong


def plan(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Any]]]:
  """The environments to run, by name; the machine as it is comes first."""
  options = ["--scale", args.scale]
  if args.encodings is not None:
    options += ["--encodings", str(args.encodings.resolve())]
  for name in ENVIRONMENTS:
    if name == "machine" or args.only is None or name in args.only:
      yield name, lambda name=name: run_here(name, options)
  roots = [(release, None, sys.executable) for release in args.releases]
  if args.chroot is not None:
    roots.append((_NEWEST, args.chroot, "/usr/bin/python3"))
  for release, root, python in roots:
    keep = args.keep
    if keep is not None and root is not None:
      keep = root / keep.resolve().relative_to("/")
    with work_folder(keep, root) as work:
      place = Place(python, release, work / f"jax{release}", root, _TIMEOUT)
      yield f"jax-{release}", lambda place=place: run_there(place, args)


def examine(args: argparse.Namespace) -> list[dict[str, Any]]:
  """Runs all environments and prints a line for each."""
  rows: list[dict[str, Any]] = []
  print(f"{'environment':18} {'result':8} seconds  digests, classes, float bits")
  for name, call in plan(args):
    row: dict[str, Any] = {"name": name}
    began = time.perf_counter()
    reason = why_not(ENVIRONMENTS[name]) if name in ENVIRONMENTS else ""
    try:
      row |= {"skipped": reason} if reason else call()
    except (StepError, subprocess.TimeoutExpired) as e:
      row["problem"] = str(e)
    row["all_seconds"] = round(time.perf_counter() - began, 1)
    rows.append(row)
    if "digests" in row and "digests" in rows[0]:
      row["differs"] = compare(rows[0], row)
    _show(row)
    if "digests" not in rows[0]:
      break  # there is nothing to compare with
  return rows


def _show(row: dict[str, Any]) -> None:
  if "digests" not in row:
    result = "skipped" if "skipped" in row else "FAILED"
    print(f"{row['name']:18} {result:8}", row.get("skipped", row.get("problem")))
    return
  digests = " ".join(row["digests"][step][:12] for step in _STEPS)
  bits = row["environment"]["float_bits"]
  line = f"{digests} {row['classes']['class'][:8]} {bits['blas'][:6]} {bits['xla'][:6]}"
  result = "DIFFERS" if row["differs"] else "same"
  print(f"{row['name']:18} {result:8} {row['all_seconds']:7} ", line, flush=True)
  for what in row["differs"]:
    print(" " * 18, "differs:", what, flush=True)


def main() -> int:
  """Runs all environments; 1 unless all of them agree."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add("--scale", choices=SCALES, default="embedded")
  add("--encodings", type=pathlib.Path, metavar="DIR",
      help="folder with {train,test}_{encodings,labels}.npy, for cifar10")  # fmt: skip
  add("--only", nargs="+", choices=ENVIRONMENTS, metavar="NAME",
      help="these, and the machine as it is: " + ", ".join(ENVIRONMENTS))  # fmt: skip
  add("--releases", nargs="+", default=[], metavar="RELEASE", help="of jax")
  add("--chroot", type=pathlib.Path, metavar="ROOT", help="the newest jax in this root")
  add("--keep", type=pathlib.Path, metavar="DIR",
      help="where virtual environments stay, here and inside of ROOT")  # fmt: skip
  add("--out", type=pathlib.Path, metavar="FILE",
      help="(benchmarks/results/portable_SCALE.json)")  # fmt: skip
  args = parser.parse_args()
  if (args.scale == "cifar10") != (args.encodings is not None):
    parser.error("the scale cifar10, and only that, needs --encodings DIR")
  if args.encodings is not None and not (args.encodings / "test_labels.npy").exists():
    parser.error(f"{args.encodings} has no test_labels.npy")
  try:
    args.chroot = args.chroot and check_root(args.chroot)
  except SystemExit as e:
    parser.error(str(e))
  rows = examine(args)
  out = args.out or TREE / f"benchmarks/results/portable_{args.scale}.json"
  out.parent.mkdir(parents=True, exist_ok=True)
  out.write_text(json.dumps({"scale": args.scale, "rows": rows}, indent=1) + "\n")
  print(out)
  sound = all("skipped" in row or row.get("differs") == [] for row in rows)
  return 0 if sound else 1


if __name__ == "__main__":
  sys.exit(main())
