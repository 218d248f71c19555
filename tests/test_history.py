"""What `legonet history` answers to who asks for ids, with a salt or with the key."""

from cli_world import run, say  # noqa: F401 (a fixture)
from conftest import encodings, ids
import numpy as np
import pytest
from run_world import drop, unlearn

from legonet_jax.io import untrusted
from legonet_jax.runs import service

IDS = [int(i) for i in ids()]
STRANGER = max(IDS) + 17


def forget(capsys, path, *wanted):
  return say(capsys, "unlearn", path, "--json", "--ids", *wanted)


def ask(capsys, path, *wanted, salt=None):
  """What is said of each id, by id."""
  given = () if salt is None else ("--salt", salt)
  told = say(capsys, "history", path, *given, "--json", "--ids", *wanted)
  assert [found["id"] for found in told["ids"]] == list(wanted)
  return {found.pop("id"): found for found in told["ids"]}


def hide_key(patch, path):
  """As for another user, who may read the run but not its key."""
  read = untrusted.read_bytes

  def refuse(file, **kwargs):
    if file == path / "forgotten.key":
      raise PermissionError(13, "Permission denied", str(file))
    return read(file, **kwargs)

  patch.setattr(untrusted, "read_bytes", refuse)


def test_a_salt_tells_which_of_the_asked_ids_are_in_its_request(run, capsys):
  one = forget(capsys, run, *IDS[:2])
  other = forget(capsys, run, IDS[2])
  told = ask(capsys, run, IDS[0], IDS[2], IDS[3], STRANGER, salt=one["salt"])
  assert [told[i]["requests"] for i in told] == [[one["request"]], [], [], []]
  told = ask(capsys, run, *IDS[:3], salt=other["salt"])
  assert [told[i]["requests"] for i in told] == [[], [], [other["request"]]]
  text = say(
    capsys, "history", run, "--salt", one["salt"], "--ids", IDS[1], IDS[2], IDS[3]
  )
  assert f"{IDS[1]}: forgotten, in request {one['request']}" in text
  assert f"{IDS[2]}: forgotten, in no request of this salt" in text
  assert f"{IDS[3]}: held, in no request of this salt" in text


def test_the_owner_of_the_key_asks_without_a_salt(run, capsys):
  one = forget(capsys, run, *IDS[:2])
  other = forget(capsys, run, IDS[2])
  say(capsys, "heal", run)
  told = ask(capsys, run, STRANGER, *IDS[:4])
  assert [told[i]["status"] for i in told] == [
    "never held", "forgotten", "forgotten", "forgotten", "held",
  ]  # fmt: skip
  names = [[], [one["request"]], [one["request"]], [other["request"]], []]
  assert [told[i]["requests"] for i in told] == names
  told = say(capsys, "history", run, "--json", "--ids", IDS[2])
  [entry] = told["entries"]
  assert (entry["event"], entry["requests"]) == ("complete", [other["request"]])
  assert told["ids"][0]["entries"] == [entry["seq"]]
  text = say(capsys, "history", run, "--ids", IDS[2], STRANGER)
  assert f"{IDS[2]}: forgotten, in request {other['request']}" in text
  assert f"{STRANGER}: never held" in text
  assert "now in the run's stores: 0 of 2" in text


def test_requests_that_were_merged_are_all_named(run, capsys):
  names = sorted(drop(run, unlearn([i])) for i in IDS[:2])
  service.carry_out(run)
  assert ask(capsys, run, IDS[0])[IDS[0]]["requests"] == names


def test_a_sample_that_was_brought_back_is_held_and_forgotten_again(run, capsys):
  forget(capsys, run, IDS[0])
  back = run.parent / "back.npz"
  np.savez(back, encodings=encodings(1), labels=[0], ids=IDS[:1])
  say(capsys, "learn", run, "--encodings", back, "--allow-relearn")
  assert ask(capsys, run, IDS[0])[IDS[0]]["status"] == "held"
  again = forget(capsys, run, IDS[0])
  told = ask(capsys, run, IDS[0])[IDS[0]]
  assert (told["status"], told["requests"]) == ("forgotten", [again["request"]])


def test_asking_changes_nothing(run, capsys):
  forget(capsys, run, IDS[0])
  before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
  ask(capsys, run, *IDS[:2])
  assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


def test_without_the_key_only_a_salt_answers(run, capsys, monkeypatch):
  done = forget(capsys, run, *IDS[:2])
  forget(capsys, run, IDS[2])
  hide_key(monkeypatch, run)
  assert "--salt" in say(capsys, "history", run, "--ids", IDS[0], code=2)
  told = ask(capsys, run, IDS[0], IDS[2], IDS[3], STRANGER, salt=done["salt"])
  assert [told[i]["status"] for i in told] == [
    "forgotten", "not known", "held", "not known",
  ]  # fmt: skip


def test_marks_of_a_lost_key_are_not_taken_for_never_held(run, capsys):
  forget(capsys, run, IDS[0])
  (run / "forgotten.key").unlink()
  assert "legonet repair" in say(capsys, "history", run, "--ids", IDS[0], code=2)
  say(capsys, "repair", run)
  forget(capsys, run, IDS[1])
  told = ask(capsys, run, *IDS[:3])
  assert [told[i]["status"] for i in told] == ["not known", "forgotten", "held"]
  assert "not known" in say(capsys, "history", run, "--ids", IDS[0])


def test_a_salt_that_does_not_fit_says_how_to_ask_without_it(run, capsys):
  forget(capsys, run, IDS[0])
  args = ("history", run, "--salt", "00" * 32, "--ids", IDS[0])
  said = say(capsys, *args, code=2)
  assert "legonet status RUN --salts" in said
  assert "leave out --salt" in said


@pytest.mark.parametrize("wanted", [[-1], [2**63 - 1], [IDS[0], IDS[0]]])
def test_odd_ids_get_an_answer(run, capsys, wanted):
  told = say(capsys, "history", run, "--json", "--ids", *wanted)
  assert [found["id"] for found in told["ids"]] == wanted
