"""Odd terminals, closed outputs, no home and too little memory."""

import contextlib
import io
import os
import pathlib
import sys

import bad_files
import bad_options
from bad_world import (
  command,
  place,  # noqa: F401 (a fixture)
  snapshot,
  world,  # noqa: F401 (a fixture)
)
import jax
import numpy as np
import pytest

from legonet_jax.cli import answers


def test_a_name_that_cannot_be_printed_does_not_end_a_command(place, capsys):
  assert command("predict run --encodings new.npz --out 'a\udcff.npz'") == 0
  assert capsys.readouterr().out == "a\\udcff.npz: 3 answers\n"
  assert command("predict run --encodings new.npz --out 'a\udcff.npz'") == 0  # again
  with np.load("a\udcff.npz") as file:
    assert file["ids"].tolist() == [500, 501, 502]


def test_an_encoding_that_lacks_a_letter_does_not_end_a_command(place, monkeypatch):
  np.savez("x.npz", encodings=np.eye(6, 7), labels=[0, 1] * 3, classes=["ü", "日"])
  assert command("import-encodings x.npz --out x") == 0
  assert command("fit x --out y --adapters 2 --top-k 1") == 0
  shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
  monkeypatch.setattr(sys, "stdout", shown)
  assert command("predict y --encodings x") == 0
  assert b"class \\xfc" in shown.buffer.getvalue()


@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_a_closed_output_does_not_end_a_command(place, monkeypatch, closed):
  for name in closed:
    monkeypatch.setattr(sys, name, None)
  assert command("heal run") == 0
  assert command("status run") == 0
  assert command("status none") == 2
  assert command("status") == 2
  for name in closed:
    getattr(sys, name).close()


def test_a_full_output_is_one_line(place, monkeypatch, capsys):
  with contextlib.suppress(OSError), open("/dev/full", "w") as full:
    monkeypatch.setattr(sys, "stdout", full)
    assert command("status run") == 2
  assert capsys.readouterr().err.count("\n") == 1


def test_a_user_without_a_home_needs_one_for_downloads_only(place, monkeypatch, capsys):
  def no_home():
    raise RuntimeError("Could not determine home directory.")

  monkeypatch.setattr(pathlib.Path, "home", no_home)
  for name in ("LEGONET_CACHE", "XDG_CACHE_HOME"):
    monkeypatch.delenv(name, raising=False)
  cache = jax.config.jax_compilation_cache_dir
  jax.config.update("jax_compilation_cache_dir", None)
  try:
    assert command("status run") == 0
    assert command("encode --dataset images.npz --out x") == 2
  finally:
    jax.config.update("jax_compilation_cache_dir", cache)
  assert "name one in LEGONET_CACHE" in capsys.readouterr().err


@pytest.mark.parametrize(
  "error",
  [
    MemoryError(),
    np._core._exceptions._ArrayMemoryError((1 << 60,), np.dtype(np.uint8)),
    jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocating 1 TB"),
  ],
)
def test_too_little_memory_is_one_line(place, monkeypatch, capsys, error):
  def fail(*_):
    raise error

  monkeypatch.setattr(answers, "answer", fail)
  assert command("predict run --encodings new.npz") == 2
  err = capsys.readouterr().err
  assert err.startswith("legonet: error: there is not enough memory for this")
  assert err.count("\n") == 1


@pytest.mark.parametrize(
  "error", [ValueError("x"), KeyError("x"), jax.errors.JaxRuntimeError("INTERNAL: x")]
)
def test_a_bug_is_not_taken_for_bad_input(place, monkeypatch, error):
  def fail(*_):
    raise error

  monkeypatch.setattr(answers, "answer", fail)
  with pytest.raises(type(error)):
    command("predict run --encodings new.npz")


def test_settings_that_cannot_work_leave_no_trace_of_a_run(place, monkeypatch, capsys):
  before = snapshot()
  line = "fit store --out a/b/x --adapters 30 --top-k 2"
  assert command(line) == 2
  assert snapshot() == before
  pathlib.Path("x").mkdir()
  assert command(line.replace("a/b/x", "x")) == 2
  assert os.listdir("x") == []
  assert command("fit store --out x --adapters 4 --top-k 2") == 0


def test_a_damaged_image_leaves_no_folder_behind(place, capsys):
  bad_files.picture("dog/1.png", b"one\n")
  before = snapshot()
  line = f"encode --dataset photos {bad_options.IMAGES} --out a/b/x"
  assert command(line) == 2
  assert snapshot() == before
  assert command(line.replace("--json", "")) == 2  # no bar where nobody sees it move
  assert capsys.readouterr().err.count("\n") == 2
