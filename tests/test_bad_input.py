"""Bad input: a specific exception that says what to do, and nothing is touched."""

import copy
import dataclasses
import math
import os

from conftest import CLASSES, CONFIG, COUNT, DIM, encodings, ids, labels
import jax
import numpy as np
import optax
import pytest

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.core import requests
from legonet_jax.core.config import fingerprint


def change(array, at, value):
  array = array.copy()
  array[at] = value
  return array


BAD_SAMPLES = {
  "a NaN": (
    errors.SampleError,
    "row 3 has a value",
    {"e": change(encodings(), (3, 1), np.nan)},
  ),
  "an infinity": (
    errors.SampleError,
    "row 0 has a value",
    {"e": change(encodings(), (0, 0), -np.inf)},
  ),
  "a flat array": (
    errors.SampleError,
    "real numbers \\[samples, width\\]",
    {"e": np.zeros(5)},
  ),
  "too few labels": (errors.SampleError, "labels have shape", {"y": labels()[1:]}),
  "a label of C": (
    errors.SampleError,
    "label 3 in row 7",
    {"y": change(labels(), 7, CLASSES)},
  ),
  "a negative label": (errors.SampleError, "label -1", {"y": change(labels(), 0, -1)}),
  "float labels": (errors.SampleError, "must be integers", {"y": labels() / 1.0}),
  "an id twice": (
    errors.DuplicateIdError,
    "occurs twice",
    {"i": change(ids(), 0, ids()[1])},
  ),
  "an id of 64 bits": (
    errors.SampleError,
    "below 2",
    {"i": ids().astype(np.uint64) + np.uint64(2**63)},
  ),
  "text": (errors.SampleError, "real numbers", {"e": np.full((COUNT, 2), "x")}),
  "no width": (errors.SampleError, "real numbers", {"e": np.zeros((COUNT, 0))}),
  "ragged rows": (errors.SampleError, "not an array", {"e": [[1.0], [1.0, 2.0]]}),
  "a negative id": (errors.SampleError, "negative", {"i": change(ids(), 0, -4)}),
  "float ids": (errors.SampleError, "must be integers", {"i": ids() / 1.0}),
}


@pytest.mark.parametrize("name", BAD_SAMPLES)
def test_bad_samples_are_refused(name):
  kind, message, bad = BAD_SAMPLES[name]
  good = {"e": encodings(), "y": labels(), "i": ids()}
  given = {**good, **bad}
  with pytest.raises(kind, match=message):
    lego.make_samples(CONFIG, given["e"], given["y"], given["i"])


BAD_CONFIGS = {
  "k > n": ({"top_k": 9}, "at most all adapters"),
  "k = 0": ({"top_k": 0}, "at least 1"),
  "n = 0": ({"num_adapters": 0}, "num_adapters is 0"),
  "one class": ({"num_classes": 1}, "at least 2"),
  "a policy that is not": ({"key_policy": "forget"}, "key_policy"),
  "a map that is not": ({"feature_map": "pca"}, "feature_map"),
  "a mean that is not": ({"aggregate": "median"}, "aggregate"),
  "negative noise": ({"key_noise": -1.0}, "key_noise"),
  "a large seed": ({"seed": 2**32}, "seed"),
  "half an epoch": ({"solver": {"epochs": 1.5}}, "whole number"),
  "a schedule as optimiser": (
    {"solver": {"optimizer": "constant_schedule", "options": {"value": 1}}},
    "not an optimiser",
  ),
  "a wrong option of a function": (
    {"solver": {"optimizer": optax.adam, "options": {"rate": 1}}},
    "rate",
  ),
  "weights of NaN": ({"solver": {"init_scale": np.nan}}, "init_scale"),
  "text for a number": ({"num_adapters": "many"}, "whole number"),
  "no epochs": ({"solver": {"epochs": 0}}, "solver.epochs"),
  "an unknown optimiser": ({"solver": {"optimizer": "sdg"}}, "sdg"),
  "a wrong option": ({"solver": {"options": (("rate", 1),)}}, "rate"),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_bad_settings_are_refused(name):
  bad, message = BAD_CONFIGS[name]

  def make():
    solver = {"solver": lego.Sgd(**bad["solver"])} if "solver" in bad else {}
    return dataclasses.replace(CONFIG, **{**bad, **solver})

  with pytest.raises(errors.ConfigError, match=message):
    make()


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
    sgd(batch_size=v) for v in (0, -4, 10**9, HUGE, True, None, np.float64(64))
  ],
  "lanes": [sgd(lanes=v) for v in (0, 10**9, HUGE, True, None, INF)],
  "tile_batches": [sgd(tile_batches=v) for v in (0, 10**9, HUGE, True, None, "16")],
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
  "weights \\[lanes, num_classes, width\\]": {"lanes": 2000},
  "samples \\[tile_batches, lanes, batch_size, width\\]": {"batch_size": 10_000},
  "targets \\[tile_batches, lanes": {"batch_size": 300, "num_classes": 60},
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_an_array_larger_than_the_memory_is_refused_before_it_is_made(
  what, monkeypatch
):
  changes = dict(TOO_LARGE[what])
  own = {name: changes.pop(name) for name in ("lanes", "batch_size") if name in changes}
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


