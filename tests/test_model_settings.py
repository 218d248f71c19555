"""A model knows the settings of its fit, and predicts with no others."""

import copy
import dataclasses
import functools
import pickle

from conftest import CONFIG, DIM, encodings, ids, labels
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.core import features, prediction
from legonet_jax.core.config import for_prediction
from legonet_jax.core.model import Model, settings_of
from legonet_jax.core.state import from_arrays, to_arrays

OTHERS = {
  "num_classes": 4,
  "top_k": 3,
  "feature_map": "sqrt",
  "feature_range": 0.5,
  "aggregate": "logits",
  "encoder": "another",
}
FREE = {
  "seed": 9,
  "num_adapters": 50,
  "key_noise": 0.3,
  "key_policy": "keep",
  "solver": lego.Ridge(),
}


def codes():
  return features.encode_features(CONFIG, jnp.asarray(encodings(4)))


def images(cfg, model, e):
  return lego.predict_images(cfg, lambda params, x: x * params, model, 1.0, e)


TRACED = {
  "predict": lego.predict,
  "predict of one": lambda cfg, model, e: lego.predict(cfg, model, e[0]),
  "predict of many": lambda cfg, model, e: lego.predict(
    cfg, model, jnp.concatenate([e] * 40)
  ),
  "predict_images": images,
  "adapter_logits": prediction.adapter_logits,
  "activate": lambda cfg, model, e: prediction.activate(cfg, model, codes()),
}
FUNCTIONS = {
  **TRACED,
  "predict_array": lambda cfg, model, e: prediction.predict_array(
    cfg, model, np.asarray(e)
  ),
  **{
    f"{name}, jitted": jax.jit(function, static_argnums=0)
    for name, function in TRACED.items()
  },
}


