"""Bad input gets one clear line and exit code 2, and changes nothing on disk.

The tables are in `bad_commands` (options), `bad_files` (files that are read) and
`bad_runs` (runs and stores that are damaged).
"""

import collections
from collections.abc import Callable
import contextlib
import functools
import io
import json
import os
import pathlib
import shlex
import shutil
import signal
import stat
import sys
from typing import NamedTuple

import bad_commands
import bad_files
import bad_runs
from conftest import encodings
import jax
import numpy as np
from PIL import Image
import pytest
from test_weights import torchvision_state

from legonet_jax.cli import answers, main as cli
from legonet_jax.encoder import resnet, weights
from legonet_jax.runs import journal

SECONDS = 20
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


@contextlib.contextmanager
def time_limit():
  """Ends a command that waits for a FIFO, or works for ever."""

  def stop(*_):
    raise AssertionError(f"still at work after {SECONDS} s")

  before = signal.signal(signal.SIGALRM, stop)
  signal.alarm(SECONDS)
  try:
    yield
  finally:
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Bad(NamedTuple):
  """A command line that must fail, and a part of what it must say."""

  command: str
  line: str
  message: str
  what: str = ""
  prepare: Callable[[], object] = lambda: None

  @property
  def name(self):
    return f"{self.line[:60]} {self.what}".strip()


CASES = [
  Bad(name, f"{name} {rest}".strip(), *others)
  for table in (bad_commands, bad_files, bad_runs)
  for name, rest, *others in table.cases()
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_bad_input_is_one_line_and_exit_code_2_and_changes_nothing(place, case, capsys):
  case.prepare()
  before = snapshot()
  with time_limit():
    code = command(case.line)
  out, err = capsys.readouterr()
  assert code == 2, err
  assert out == ""
  lines = [line for line in err.splitlines() if not line.startswith("legonet: note: ")]
  assert len(lines) == 1, err
  assert lines[0].startswith("legonet: error: ")
  assert case.message in lines[0]
  assert lines[0].isprintable()
  assert len(lines[0]) < 1100
  assert snapshot() == before


def test_the_table_is_long_and_has_every_command():
  count = collections.Counter(case.command for case in CASES)
  parser = cli.make_parser()
  known = next(a.choices for a in parser._actions if isinstance(a.choices, dict))
  assert len(CASES) >= 320
  assert min(count[name] for name in known) >= 10


VERDICTS = list(bad_runs.verdicts())


@pytest.mark.parametrize(
  ("rest", "what", "prepare"), VERDICTS, ids=[f"{v[1]}" for v in VERDICTS]
)
def test_what_does_not_hold_is_exit_code_1_and_nothing_changes(
  place, rest, what, prepare, capsys
):
  prepare()
  before = snapshot()
  with time_limit():
    assert command(f"verify {rest}") == 1
  out, err = capsys.readouterr()
  assert "FAIL  " in out
  assert all(line.startswith("legonet: note: ") for line in err.splitlines())
  assert (out + err).replace("\n", "").isprintable()
  assert snapshot() == before


DAMAGES = list(bad_runs.checkpoints())


@pytest.mark.parametrize(("what", "prepare"), DAMAGES, ids=[d[0] for d in DAMAGES])
def test_a_damaged_checkpoint_is_made_again_or_left_as_it_is(
  place, what, prepare, capsys
):
  prepare()
  before = snapshot()
  with time_limit():
    code = command("repair run")
  out, err = capsys.readouterr()
  assert code in (0, 2)
  if code == 0:
    assert "equal to the lost one" in out
    assert command("verify run") == 0
  else:
    assert err.count("\n") == 1
    assert snapshot() == before


def test_a_request_of_odd_numbers_is_rejected_and_holds_up_nobody(place, capsys):
  pathlib.Path("run/requests").mkdir(exist_ok=True)
  head = json.dumps({"kind": "heal", "defer": False, "store": ""})[:-1]
  arrays = {"ids": np.zeros(0, np.int64), "salt": np.zeros(32, np.uint8)}
  for number, value in enumerate(("1e400", "null", '"x"', "[]", "9" * 5000), 50):
    text = f'{head}, "defer_over": {value}}}'
    arrays["head"] = np.frombuffer(text.encode(), np.uint8)
    np.savez(f"run/requests/{number:020d}-{0:016x}.npz", **arrays)
  assert command("unlearn run --ids 100") == 0
  events = [e["event"] for e in journal.read(pathlib.Path("run/journal.jsonl"))]
  assert events.count("rejected") == 5
  assert events.count("complete") == 2
  assert command("verify run") == 0


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
  line = f"encode --dataset photos {bad_commands.IMAGES} --out a/b/x"
  assert command(line) == 2
  assert snapshot() == before
  assert command(line.replace("--json", "")) == 2  # no bar where nobody sees it move
  assert capsys.readouterr().err.count("\n") == 2
