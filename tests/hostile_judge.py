"""Reads hostile files, each in a process of its own, and tells what came of it.

`python hostile_judge.py` takes a JSON list of [name, reader, path] on its input. Every
case is read in a fork, so that one that hangs or eats memory ends alone. The output is
a JSON object by name: `error` and `message`, how many `megabytes` the process grew at
its peak, and how it `died` if it did.
"""

import json
import os
import pathlib
import resource
import signal
import sys

# Of computing, and of waiting, which takes long on a busy machine.
SECONDS, PATIENCE = 5, 30
SPARE = 3 << 30
SIZE = 224


def _status(field):
  text = pathlib.Path("/proc/self/status").read_text()
  return int(text.split(f"{field}:")[1].split()[0]) << 10


def _read_image(path):
  from legonet_jax.data import folder

  return folder.read_image(path, SIZE)


def _read_folder(path):
  from legonet_jax import data

  found = data.load_dataset(str(path), SIZE)
  return found.read(0, len(found.ids))


def _read_cifar(path):
  from legonet_jax import data

  return data.load_dataset("cifar10", 32, folder=path)


def _read_weights(path):
  from legonet_jax.encoder import resnet, weights

  return weights.load(resnet.build_resnet("resnet18"), path)


READERS = {
  "image": _read_image,
  "folder": _read_folder,
  "npz": _read_folder,
  "cifar": _read_cifar,
  "weights": _read_weights,
}


def _try(reader, path):
  """What a reader says about a file; runs in the fork."""
  signal.alarm(PATIENCE)
  resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
  limit = _status("VmSize") + SPARE  # so that the machine survives; not the measure
  resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
  before = _status("VmHWM")
  try:
    READERS[reader](pathlib.Path(path))
    result = {"error": "", "message": "it was read"}
  except BaseException as e:
    kinds = [kind.__name__ for kind in type(e).__mro__]
    error = "LegoError" if "LegoError" in kinds else kinds[0]
    result = {"error": error, "message": str(e)}
  return result | {"megabytes": (_status("VmHWM") - before) >> 20}


def _judge(reader, path):
  here, there = os.pipe()
  child = os.fork()
  if not child:
    os.close(here)
    with os.fdopen(there, "w") as out:
      json.dump(_try(reader, path), out)
    os._exit(0)
  os.close(there)
  with os.fdopen(here) as file:
    text = file.read()
  _, status = os.waitpid(child, 0)
  if status:
    return {"died": f"signal {os.waitstatus_to_exitcode(status)}"}
  return json.loads(text)


def main():
  import legonet_jax  # noqa: F401 (once, before the forks)
  from legonet_jax.data import folder  # noqa: F401
  from legonet_jax.encoder import weights  # noqa: F401

  cases = json.load(sys.stdin)
  json.dump({name: _judge(reader, path) for name, reader, path in cases}, sys.stdout)


if __name__ == "__main__":
  main()
