"""Bad input: a specific exception that says what to do, and nothing is touched."""

import copy
import dataclasses

from conftest import CLASSES, CONFIG, COUNT, DIM, encodings, ids, labels
import jax
import numpy as np
import optax
import pytest

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.config import fingerprint


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
