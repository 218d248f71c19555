"""A hostile file is refused in one line, within bounds of time and memory."""

import json
import os
import pathlib
import subprocess
import sys

from hostile_data import CIFAR, FOLDERS, IMAGES, NPZ, SPECIAL, sparse
from hostile_weights import PTH, SAFETENSORS, entry, safe
import pytest

MEGABYTES = 300
JUDGE = pathlib.Path(__file__).with_name("hostile_judge.py")


def _huge_safetensors(path):
  header = safe({"conv1.weight": entry("U8", (5 << 29,), (0, 5 << 29))})
  sparse(path, len(header) + (5 << 29))
  with path.open("r+b") as file:
    file.write(header)


def _cases():
  """Of every case its name, its reader, the end of its file's name, and its content."""
  tables = (
    ("image", ".png", IMAGES | SPECIAL),
    ("npz", ".npz", NPZ | SPECIAL),
    ("weights", ".pth", PTH | SPECIAL),
    ("weights", ".safetensors", SAFETENSORS | SPECIAL),
    ("weights", ".safetensors", {"2.5 GB": _huge_safetensors}),
    ("folder", "", FOLDERS),
    ("cifar", "", CIFAR),
  )
  for reader, suffix, table in tables:
    for name, content in table.items():
      yield f"{suffix or reader}: {name}", reader, suffix, content


CASES = list(_cases())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
  made = tmp_path_factory.mktemp("hostile")
  yield made
  # Folders that are nested so deeply are too much for pytest.
  subprocess.run(["rm", "-rf", str(made)], check=True)


@pytest.fixture(scope="module")
def outcomes(place):
  given = []
  for i, (name, reader, suffix, content) in enumerate(CASES):
    path = place / f"{i}{suffix}"
    if isinstance(content, bytes):
      path.write_bytes(content)
    else:
      content(path)
    given.append((name, reader, str(path)))
  # Pillow hands EPS files to a program of this name.
  ghostscript = place / "bin" / "gs"
  ghostscript.parent.mkdir()
  ghostscript.write_text(f"#!/bin/sh\ntouch {place}/ghostscript-ran\n")
  ghostscript.chmod(0o755)
  paths = f"{ghostscript.parent}{os.pathsep}{os.environ['PATH']}"
  done = subprocess.run(
    [sys.executable, "-W", "error", str(JUDGE)],
    input=json.dumps(given), env=os.environ | {"PATH": paths},
    capture_output=True, text=True, check=True,
  )  # fmt: skip
  told = json.loads(done.stdout)
  told["ghostscript"] = (place / "ghostscript-ran").exists()
  told["stderr"] = done.stderr
  return told


@pytest.mark.parametrize("name", [case[0] for case in CASES])
def test_a_hostile_file_is_refused_in_bounded_time_and_memory(outcomes, name):
  outcome = outcomes[name]
  assert "died" not in outcome
  # What the system says of a file that is not there is said as it is.
  expected = "OSError" if name.endswith("a link to itself") else "LegoError"
  assert outcome["error"] == expected, outcome
  assert outcome["megabytes"] < MEGABYTES


@pytest.mark.parametrize("name", [case[0] for case in CASES])
def test_the_refusal_is_one_short_printable_line(outcomes, name):
  message = outcomes[name].get("message", "")
  assert message.isprintable()
  assert 20 < len(message) < 500


def test_no_image_starts_another_program(outcomes):
  assert not outcomes["ghostscript"]


def test_nothing_is_said_beside_the_refusal(outcomes):
  assert outcomes["stderr"] == ""


def test_there_are_many_of_them():
  assert len(CASES) > 60
  assert len({case[0] for case in CASES}) == len(CASES)
