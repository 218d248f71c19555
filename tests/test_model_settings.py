"""A model knows the settings of its fit, and predicts with no others."""

import copy
import dataclasses
import pickle

from conftest import CONFIG, encodings, ids, labels
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
import numpy as np
import pytest

import legonet_jax as lego
from legonet_jax.core import placement, prediction
from legonet_jax.core.config import for_prediction
from legonet_jax.core.model import Model
from legonet_jax.host.state import from_arrays, to_arrays

OTHERS = {
  "num_classes": 4,
  "num_adapters": 9,
  "top_k": 3,
  "feature_map": "sqrt",
  "feature_range": 0.5,
  "aggregate": "logits",
}
FREE = {
  "seed": 9,
  "key_noise": 0.3,
  "key_policy": "keep",
  "encoder": "another",
  "solver": lego.Sgd(epochs=3),
}


@pytest.mark.parametrize("field", OTHERS)
def test_every_setting_that_predictions_depend_on_is_in_the_model(field):
  assert {f.name for f in dataclasses.fields(CONFIG)} == {*OTHERS, *FREE}
  changed = dataclasses.replace(CONFIG, **{field: OTHERS[field]})
  assert for_prediction(changed) != for_prediction(CONFIG)
  assert for_prediction(dataclasses.replace(CONFIG, **FREE)) == for_prediction(CONFIG)


def test_every_request_leaves_a_model_that_knows_its_settings(samples, state):
  gone = state.ids[:2]
  masked, _ = lego.unlearn(state, samples, gone, defer=True)
  healed, _ = lego.heal(masked, samples)
  learned, _ = lego.learn(healed, samples, gone)
  updated, _ = lego.update(learned, samples, gone, [])
  for made in (state, masked, healed, learned, updated):
    assert made.cfg == CONFIG
    assert made.model.cfg == for_prediction(CONFIG)


def test_a_state_of_arrays_takes_its_settings_from_the_caller(state):
  again = from_arrays(to_arrays(state), CONFIG)
  assert again.model.cfg == state.model.cfg
  assert lego.digest(again) == lego.digest(state)
  e = encodings(4)
  np.testing.assert_array_equal(lego.predict(again, e), lego.predict(state, e))


def test_other_settings_on_purpose_predict_with_the_same_adapters(state):
  e, model = jnp.asarray(encodings(20)), state.model
  more = dataclasses.replace(model, cfg=dataclasses.replace(model.cfg, top_k=4))
  assert not np.array_equal(lego.predict(more, e), lego.predict(model, e))


def test_a_model_is_copied_pickled_and_mapped_as_a_whole(state):
  model = state.model
  assert len(jax.tree.leaves(model)) == 3
  for again in (
    copy.copy(model),
    copy.deepcopy(model),
    pickle.loads(pickle.dumps(model)),
    jax.tree.map(jnp.copy, model),
    jax.device_put(model),
    jax.jit(lambda m: m)(model),
    dataclasses.replace(model, live=model.live),
  ):
    assert isinstance(again, Model)
    assert again.cfg == model.cfg
    jax.tree.map(np.testing.assert_array_equal, again, model)


def test_trees_of_models_with_other_settings_do_not_mix(state):
  one = state.model
  two = dataclasses.replace(one, cfg=dataclasses.replace(one.cfg, top_k=3))
  with pytest.raises(ValueError, match="LegoConfig"):
    jax.tree.map(jnp.add, one, two)


def test_stacked_models_are_predicted_under_vmap(samples):
  e = jnp.asarray(encodings(4))
  models = [
    lego.fit(dataclasses.replace(CONFIG, seed=seed), samples)[0].model
    for seed in (1, 2)
  ]
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
  assert stacked.cfg == models[0].cfg
  p = jax.vmap(lego.predict, in_axes=(0, None))(stacked, e)
  want = np.stack([lego.predict(model, e) for model in models])
  np.testing.assert_allclose(p, want, atol=1e-6)


@pytest.mark.parametrize("kind", ["Explicit", "Auto"])
def test_a_sharded_batch_is_predicted_by_shard_map(state, kind):
  axes = (getattr(jax.sharding.AxisType, kind),)
  mesh = jax.make_mesh((1,), ("batch",), axis_types=axes)
  by_row = PartitionSpec("batch")
  e = jax.device_put(jnp.asarray(encodings(4)), NamedSharding(mesh, by_row))
  sharded = jax.jit(
    jax.shard_map(
      lego.predict, mesh=mesh, in_specs=(PartitionSpec(), by_row), out_specs=by_row
    )
  )
  want = lego.predict(state.model, np.asarray(e))
  np.testing.assert_allclose(sharded(state.model, e), want, atol=1e-6)


def test_a_sweep_over_seeds_and_encoders_shares_its_executables():
  # Of a function of its own: `jit` keeps executables by the function.
  predict = jax.jit(lambda *args: lego.predict(*args))
  placement._whole.clear_cache()
  e = encodings(5)
  for seed, encoder in ((1, "a"), (2, "a"), (3, "b")):
    cfg = dataclasses.replace(CONFIG, seed=seed, encoder=encoder)
    samples = lego.make_samples(cfg, encodings(), labels(), ids())
    model = lego.fit(cfg, samples)[0].model
    prediction.predict_array(model, e)
    predict(model, jnp.asarray(e))
  assert placement._whole._cache_size() == 1
  assert predict._cache_size() == 1
