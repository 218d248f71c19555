"""Deletions that are sent again: each id's own answer, and nothing is refused."""

from cli_world import run, say  # noqa: F401 (a fixture)
from conftest import CONFIG, encodings, ids, labels
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import main as cli

IDS = [int(i) for i in ids()]


def forget(capsys, path, *wanted):
  return say(capsys, "unlearn", path, "--skip-forgotten", "--json", "--ids", *wanted)


def test_a_list_that_is_sent_again_gets_an_answer_for_each_id(run, capsys):
  stranger = max(IDS) + 17
  first = forget(capsys, run, *IDS[:2])
  assert (first["status"], first["forgotten now"]) == ("complete", sorted(IDS[:2]))
  assert (first["forgotten before"], first["never held"]) == ([], [])
  again = forget(capsys, run, *IDS[1:3], stranger)
  assert (again["status"], again["ids"]) == ("complete", IDS[2:3])
  assert again["forgotten now"] == IDS[2:3]
  assert again["forgotten before"] == IDS[1:2]
  assert again["never held"] == [stranger]
  journal = (run / "journal.jsonl").read_bytes()
  nothing = forget(capsys, run, *IDS[:3])
  assert (nothing["status"], nothing["count"]) == ("nothing to do", 0)
  assert nothing["forgotten before"] == sorted(IDS[:3])
  assert (run / "journal.jsonl").read_bytes() == journal
  text = say(capsys, "unlearn", run, "--skip-forgotten", "--ids", *IDS[2:4])
  assert "1 forgotten now, 1 forgotten before, 0 never held" in text
  say(capsys, "verify", run, "--full")


def test_without_the_option_a_forgotten_sample_is_still_refused(run, capsys):
  say(capsys, "unlearn", run, "--ids", IDS[0])
  before = (run / "journal.jsonl").read_bytes()
  assert cli.main(["unlearn", str(run), "--ids", *map(str, IDS[:2])]) == 2
  assert "--skip-forgotten" in capsys.readouterr().err
  assert (run / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize("chosen", [["--class", "1"], ["--random", "2"]])
def test_the_option_changes_nothing_for_samples_that_the_model_holds(
  run, capsys, chosen
):
  told = say(capsys, "unlearn", run, "--skip-forgotten", "--json", *chosen)
  assert told["forgotten now"] == told["ids"]
  assert np.all(np.isin(told["ids"], IDS))


def test_the_api_skips_samples_that_a_state_does_not_hold():
  samples = lego.make_samples(CONFIG, encodings(), labels(), ids())
  state, _ = lego.fit(CONFIG, samples)
  once, _ = lego.unlearn(state, samples, IDS[:2])
  twice, info = lego.unlearn(once, samples, IDS[:3], skip_forgotten=True)
  want, _ = lego.unlearn(state, samples, IDS[:3])
  assert lego.digest(twice) == lego.digest(want)
  same, info = lego.unlearn(once, samples, IDS[:2], skip_forgotten=True)
  assert lego.digest(same) == lego.digest(once)
  assert info.adapters_retrained == 0
  with pytest.raises(errors.ForgottenIdError):
    lego.unlearn(once, samples, IDS[:3])
