"""A model in service: answers queries, takes deletion requests, survives a restart.

    python examples/serve_deletions.py

A run is a folder. A request is durable when `submit` returns and complete when `settle`
returns: the new state is saved, the sample's row in the store is overwritten, and every
older checkpoint is gone. Kill the process at any moment; the next one finishes.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from legonet_jax.core.prediction import predict_array
from legonet_jax.data.embedded import load_embedded
from legonet_jax.io import lock
from legonet_jax.runs import requests, service, session as session_lib, verify


def legonet(*words: object) -> None:
  """The command, as in a shell."""
  subprocess.run([sys.executable, "-m", "legonet_jax", *map(str, words)], check=True)


def make_run(folder: pathlib.Path) -> pathlib.Path:
  """A run on 1,500 of the embedded samples, made by the commands that you would use."""
  train, _ = load_embedded()
  part = slice(None, None, 4)
  np.savez(
    folder / "data.npz",
    encodings=train.encodings[part],
    labels=train.labels[part],
    ids=train.ids[part],
  )
  legonet("import-encodings", folder / "data.npz", "--out", folder / "store")
  legonet("fit", folder / "store", "--out", folder / "run", "--adapters", 50)
  return folder / "run"


def serve(path: pathlib.Path) -> None:
  """One process at work: queries and requests in turns, until it stops."""
  train, test = load_embedded()
  with lock.hold(path):
    session = session_lib.open_session(path)
    session = service.settle(session)  # finishes what was accepted before a crash
    for asked in train.ids[:20:4]:
      run = session.run
      probs = predict_array(run.state.model, test.encodings[:100])
      right = np.mean(probs.argmax(axis=1) == test.labels[:100])
      service.submit(session, requests.make("unlearn", np.array([asked])))
      session = service.settle(session)
      held = len(session.run.state.ids)
      print(f"accuracy {right:.0%}; forgot one sample, {held:,} left")


def main() -> None:
  """Makes a run, serves it, and proves what is left."""
  with tempfile.TemporaryDirectory() as name:
    path = make_run(pathlib.Path(name))
    serve(path)
    for check in verify.verify(path, full=True).checks:  # trains all again, compares
      assert check.passed, check
    print("verified: every adapter was trained again, to the same bits")


if __name__ == "__main__":
  main()
