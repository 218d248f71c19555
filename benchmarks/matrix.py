"""Which releases of JAX and Python this tree works with, found out by installing them.

    python -m benchmarks.matrix [--jax 0.9.2 0.10.1 newest] [--python PATH ...]
                                [--out DIR] [--keep DIR]
    python -m benchmarks.matrix --chroot ROOT --jax newest
    python -m benchmarks.matrix --jax 0.9.2 --pytest-args tests/test_routing.py

For every pair of a Python and a release of JAX: a new virtual environment, this package
from a copy of the tree with its `test` extra and that very release of jax and jaxlib,
`legonet doctor`, and the tests. One line is printed for each as it is done, and
DIR/matrix.md and DIR/matrix.json are written anew, so that Ctrl-C loses nothing.

A release that this package excludes, or that the Python has no wheel for, is a line of
the table that says so. With `--chroot` everything happens in a root folder that has a
Python of its own, such as one made by `debootstrap`, with /proc and /dev mounted and
pip set up; that needs root's rights.
"""

import argparse
from collections.abc import Sequence
import itertools
import json
import pathlib
import shutil
import sys
import time
from typing import Any
import xml.etree.ElementTree as ElementTree

from benchmarks.environments import (
  TREE,
  Place,
  StepError,
  check_root,
  install,
  work_folder,
)

RELEASES = ("0.9.2", "0.10.1", "newest")
_COUNTS = ("passed", "failed", "skipped", "seconds")
_COLUMNS = ("python", "jax", "numpy", "doctor", *_COUNTS)
_VERSION = "import platform; print(platform.python_version())"
_PROBE = """\
import importlib.metadata, json
names = ("jax", "jaxlib", "numpy")
print(json.dumps({name: importlib.metadata.version(name) for name in names}))
"""


def examine(place: Place, pytest_args: Sequence[str]) -> dict[str, Any]:
  """A row of the table: installs, asks the doctor and runs the tests."""
  row: dict[str, Any] = {"python": place.python, "jax": place.release}
  start = time.perf_counter()
  try:
    row["python"] = place.run(place.python, "-c", _VERSION).strip()
    install(place, "test")
    row |= json.loads(place.run(place.inside("venv/bin/python"), "-c", _PROBE))
    row["doctor"] = _ask_doctor(place)
    row |= _run_tests(place, pytest_args)
  except StepError as e:
    row["problem"] = str(e)
  row["all_seconds"] = round(time.perf_counter() - start, 1)
  return row


def _ask_doctor(place: Place) -> str:
  """`right`, or which known answers are wrong."""
  command = [place.inside("venv/bin/legonet"), "doctor", "--json"]
  try:
    # Exit code 1 is that of a wrong answer, and of Python for whatever goes wrong.
    text = place.run(*command, accept=(0, 1), needs_output=True)
    checks = json.loads(text)["checks"]
  except (StepError, ValueError, KeyError) as e:
    return f"does not run: {e}"
  wrong = [check["name"] for check in checks if not check["passed"]]
  return f"WRONG: {', '.join(wrong)}" if wrong else "right"


def _run_tests(place: Place, pytest_args: Sequence[str]) -> dict[str, Any]:
  """Counts, seconds and the names of the tests that failed."""
  report = place.folder / "tests.xml"
  report.unlink(missing_ok=True)
  options = ["-q", "-n", "2", "-p", "no:cacheprovider"]
  options += [f"--junitxml={place.inside('tests.xml')}"]
  command = [place.inside("venv/bin/python"), "-m", "pytest", *options, *pytest_args]
  place.run(*command, accept=(0, 1), inside_tree=True)
  suite = ElementTree.parse(report).getroot().find("testsuite")
  if suite is None:
    raise StepError("pytest wrote no report")
  count = {name: int(suite.attrib[name]) for name in ("tests", "skipped")}
  cases = suite.iter("testcase")
  failed = [
    f"{case.get('classname')}::{case.get('name')}"
    for case in cases
    if case.find("failure") is not None or case.find("error") is not None
  ]
  return {
    "passed": count["tests"] - count["skipped"] - len(failed),
    "failed": len(failed),
    "skipped": count["skipped"],
    "seconds": round(float(suite.attrib["time"]), 1),
    "failures": failed,
  }


def to_markdown(rows: Sequence[dict[str, Any]]) -> str:
  """The table, and below it the tests that failed."""
  lines = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
  for row in rows:
    cells = [str(row.get(name, "")) for name in _COLUMNS]
    if "problem" in row:
      cells[3] = f"{cells[3]} {row['problem']}".strip().replace("|", "\\|")
    lines.append(f"| {' | '.join(cells)} |")
  for row in rows:
    where = f"Python {row['python']}, jax {row['jax']}"
    lines += [f"\n{where}: `{name}` fails" for name in row.get("failures", ())]
  return "\n".join(lines) + "\n"


def _write(out: pathlib.Path, rows: list[dict[str, Any]], args: Sequence[str]) -> None:
  """Writes both files, each in one step."""
  value = {"pytest_args": list(args), "rows": rows}
  texts = {"json": json.dumps(value, indent=1) + "\n", "md": to_markdown(rows)}
  out.mkdir(parents=True, exist_ok=True)
  for ending, text in texts.items():
    part = out / f"matrix.{ending}.part"
    part.write_text(text)
    part.replace(out / f"matrix.{ending}")


def _show(row: dict[str, Any]) -> None:
  start = f"python {row['python']}, jax {row['jax']}:"
  if "problem" in row:
    print(start, "FAILED:", row["problem"], flush=True)
    return
  counts = ", ".join(f"{row[name]} {name}" for name in _COUNTS[:3])
  print(start, f"doctor {row['doctor']}; {counts} in {row['seconds']} s", flush=True)


def main() -> int:
  """Goes through all environments; 1 if one of them is not as it should be."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add("--jax", nargs="+", default=RELEASES, metavar="RELEASE",
      help="releases, or `newest` for what pip chooses")  # fmt: skip
  add("--python", nargs="+", metavar="PATH", help="interpreters (the one of this)")
  add("--chroot", type=pathlib.Path, metavar="ROOT", help="make them in this root")
  add("--keep", type=pathlib.Path, metavar="DIR", help="where environments stay")
  add("--timeout", type=float, default=7200, metavar="SECONDS", help="for one command")
  add("--out", type=pathlib.Path, default=TREE / "benchmarks/results", metavar="DIR")
  add("--pytest-args", nargs=argparse.REMAINDER, default=[],
      help="all that follows is for pytest (the whole suite)")  # fmt: skip
  args = parser.parse_args()
  root = None if args.chroot is None else check_root(args.chroot)
  pythons = args.python or [sys.executable if root is None else "/usr/bin/python3"]
  rows: list[dict[str, Any]] = []
  try:
    with work_folder(args.keep, root) as work:
      for (at, python), release in itertools.product(enumerate(pythons), args.jax):
        folder = work / f"python{at}-jax{release}"
        folder.mkdir(exist_ok=True)
        place = Place(python, release, folder, root, args.timeout)
        rows.append(examine(place, args.pytest_args))
        _show(rows[-1])
        _write(args.out, rows, args.pytest_args)
        if args.keep is None:
          shutil.rmtree(folder, ignore_errors=True)
  except KeyboardInterrupt:
    kept = f"{args.out}/matrix.md has {len(rows)}" if rows else "nothing was written"
    print(f"\ninterrupted; of the environments {kept}", file=sys.stderr)
    return 130
  sound = all(row.get("doctor") == "right" and not row.get("failed", 1) for row in rows)
  return 0 if sound else 1


if __name__ == "__main__":
  sys.exit(main())
