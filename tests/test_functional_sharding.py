"""The pure program on many devices: the bits of one, on meshes of both kinds."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent


MESHES = ("Auto:2", "Explicit:8")  # sharding_world.py says how to try all others


def start(name):
  env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
  command = [sys.executable, ROOT / "sharding_world.py", name, *MESHES]
  pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
  return subprocess.Popen(command, env=env, cwd=ROOT, text=True, **pipes)


def test_adapters_split_over_devices_have_the_bits_of_one():
  for process in [start(name) for name in ("ridge", "sgd")]:
    out, err = process.communicate()
    assert process.returncode == 0, err[-2000:]
    assert out.split() == [*MESHES]
