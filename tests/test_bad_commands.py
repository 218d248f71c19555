"""Bad input on the command line: one clear line, exit code 2, nothing changed."""

import collections
from collections.abc import Callable
import contextlib
import json
import pathlib
import signal
from typing import NamedTuple

import bad_commands
import bad_files
import bad_runs
from bad_world import (
  command,
  place,  # noqa: F401 (a fixture)
  snapshot,
  world,  # noqa: F401 (a fixture)
)
import numpy as np
import pytest

from legonet_jax.cli import main as cli
from legonet_jax.runs import journal

SECONDS = 20


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
