"""Settings that cannot work are refused in one line; those at the bounds are taken."""

import dataclasses
import math
import os

from bad_input_world import KNOWN
from conftest import CONFIG, COUNT, encodings, ids, labels
import jax
import numpy as np
import optax
import pytest

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.core.config import fingerprint
from legonet_jax.host import requests


def made(**changes):
  return lambda: dataclasses.replace(CONFIG, **changes)


def sgd(**settings):
  return lambda: lego.Sgd(**settings)


def ridge(**settings):
  return lambda: lego.Ridge(**settings)


def rate(value, optimizer="adam"):
  return sgd(optimizer=optimizer, options={"learning_rate": value})


def own_failure(learning_rate):
  raise RuntimeError("no such\nthing")


def own_growth(learning_rate):
  """Its state is wider after each step, so no loop can hold it."""

  def update(updates, state, params=None):
    return updates, np.ones(len(state) + 1)

  return optax.GradientTransformation(lambda params: np.ones(1), update)


class Unhashable(dict):
  """A value that equals others and has no hash."""


@dataclasses.dataclass
class Loose:
  """A solver that can change, so it has no hash."""


HUGE = 10**23
UNPRINTABLE = 10**5000  # Python refuses to write out so many digits
INF, NAN = math.inf, math.nan
UNUSABLE = {
  # Whole numbers.
  "num_classes": [
    made(num_classes=v)
    for v in (0, -1, 10**9, HUGE, UNPRINTABLE, True, None, 3.0, "3", NAN, [3])
  ],
  "num_adapters": [
    made(num_adapters=v)
    for v in (-1, 2**24 + 1, HUGE, True, None, 8.0, np.bool_(True), np.ones(2, int))
  ],
  "top_k": [made(top_k=v) for v in (-1, HUGE, True, None, 1.5, "2", np.float32(2))],
  "seed": [made(seed=v) for v in (-1, 2**32, HUGE, False, None, 1.0, "0")],
  "epochs": [sgd(epochs=v) for v in (0, -1, 2**31, HUGE, UNPRINTABLE, True, None, NAN)],
  "batch_size": [
    sgd(batch_size=v) for v in (0, -4, 2**31, HUGE, True, None, np.float64(64))
  ],
  "lanes": [sgd(lanes=v) for v in (0, 10**9, HUGE, True, None, INF)],
  "tile_batches": [sgd(tile_batches=v) for v in (0, HUGE, True, None, "16")],
  # Numbers.
  "key_noise": [
    made(key_noise=v)
    for v in (NAN, INF, -INF, -1e-9, 1e38, 1e300, 100.1, 10**400, True, None, "0.5", 1j)
  ]
  + [made(feature_map="none", feature_range=1e-6)],  # 0.01 is 10,000 such ranges
  "feature_range": [
    made(feature_map=kind, feature_range=v)
    for kind in ("l2", "none")
    for v in (NAN, INF, 0, -1, 1e300, 1e-300, 1e30, 1e-30, True, "1", [1.0], b"1")
  ]
  + [made(feature_map="sqrt", feature_range=1e6), made(feature_map="none")],
  "init_scale": [
    sgd(init_scale=v) for v in (NAN, INF, -0.01, 1e38, 1e300, True, None, "x")
  ],
  "penalty": [
    ridge(penalty=v) for v in (NAN, INF, 0, -1, 1e-7, 1e300, True, None, "0.01")
  ],
  "scale": [ridge(scale=v) for v in (NAN, INF, 0, -1, 1e-300, 1e300, True, None, "10")],
  "keep": [ridge(keep=v) for v in (None, "no", 1, 0.0)],
  # Names.
  "key_policy": [made(key_policy=v) for v in (None, 1, "", b"keep", ["keep"])],
  "feature_map": [made(feature_map=v) for v in (None, 1, "L2", np.array(["l2", "l2"]))],
  "aggregate": [made(aggregate=v) for v in (None, True, "mean", ["probs"])],
  "encoder": [made(encoder=v) for v in (None, 1, b"sha", ["sha"])],
  # Solvers and optimisers.
  "solver": [
    made(solver=v) for v in (None, "ridge", lego.Ridge, lego.Sgd, 1, {}, Loose())
  ],
  "learning_rate": [
    rate(v)
    for v in (INF, -INF, NAN, -0.1, 0, 0.0, 1e300, 10**400, True, "0.1", b"1", 1j)
  ]
  + [rate(np.float32(v)) for v in (INF, NAN, -1)]
  + [rate(INF, optax.sgd), rate(None)],
  "momentum": [
    sgd(optimizer="sgd", options={"learning_rate": 0.1, "momentum": v})
    for v in (NAN, INF, 1e300, "0.9")
  ],
  "options": [
    sgd(options=v)
    for v in (None, 1, "ab", ["ab", "cde"], {1: 2, "a": 3}, {"learning_rate": [0.1]})
  ]
  + [sgd(options={"learning_rate": v}) for v in (np.ones(2), Unhashable())],
  "optimizer": [
    sgd(optimizer=v)
    for v in (
      "lbfgs", "polyak_sgd", "__class__", "__getattr__", "_src", "optax", "contrib", "",
      "adam ", "apply_if_finite", "chain", "ScaleByAdamState", None, 1, b"adam", print,
      optax.lbfgs, optax.sgd(0.1), own_failure, own_growth,
    )
  ]
  + [
    sgd(optimizer="polyak_sgd", options={}),
    sgd(optimizer="lbfgs", options={"learning_rate": None}),
  ],
}  # fmt: skip