@pytest.mark.parametrize("field", OTHERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_settings_than_those_of_the_fit_are_refused_in_one_line(
  state, name, field
):
  cfg = dataclasses.replace(CONFIG, **{field: OTHERS[field]})
  with pytest.raises(errors.ConfigError) as caught:
    FUNCTIONS[name](cfg, state.model, jnp.asarray(encodings(4)))
  message = str(caught.value)
  was = getattr(CONFIG, field)
  assert f"fitted with {field} {was!r}, and these settings have {OTHERS[field]!r};" in (
    message
  )
  assert "give the settings of the fit" in message
  assert "\n" not in message


@pytest.mark.parametrize("name", FUNCTIONS)
def test_settings_without_a_part_in_predictions_may_differ(state, name):
  e = jnp.asarray(encodings(4))
  want = FUNCTIONS[name](CONFIG, state.model, e)
  got = FUNCTIONS[name](dataclasses.replace(CONFIG, **FREE), state.model, e)
  jax.tree.map(np.testing.assert_array_equal, got, want)


@pytest.mark.parametrize("field", OTHERS)
def test_every_part_of_the_settings_is_compared_and_no_other(field):
  names = {f.name for f in dataclasses.fields(CONFIG)}
  assert names == set(OTHERS) | set(FREE)
  changed = settings_of(dataclasses.replace(CONFIG, **{field: OTHERS[field]}))
  assert changed != settings_of(CONFIG)
  assert settings_of(dataclasses.replace(CONFIG, **FREE)) == settings_of(CONFIG)


def test_the_first_of_several_differences_is_named_and_a_long_value_is_cut(state):
  cfg = dataclasses.replace(CONFIG, encoder="x\n" * 500, top_k=1)
  with pytest.raises(errors.ConfigError, match="top_k 2, and these settings have 1"):
    lego.predict(cfg, state.model, jnp.asarray(encodings(1)))
  cfg = dataclasses.replace(CONFIG, encoder="x\n" * 500)
  with pytest.raises(errors.ConfigError, match="encoder") as caught:
    lego.predict(cfg, state.model, jnp.asarray(encodings(1)))
  assert "\n" not in str(caught.value)
  assert len(str(caught.value)) < 400


def test_every_request_leaves_a_model_that_knows_its_settings(samples, state):
  want, gone = settings_of(CONFIG), state.ids[:2]
  masked, _ = lego.unlearn(CONFIG, state, samples, gone, defer=True)
  healed, _ = lego.heal(CONFIG, masked, samples)
  learned, _ = lego.learn(CONFIG, healed, samples, gone)
  updated, _ = lego.update(CONFIG, learned, samples, gone, [])
  for made in (state, masked, healed, learned, updated):
    assert made.model.settings == want
  # One that was put together without them has them after its next request.
  bare = state._replace(model=state.model._replace(settings=None))
  assert lego.unlearn(CONFIG, bare, samples, gone)[0].model.settings == want


def test_settings_are_in_no_digest_and_in_no_saved_array(state):
  other = dataclasses.replace(state.model.settings, top_k=7)
  for settings in (None, other):
    changed = state._replace(model=state.model._replace(settings=settings))
    assert lego.digest(changed) == lego.digest(state)
    for name, array in to_arrays(changed).items():
      np.testing.assert_array_equal(array, to_arrays(state)[name])
  assert len(jax.tree.leaves(state.model)) == 3


def test_a_state_of_arrays_takes_its_settings_from_the_caller(state):
  arrays = to_arrays(state)
  assert from_arrays(arrays).model.settings is None
  again = from_arrays(arrays, CONFIG)
  assert again.model.settings == state.model.settings
  assert lego.digest(again) == lego.digest(state)
  other = dataclasses.replace(CONFIG, top_k=1)
  e = jnp.asarray(encodings(4))
  with pytest.raises(errors.ConfigError, match="top_k"):
    lego.predict(other, again.model, e)
  assert lego.predict(other, from_arrays(arrays).model, e).shape == (4, 3)


def test_a_model_without_settings_predicts_with_any(state):
  e, model = jnp.asarray(encodings(20)), state.model._replace(settings=None)
  other = dataclasses.replace(CONFIG, top_k=4, aggregate="logits", encoder="x")
  p = np.asarray(lego.predict(other, model, e))
  assert not np.array_equal(p, lego.predict(CONFIG, state.model, e))
  built = Model(model.keys, model.weights, model.live)
  assert built.settings is None
  np.testing.assert_array_equal(lego.predict(other, built, e), p)


def test_a_model_with_settings_is_copied_pickled_and_mapped_as_a_whole(state):
  model = state.model
  for again in (
    copy.copy(model),
    copy.deepcopy(model),
    pickle.loads(pickle.dumps(model)),
    jax.tree.map(jnp.copy, model),
    jax.device_put(model),
    jax.jit(lambda m: m)(model),
    model._replace(live=model.live),
  ):
    assert isinstance(again, Model)
    assert again.settings == model.settings
    jax.tree.map(np.testing.assert_array_equal, again, model)


def test_trees_of_models_with_other_settings_do_not_mix(state):
  one = state.model
  two = one._replace(settings=dataclasses.replace(one.settings, top_k=3))
  bare = one._replace(settings=None)
  for a, b in ((one, two), (one, bare), (bare, one)):
    with pytest.raises(ValueError, match="PredictionSettings"):
      jax.tree.map(jnp.add, a, b)


def test_stacked_models_are_predicted_under_vmap(samples):
  e = jnp.asarray(encodings(4))
  models = [
    lego.fit(dataclasses.replace(CONFIG, seed=seed), samples)[0].model
    for seed in (1, 2)
  ]
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
  assert stacked.settings == models[0].settings
  predict = functools.partial(lego.predict, CONFIG)
  p = jax.vmap(predict, in_axes=(0, None))(stacked, e)
  want = np.stack([predict(model, e) for model in models])
  np.testing.assert_allclose(p, want, atol=1e-6)
  wrong = functools.partial(lego.predict, dataclasses.replace(CONFIG, top_k=1))
  with pytest.raises(errors.ConfigError, match="top_k"):
    jax.vmap(wrong, in_axes=(0, None))(stacked, e)


def test_a_sharded_batch_is_predicted_and_checked(state):
  mesh = Mesh(np.asarray(jax.devices()[:1]), ("batch",))
  by_row = PartitionSpec("batch")
  e = jax.device_put(jnp.asarray(encodings(4)), NamedSharding(mesh, by_row))

  def sharded(cfg):
    return jax.jit(
      jax.shard_map(
        functools.partial(lego.predict, cfg),
        mesh=mesh,
        in_specs=(PartitionSpec(), by_row),
        out_specs=by_row,
      )
    )

  want = lego.predict(CONFIG, state.model, e)
  np.testing.assert_allclose(sharded(CONFIG)(state.model, e), want, atol=1e-6)
  with pytest.raises(errors.ConfigError, match="top_k"):
    sharded(dataclasses.replace(CONFIG, top_k=1))(state.model, e)


def test_a_sweep_over_seeds_and_encoders_shares_its_executables():
  # Of a function of its own: `jit` keeps executables by the function.
  predict = jax.jit(lambda *args: lego.predict(*args), static_argnums=0)
  prediction._probs_jitted.clear_cache()
  e = encodings(5)
  for seed, encoder in ((1, "a"), (2, "a"), (3, "b")):
    cfg = dataclasses.replace(CONFIG, seed=seed, encoder=encoder)
    samples = lego.make_samples(cfg, encodings(), labels(), ids())
    model = lego.fit(cfg, samples)[0].model
    prediction.predict_array(cfg, model, e)
    predict(for_prediction(cfg), model, jnp.asarray(e))
  assert prediction._probs_jitted._cache_size() == 1
  # A caller's own `jit` compares encoders, so it compiles once for each of them.
  assert predict._cache_size() == 2


def test_no_encoder_runs_before_the_settings_are_compared(state):
  def encode(params, x):
    raise AssertionError("images were encoded")

  cfg = dataclasses.replace(CONFIG, top_k=1)
  with pytest.raises(errors.ConfigError, match="top_k"):
    lego.predict_images(cfg, encode, state.model, None, jnp.ones((2, DIM)))
