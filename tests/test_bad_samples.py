"""Bad samples and settings: a specific exception that says what to do."""

import dataclasses

from bad_input_world import change
from conftest import CLASSES, CONFIG, COUNT, encodings, ids, labels
import numpy as np
import optax
import pytest

import legonet_jax as lego
from legonet_jax import errors

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
