"""A folder with a run, stores and files, for commands that go wrong."""

import contextlib
import functools
import os
import pathlib
import shlex
import shutil
import stat

from conftest import encodings
import numpy as np
from PIL import Image
import pytest
from test_weights import torchvision_state

from legonet_jax.cli import main as cli
from legonet_jax.encoder import resnet, weights

LOCKS = ("lock", "queue.lock")  # they hold the number of a process
TRAIN, LOST = 30, 129
PARSER = functools.cache(cli.make_parser)


def command(line):
  """Runs a command line; its exit code."""
  try:
    return cli.main(shlex.split(line))
  except SystemExit as e:
    return e.code


def make_world():
  """Stores, runs and files, all of them sound, in the folder that we are in."""
  count = TRAIN + 6
  ids, labels = np.arange(count) + 100, np.arange(count) % 3
  rows = {"encodings": encodings(count), "labels": labels, "ids": ids}
  rows["split"] = (np.arange(count) >= TRAIN).astype(np.uint8)
  new = {"encodings": encodings(3, seed=5), "labels": [0, 1, 2], "ids": [500, 501, 502]}
  names = ["cat", "dog", "owl"]
  np.savez("all.npz", **rows)
  np.savez("all_named.npz", **rows, classes=names)
  np.savez("new.npz", **new)
  np.savez("named.npz", **new, classes=names)
  np.savez("other_names.npz", **new, classes=["cat", "dog", "emu"])
  np.savez("far.npz", **(new | {"labels": [0, 1, 3]}))
  np.savez("gone.npz", **(new | {"ids": [500, 501, LOST]}))
  np.savez("wide.npz", **(new | {"encodings": np.ones((3, 8), np.float32)}))
  np.save("keys.npy", encodings(4, seed=6))
  np.save("wide_keys.npy", np.ones((4, 8), np.float32))
  images = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), np.uint8)
  np.savez("images.npz", images=images, labels=[0, 1, 2, 0, 1])
  pathlib.Path("words.txt").write_text("one\ntwo\n")
  pathlib.Path("unknown.txt").write_text("100\n7\n")
  pathlib.Path("alone.pub").write_text("")
  for folder in ("empty", "folder.png", "photos/cat", "unfinished"):
    pathlib.Path(folder).mkdir(parents=True)
  Image.fromarray(images[0]).save("photos/cat/1.png")
  os.mkfifo("fifo")
  os.mkfifo("fifo.png")
  fit = "--adapters 4 --top-k 2"
  for line in (
    "import-encodings all.npz --out store",
    "import-encodings all_named.npz --out named_store",
    "import-encodings new.npz --out other_store --encoder other",
    "keygen signing.key",
    f"fit store --out run {fit}",
    f"fit named_store --out named {fit}",
    f"fit store --out given {fit} --key-policy given --keys keys.npy",
    f"unlearn run --ids {LOST} --sign-key signing.key",
    "unlearn given --erased",
    "verify run --full --out certificate.json",
    "verify named --full --out named.json",
    "verify given --full --out given.json",
  ):
    assert command(line) == 0, line
  shutil.copy("run/run.json", "unfinished")
  pathlib.Path("unfinished/lock").write_text("")


def snapshot():
  """All that is below the folder we are in: kind, permissions and contents."""
  found = {}
  for folder, folders, names in os.walk("."):
    for name in (*folders, *names):
      path = os.path.join(folder, name)
      mode, content = os.lstat(path).st_mode, b""
      if stat.S_ISLNK(mode):
        content = os.readlink(path)
      elif stat.S_ISREG(mode) and name not in LOCKS:
        with contextlib.suppress(PermissionError), open(path, "rb") as file:
          content = file.read()
      found[path] = mode, content
  return found


def restore(wanted):
  """Makes the folder that we are in what it was in a snapshot."""
  now = snapshot()
  for path in sorted(now, reverse=True):
    if now[path] != wanted.get(path):
      if stat.S_ISDIR(now[path][0]):
        os.chmod(path, 0o700)
        shutil.rmtree(path)
      else:
        pathlib.Path(path).unlink()
  for path, (mode, content) in sorted(wanted.items()):
    if os.path.lexists(path):
      continue
    if stat.S_ISDIR(mode):
      os.mkdir(path)
    elif stat.S_ISFIFO(mode):
      os.mkfifo(path)
    else:
      pathlib.Path(path).write_bytes(content)
    os.chmod(path, stat.S_IMODE(mode))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
  """The folder of the world, what is in it, and weights in memory."""
  folder = tmp_path_factory.mktemp("bad")
  with contextlib.chdir(folder):
    make_world()
    first = snapshot()
  net = resnet.build_resnet("resnet18")
  variables = weights.from_torchvision(net, torchvision_state("resnet18"))
  return folder, first, weights.Weights(variables, "0" * 64, "WEIGHTS")


@pytest.fixture
def place(world, monkeypatch):
  """The world as it was made; the weights `WEIGHTS` take no time to read."""
  folder, first, sound = world
  load = weights.load

  def load_fast(net, path):
    return sound if str(path) == sound.source else load(net, path)

  monkeypatch.setattr(weights, "load", load_fast)
  monkeypatch.setattr(cli, "make_parser", PARSER)  # a fifth of the time of all tests
  with contextlib.chdir(folder):
    yield
    restore(first)