@pytest.mark.parametrize(
  ("name", "at"),
  [(name, i) for name, cases in UNUSABLE.items() for i in range(len(cases))],
)
def test_a_setting_that_cannot_work_is_refused_in_one_line(name, at):
  with pytest.raises(errors.ConfigError) as caught:
    UNUSABLE[name][at]()
  message = str(caught.value)
  assert name.replace("z", "s") in message.replace("z", "s")
  assert "\n" not in message
  assert len(message) < 500


USABLE = [
  made(key_noise=np.float64(100.0), seed=np.uint32(2**32 - 1), encoder=np.str_("sha")),
  made(feature_map="none", feature_range=1e12, key_noise=1e14),
  made(feature_map="none", feature_range=1e-12, key_noise=0),
  made(feature_map="l2", feature_range=np.float32(0.25)),
  made(num_classes=2**24, num_adapters=2**24, top_k=np.int8(3)),
  sgd(optimizer=optax.adamw, options=[("learning_rate", 1e-9), ("weight_decay", 0)]),
  sgd(optimizer="sgd", options={"learning_rate": np.float32(1), "momentum": None}),
  sgd(options={"learning_rate": 1, "nesterov": True}, init_scale=0),
  sgd(epochs=2**31 - 1, batch_size=2**20, lanes=1, tile_batches=1),
  ridge(penalty=1e-6, scale=1e6, keep=np.bool_(False)),
  ridge(penalty=1e6, scale=1e-6),
]


@pytest.mark.parametrize("make", USABLE)
def test_settings_at_their_bounds_are_taken_and_are_plain(make):
  settings = make()
  assert settings == dataclasses.replace(settings)
  for field in dataclasses.fields(settings):
    value = getattr(settings, field.name)
    ours = ("builtins", "legonet_jax.solvers.ridge", "legonet_jax.solvers.sgd")
    assert type(value).__module__ in ours


TOO_LARGE = {
  "weights \\[num_adapters, num_classes, width\\]": {"num_classes": 1000},
  "scores \\[samples, num_adapters\\]": {"num_adapters": COUNT},
  "features \\[batch_size, width\\]": {"batch_size": 5_000},
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_an_array_larger_than_the_memory_is_refused_before_it_is_made(
  what, monkeypatch
):
  changes = dict(TOO_LARGE[what])
  own = {name: changes.pop(name) for name in ("batch_size",) if name in changes}
  solver = dataclasses.replace(CONFIG.solver, **own)
  cfg = dataclasses.replace(CONFIG, solver=solver, **changes)
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 25, "SC_PAGE_SIZE": 4096}.get)
  with pytest.raises(errors.ConfigError, match=what) as caught:
    lego.fit(cfg, samples)
  assert "this machine has 0.0" in str(caught.value)
  assert "\n" not in str(caught.value)


def test_millions_of_classes_are_refused_by_a_real_machine():
  cfg = dataclasses.replace(CONFIG, num_classes=2**24, num_adapters=COUNT)
  samples = lego.make_samples(cfg, np.ones((COUNT, 512)), labels())
  with pytest.raises(errors.ConfigError, match=r"take 2,061\.6 GB"):
    lego.fit(cfg, samples)


def test_millions_of_adapters_without_samples_are_refused_before_memory_is_taken(
  samples, monkeypatch
):
  monkeypatch.setattr(requests, "untrained", None)  # which makes the arrays
  cfg = dataclasses.replace(CONFIG, num_adapters=2**24)
  with pytest.raises(errors.TooFewSamplesError, match="60 samples for 16777216"):
    lego.fit(cfg, samples)


def test_a_training_that_diverges_is_an_error_and_not_a_model_of_nan(samples, state):
  options = {"learning_rate": 1e20, "weight_decay": 1e20}
  solver = dataclasses.replace(CONFIG.solver, optimizer="adamw", options=options)
  jax.config.update("jax_debug_nans", False)  # workers see the process's flags
  try:
    with pytest.raises(errors.ConfigError, match="diverged") as caught:
      lego.fit(dataclasses.replace(CONFIG, solver=solver), samples)
  finally:
    jax.config.update("jax_debug_nans", True)
  assert "\n" not in str(caught.value)


def test_equal_settings_are_the_same_whatever_kind_their_numbers_are():
  one = lego.LegoConfig(
    np.int64(3),
    key_noise=1,
    solver=lego.Sgd(options={"learning_rate": np.float32(0.5)}),
  )
  two = lego.LegoConfig(
    3, key_noise=1.0, solver=lego.Sgd(options=(("learning_rate", 0.5),))
  )
  assert one == two
  np.testing.assert_array_equal(fingerprint(one), fingerprint(two))


def test_a_setting_of_earlier_versions_may_change_for_a_state(samples, state):
  solver = dataclasses.replace(CONFIG.solver, tile_batches=7)
  other = dataclasses.replace(state, cfg=dataclasses.replace(CONFIG, solver=solver))
  after, _ = lego.unlearn(other, samples, KNOWN)
  want, _ = lego.unlearn(state, samples, KNOWN)
  assert lego.digest(after) == lego.digest(want)
