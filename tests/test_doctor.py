"""`legonet doctor` finds every wrong result, and says so."""

import argparse
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legonet_jax import doctor
from legonet_jax.cli import doctor as command, main as cli
from legonet_jax.core import features, keys as keys_lib, logits, prediction, routing
from legonet_jax.solvers import certified, exact_sums, sgd


def ties_to_the_higher(real):
  return lambda scores, k: scores.shape[-1] - 1 - real(scores[..., ::-1], k)


def one_entry(real):
  def off_by_one(*args):
    result = np.array(real(*args))
    result.flat[0] += 1
    return result

  return off_by_one


def one_sum(real):
  def add_block(*args):
    sums = real(*args)
    return sums._replace(gram=sums.gram.at[0, 200].add(1))

  return add_block


def coarse_sums(real):
  def solve(penalty, gram, *args):
    return real(penalty, gram.astype(jnp.bfloat16).astype(jnp.int32), *args)

  return solve


def coarse_products(real):
  def sum_terms(high, low, counted):
    return real(high, (low >> 8) << 8, counted)

  return sum_terms


def coarse_weights(real):
  def update(self, cfg, carry, *args):
    weights = carry[0].astype(jnp.bfloat16).astype(jnp.float32)
    return real(self, cfg, (weights, carry[1]), *args)

  return update


def dead_adapters_vote(real):
  def predict(model, encodings):
    everyone = dataclasses.replace(model, live=jnp.ones_like(model.live))
    return real(everyone, encodings)

  return predict


def last_rows(real):
  def vmap(f):
    return lambda rows: real(f)(rows).at[32_768:].set(0)  # as jax 0.10.2 does

  return vmap


BROKEN = {
  "codes": (features, "_encode_rows", one_entry),
  "keys": (keys_lib, "make_keys", one_entry),
  "routes": (routing, "take_nearest", ties_to_the_higher),
  "sums": (exact_sums, "add_block", one_sum),
  "ridge": (certified, "solve_rounded", coarse_sums),
  "logits": (logits, "sum_terms", coarse_products),
  "digest": (certified, "solve_rounded", coarse_sums),
  "sgd": (sgd.Sgd, "update", coarse_weights),
  "prediction": (prediction, "probs_of", dead_adapters_vote),
  "squares": (jax, "vmap", last_rows),
}


@pytest.fixture
def break_it(monkeypatch):
  """Breaks what a check looks at; executables made of it do not outlive the test."""

  def apply(name):
    jax.clear_caches()
    module, function, wrap = BROKEN[name]
    monkeypatch.setattr(module, function, wrap(getattr(module, function)))

  yield apply
  monkeypatch.undo()
  jax.clear_caches()


@pytest.mark.parametrize("name", doctor.CHECKS)
def test_a_wrong_result_is_found(name, break_it):
  break_it(name)
  check = doctor.run_check(name)
  assert not check.passed
  assert "wrong" in check.detail


def test_an_exception_in_jax_is_a_failed_check_and_the_others_go_on(monkeypatch):
  def fail(*_):
    raise jax.errors.JaxRuntimeError("INTERNAL: no kernel\nimage is available")

  jax.clear_caches()
  monkeypatch.setattr(routing, "take_nearest", fail)
  found = {check.name: check for check in doctor.examine()}
  wrong = [name for name in found if not found[name].passed]
  assert wrong == ["routes", "digest", "prediction"]
  assert "INTERNAL: no kernel" in found["routes"].detail
  assert "\n" not in found["routes"].detail


def test_a_fraction_has_no_checksum(monkeypatch):
  real = jax.vmap
  monkeypatch.setattr(jax, "vmap", lambda f: lambda rows: real(f)(rows) + 0.25)
  check = doctor.run_check("squares")
  assert not check.passed
  assert "not integers" in check.detail


@pytest.mark.parametrize(
  "values", [np.full((4, 3), np.nan), np.zeros((4, 2)), np.full((4, 3), np.inf)]
)
def test_what_is_no_number_or_too_few_is_wrong(monkeypatch, values):
  monkeypatch.setattr(prediction, "predict_array", lambda *_: values)
  assert not doctor.run_check("prediction").passed


def run_command(json=False):
  return command.run(argparse.Namespace(json=json))


def test_the_command_says_what_it_found(capsys):
  assert run_command() == 0
  out, err = capsys.readouterr()
  assert f"jax          {jax.__version__}" in out
  assert [line[:4] for line in out.splitlines()].count("ok  ") == len(doctor.CHECKS)
  assert out.endswith("all 10 answers are right\n")
  assert err == ""


def test_a_wrong_answer_is_one_line_with_a_cure_and_exit_code_1(capsys, break_it):
  break_it("codes")
  assert run_command(json=True) == 1
  out, err = capsys.readouterr()
  report = json.loads(out)
  assert not report["passed"]
  wrong = [check["name"] for check in report["checks"] if not check["passed"]]
  assert wrong == ["codes", "digest", "prediction"]
  assert err.startswith("legonet: error: ")
  assert "wrong: codes" in err
  assert "install another release of jax" in err
  assert err.count("\n") == 1


def test_json_of_a_sound_backend(capsys):
  assert cli.main(["doctor", "--json"]) == 0
  report = json.loads(capsys.readouterr().out)
  assert report["passed"]
  assert report["environment"]["jax"] == jax.__version__
  assert {check["name"] for check in report["checks"]} == doctor.CHECKS.keys()


def test_a_backend_that_does_not_start_is_reported_too(monkeypatch, capsys):
  def fail(*_):
    raise RuntimeError("Unable to initialize backend 'cuda'")

  monkeypatch.setattr(jax, "devices", fail)
  monkeypatch.setattr(doctor, "CHECKS", {"codes": fail})
  assert run_command() == 1
  out, err = capsys.readouterr()
  assert out.count("Unable to initialize backend") == 2
  assert "1 of 1 known answers" in err
