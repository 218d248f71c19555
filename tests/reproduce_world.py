"""What the tests of the reproduction share."""

import importlib
import types

import numpy as np

from experiments import common
from experiments.reproduce import plan
from experiments.reproduce.datasets import Bench

command = importlib.import_module("experiments.reproduce.__main__")


def names(folder):
  return sorted(path.name for path in (folder / "cells").iterdir())


class Stub(Bench):
  """Tells the size of its data and has none: cells are listed without computing."""

  encodings = (common.RawSplit(np.zeros((9, 2), np.float16), np.arange(9)),) * 2
  images = types.SimpleNamespace(split=np.arange(4000) % 2, fingerprint="images")
  pretrained = (None, "weights")


def listed(suite, scale):
  return plan.make_cells(suite, Stub(scale, "cifar10"))


def run(tmp_path, *args):
  return command.main([*args, "--scale", "smoke", "--out", str(tmp_path)])
