"""Bad requests are refused, and the state is untouched."""

import copy
import dataclasses

from bad_input_world import KNOWN, change
from conftest import CONFIG, COUNT, DIM, encodings, ids, labels
import jax
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.runs import requests


def forget(ids):
  return lambda s, t: lego.unlearn(s, t, ids)


def learn(ids):
  return lambda s, t: lego.learn(s, t, ids)


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
  "samples of another map": (
    errors.SamplesMismatchError,
    "made with another",
    lambda s, t: lego.unlearn(
      s,
      lego.make_samples(
        dataclasses.replace(CONFIG, feature_map="sqrt"), encodings(), labels(), ids()
      ),
      KNOWN,
    ),
  ),
  "a wrong width": (
    errors.SampleError,
    "width",
    lambda s, t: lego.unlearn(
      s,
      lego.make_samples(CONFIG, np.ones((COUNT, DIM + 1)), labels(), ids()),
      KNOWN,
    ),
  ),
  "other samples": (
    errors.SamplesMismatchError,
    "another encoding or label",
    lambda s, t: lego.unlearn(
      s, lego.make_samples(CONFIG, encodings(seed=1), labels(), ids()), KNOWN
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
  for field in dataclasses.fields(samples):
    mine, then = (getattr(each, field.name) for each in (samples, table))
    np.testing.assert_array_equal(mine, then)


BAD_OF_RUNS = {
  "nothing": (("unlearn", []), errors.EmptyRequestError, "at least one id"),
  "no ids": (("unlearn",), errors.EmptyRequestError, "at least one id"),
  "learning nothing": (("learn", []), errors.EmptyRequestError, "at least one id"),
  "a float id": (("unlearn", [1.5]), errors.SampleError, "list of integers"),
  "a word": (("unlearn", ["a"]), errors.SampleError, "list of integers"),
  "a mask": (("unlearn", [True, False]), errors.SampleError, "list of integers"),
  "a table of ids": (("unlearn", [KNOWN]), errors.SampleError, "list of integers"),
  "an id twice": (("unlearn", [5, 5]), errors.DuplicateIdError, "5 is named twice"),
  "another kind": (("forget", KNOWN), errors.ConfigError, "'forget'; give one of unl"),
  "no kind": ((None, KNOWN), errors.ConfigError, "kind is None"),
  "kinds": ((["unlearn"], KNOWN), errors.ConfigError, "kind is .'unlearn'."),
}


@pytest.mark.parametrize("name", BAD_OF_RUNS)
def test_a_request_that_no_run_could_carry_out_is_refused_when_it_is_made(name):
  words, kind, message = BAD_OF_RUNS[name]
  with pytest.raises(kind, match=message) as caught:
    requests.make(*words)
  assert "\n" not in str(caught.value)


def test_a_request_to_a_run_keeps_its_ids_in_order_as_int64():
  made = requests.make("unlearn", np.asarray([9, 3], np.int32))
  assert made.ids.dtype == np.int64
  assert made.ids.tolist() == [9, 3]
  assert requests.make("heal").ids.tolist() == []


def test_a_sample_forgotten_already_is_named_as_such(samples, state):
  after, _ = lego.unlearn(state, samples, KNOWN[:1])
  with pytest.raises(errors.ForgottenIdError, match=str(KNOWN[0])):
    lego.unlearn(after, samples, KNOWN[:2])


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
  for other in ({"num_classes": 4}, {"feature_map": "sqrt"}, {"encoder": "other"}):
    cfg = dataclasses.replace(CONFIG, **other)
    with pytest.raises(errors.SamplesMismatchError, match="these settings"):
      lego.fit(cfg, samples)
    new = lego.make_samples(cfg, encodings(1), [0], [1])
    with pytest.raises(errors.SamplesMismatchError, match="settings of the others"):
      lego.append(samples, new)
    table = lego.make_samples(cfg, encodings(), labels(), ids())
    with pytest.raises(errors.SamplesMismatchError, match="these settings"):
      lego.learn(state, table, [1])


def test_a_table_that_lacks_a_retained_sample_is_named_as_such(samples, state):
  with pytest.raises(errors.SamplesMismatchError, match="lacks a retained sample"):
    lego.unlearn(state, lego.drop(samples, state.ids[1:-1]), state.ids[:1])


def test_predict_names_a_wrong_shape_and_passes_nan_on(state):
  for shape in ((3, DIM + 1), (2, 3, DIM), (DIM - 1,)):
    with pytest.raises(errors.SampleError, match="this model takes"):
      lego.predict(state.model, np.zeros(shape, np.float32))
  bad = change(encodings(3), (1, 0), np.nan)
  with jax.debug_nans(False):
    p = np.asarray(lego.predict(state.model, bad))
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
