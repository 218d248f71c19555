"""How far one has to read: the modules that run in one deletion."""

import collections
import pathlib
import re
import sys
import threading

from conftest import CONFIG, encodings, ids, labels
import numpy as np

import legonet_jax as lego

ROOT = pathlib.Path(lego.__file__).parent
DOCS = ROOT.parent / "docs" / "architecture.md"


def modules_that_run(call):
  """Modules of the package in which a function is entered while `call` runs."""
  seen = collections.Counter()

  def note(frame, event, _):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(str(ROOT)):
      seen[pathlib.Path(file).relative_to(ROOT).as_posix()] += 1

  threading.setprofile(note)
  sys.setprofile(note)
  try:
    call()
  finally:
    sys.setprofile(None)
    threading.setprofile(None)
  return set(seen)


def test_one_deletion_touches_at_most_15_modules_and_the_docs_name_them():
  cfg = lego.LegoConfig(CONFIG.num_classes, num_adapters=8, top_k=2)
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  state, _ = lego.fit(cfg, samples)
  first, second = np.setdiff1d(state.ids, state.anchors)[:2]
  state, _ = lego.unlearn(state, samples, [first])  # compiles
  seen = modules_that_run(lambda: lego.unlearn(state, samples, [second]))
  assert len(seen) <= 15
  page = DOCS.read_text().split("## The modules of one deletion")[1]
  table = page.split("\n\n")
  named = set(re.findall(r"^\| `legonet_jax/([^`]+)`", page, re.MULTILINE))
  assert named == seen, table