def test_the_length_of_a_tile_may_change_for_a_state(samples, state):
  solver = dataclasses.replace(CONFIG.solver, tile_batches=7)
  other = dataclasses.replace(CONFIG, solver=solver)
  after, _ = lego.unlearn(other, state, samples, KNOWN)
  want, _ = lego.unlearn(CONFIG, state, samples, KNOWN)
  assert lego.digest(after) == lego.digest(want)


def forget(ids):
  return lambda s, t: lego.unlearn(CONFIG, s, t, ids)


def learn(ids):
  return lambda s, t: lego.learn(CONFIG, s, t, ids)


KNOWN = ids()[:3].tolist()
BAD_REQUESTS = {
  "nothing": (errors.EmptyRequestError, "at least one id", forget([])),
  "an unknown id": (
    errors.UnknownIdError,
    "no sample has id 17",
    forget([KNOWN[0], 17]),
  ),
  "an id twice": (errors.DuplicateIdError, "twice", forget(KNOWN + KNOWN[:1])),
  "a float id": (errors.SampleError, "integers", forget([1.5])),
  "a table of ids": (errors.SampleError, "integers", forget([KNOWN])),
  "every sample": (errors.TooFewSamplesError, "delete the model", forget(ids())),
  "all but n - 1": (errors.TooFewSamplesError, "fewer adapters", forget(ids()[7:])),
  "learning nothing": (errors.EmptyRequestError, "at least one id", learn([])),
  "learning an unknown id": (errors.UnknownIdError, "no sample has id 9", learn([9])),
  "learning what is known": (errors.DuplicateIdError, "already", learn(KNOWN[:1])),
  **{
    f"another {field}": (
      errors.ConfigError,
      "settings of the fit",
      lambda s, t, field=field, value=value: lego.unlearn(
        dataclasses.replace(CONFIG, **{field: value}), s, t, KNOWN
      ),
    )
    for field, value in {"top_k": 3, "seed": 9, "solver": lego.Sgd()}.items()
  },
  "a wrong width": (
    errors.SampleError,
    "width",
    lambda s, t: lego.unlearn(
      CONFIG,
      s,
      lego.make_samples(CONFIG, np.ones((COUNT, DIM + 1)), labels(), ids()),
      KNOWN,
    ),
  ),
  "other samples": (
    errors.SamplesMismatchError,
    "another encoding or label",
    lambda s, t: lego.unlearn(
      CONFIG, s, lego.make_samples(CONFIG, encodings(seed=1), labels(), ids()), KNOWN
    ),
  ),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_bad_requests_are_refused_and_the_state_is_untouched(name, samples, state):
  kind, message, request = BAD_REQUESTS[name]
  before, table = lego.digest(state), copy.deepcopy(samples)
  with pytest.raises(kind, match=message) as caught:
    request(state, samples)
  assert "\n" not in str(caught.value)
  assert lego.digest(state) == before
  for mine, then in zip(samples, table, strict=True):
    np.testing.assert_array_equal(mine, then)


def test_a_sample_forgotten_already_is_named_as_such(samples, state):
  after, _ = lego.unlearn(CONFIG, state, samples, KNOWN[:1])
  with pytest.raises(errors.ForgottenIdError, match=str(KNOWN[0])):
    lego.unlearn(CONFIG, after, samples, KNOWN[:2])


def test_more_adapters_than_samples_are_refused(samples):
  cfg = dataclasses.replace(CONFIG, num_adapters=COUNT + 1)
  with pytest.raises(errors.TooFewSamplesError, match="60 samples for 61 adapters"):
    lego.fit(cfg, samples)
  with pytest.raises(errors.TooFewSamplesError, match="no sample"):
    lego.fit(CONFIG, lego.select(samples, samples.ids[:0]))


def test_keys_belong_to_the_policy_given_and_have_its_shape(samples):
  given = dataclasses.replace(CONFIG, key_policy="given")
  with pytest.raises(errors.ConfigError, match="needs keys"):
    lego.fit(given, samples)
  with pytest.raises(errors.ConfigError, match="takes no keys"):
    lego.fit(CONFIG, samples, keys=encodings(8))
  with pytest.raises(errors.SampleError, match="keys have shape"):
    lego.fit(given, samples, keys=encodings(7))


@pytest.mark.parametrize("operation", [lego.select, lego.drop])
def test_rows_are_named_by_distinct_integers(samples, operation):
  with pytest.raises(errors.DuplicateIdError, match="twice"):
    operation(samples, KNOWN + KNOWN[:1])
  for bad in (samples.labels == 1, [1.9], [KNOWN]):
    with pytest.raises(errors.SampleError, match="list of integers"):
      operation(samples, bad)
  assert len(operation(samples, KNOWN[0]).ids) in (1, COUNT - 1)


def test_samples_made_with_other_settings_are_refused(samples, state):
  for change in ({"num_classes": 4}, {"feature_map": "sqrt"}, {"encoder": "other"}):
    cfg = dataclasses.replace(CONFIG, **change)
    with pytest.raises(errors.SamplesMismatchError, match="these settings"):
      lego.fit(cfg, samples)
    new = lego.make_samples(cfg, encodings(1), [0], [1])
    with pytest.raises(errors.SamplesMismatchError, match="settings of the others"):
      lego.append(samples, new)
    table = lego.make_samples(cfg, encodings(), labels(), ids())
    with pytest.raises(errors.SamplesMismatchError, match="these settings"):
      lego.learn(CONFIG, state, table, [1])


def test_a_table_that_lacks_a_retained_sample_is_named_as_such(samples, state):
  with pytest.raises(errors.SamplesMismatchError, match="lacks a retained sample"):
    lego.unlearn(CONFIG, state, lego.drop(samples, state.ids[1:-1]), state.ids[:1])


def test_a_state_that_lost_64_bits_is_refused(samples, state):
  cut = state._replace(anchors=state.anchors.astype(np.int32))
  with pytest.raises(errors.ConfigError, match="int64"):
    lego.unlearn(CONFIG, cut, samples, KNOWN)


def test_predict_names_a_wrong_shape_and_passes_nan_on(state):
  for shape in ((3, DIM + 1), (2, 3, DIM), (DIM - 1,)):
    with pytest.raises(errors.SampleError, match="this model takes"):
      lego.predict(CONFIG, state.model, np.zeros(shape, np.float32))
  bad = change(encodings(3), (1, 0), np.nan)
  with jax.debug_nans(False):
    p = np.asarray(lego.predict(CONFIG, state.model, bad))
  assert np.isnan(p).all(axis=1).tolist() == [False, True, False]


def test_a_table_takes_only_new_ids_of_its_own_width(samples):
  with pytest.raises(errors.DuplicateIdError, match="in the table already"):
    lego.append(samples, lego.select(samples, KNOWN))
  with pytest.raises(errors.SampleError, match="width"):
    lego.append(samples, lego.make_samples(CONFIG, np.ones((1, 2)), [0], [1]))
  with pytest.raises(errors.UnknownIdError):
    lego.drop(samples, [1])
  with pytest.raises(ValueError, match="read-only"):
    samples.codes[0, 0] = 1
