"""The contract: any sequence of requests ends, bit for bit, in a refit."""

import dataclasses

from conftest import CONFIG, SGD, encodings, ids, labels, refit
from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

import legonet_jax as lego

ADAMW = dataclasses.replace(
  SGD,
  optimizer="adamw",
  options=(("learning_rate", 0.1), ("weight_decay", 0.01)),
  batch_size=5,
  lanes=2,
)
CONFIGS = {
  "replace": CONFIG,
  "replace, Adam, sqrt map": dataclasses.replace(
    CONFIG, solver=ADAMW, feature_map="sqrt", num_adapters=5, top_k=3, key_noise=0.1
  ),
  "k = 1": dataclasses.replace(CONFIG, top_k=1),
  "given": dataclasses.replace(CONFIG, key_policy="given"),
  "ridge": dataclasses.replace(CONFIG, solver=lego.Ridge(), feature_map="sqrt"),
  "ridge, given": dataclasses.replace(
    CONFIG, solver=lego.Ridge(penalty=0.1), key_policy="given", top_k=3
  ),
  "ridge, sums not kept": dataclasses.replace(CONFIG, solver=lego.Ridge(keep=False)),
}
# Far away from all samples, so that some adapters start or become empty.
GIVEN = np.vstack([encodings(6, seed=4), -5 * encodings(2, seed=4)])

OPS = ("one", "some", "half", "all but few", "class", "anchors", "empty an adapter")
REQUESTS = st.lists(
  st.tuples(st.sampled_from((*OPS, "learn some", "learn all")), st.integers(0, 2**20)),
  min_size=1,
  max_size=8,
)


def choose(op, rng, cfg, samples, state):
  """The ids of an unlearning request, of which enough samples are left."""
  held = state.ids
  least = cfg.num_adapters if cfg.key_policy == "replace" else 1
  most = len(held) - least
  if op == "class":
    y = samples.labels[np.searchsorted(samples.ids, held)]
    wanted = held[y == rng.integers(cfg.num_classes)]
  elif op == "anchors":
    # Under `given` these are just some samples; under `replace` they are the anchors.
    wanted = rng.permutation(held[: cfg.num_adapters])[: rng.integers(1, 5)]
  elif op == "empty an adapter":
    wanted = held[(state.routes == rng.integers(cfg.num_adapters)).any(1)]
  else:
    sizes = {"one": 1, "some": rng.integers(2, 8), "half": len(held) // 2}
    wanted = rng.permutation(held)[: sizes.get(op, most)]
  return wanted[:most]


def play(cfg, samples, state, requests):
  """Carries out `requests`; the retained set is kept by hand, beside the state."""
  retained = set(state.ids.tolist())
  for op, seed in requests:
    rng = np.random.default_rng(seed)
    if op.startswith("learn"):
      absent = np.setdiff1d(samples.ids, state.ids)
      wanted = rng.permutation(absent)
      wanted = wanted if op == "learn all" else wanted[: rng.integers(1, 6)]
      if len(wanted):
        state, _ = lego.learn(state, samples, wanted)
        retained |= set(wanted.tolist())
    else:
      wanted = choose(op, rng, cfg, samples, state)
      if len(wanted):
        state, _ = lego.unlearn(state, samples, wanted)
        retained -= set(wanted.tolist())
    assert set(state.ids.tolist()) == retained
  return state, np.array(sorted(retained))


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=100, deadline=None, derandomize=True)
@given(requests=REQUESTS)
def test_any_sequence_of_requests_ends_in_the_digest_of_a_refit(name, requests):
  cfg = CONFIGS[name]
  keys = GIVEN if cfg.key_policy == "given" else None
  samples, start = world(name)
  state, retained = play(cfg, samples, start, requests)
  again = refit(cfg, samples, retained, keys)
  assert lego.digest(state) == lego.digest(again)


_WORLDS: dict[str, tuple[lego.Samples, lego.LegoState]] = {}


def world(name):
  """Samples and first fit of a configuration, made once for all examples."""
  if name not in _WORLDS:
    cfg = CONFIGS[name]
    samples = lego.make_samples(cfg, encodings(), labels(), ids())
    keys = GIVEN if cfg.key_policy == "given" else None
    _WORLDS[name] = samples, lego.fit(cfg, samples, keys)[0]
  return _WORLDS[name]


def test_batching_and_order_of_requests_do_not_matter(samples, state):
  wanted = np.concatenate([state.ids[:3], state.ids[20:30]])  # three of them anchors
  at_once, info = lego.unlearn(state, samples, wanted)
  assert info.anchors_replaced == 3
  one_by_one = state
  for i in wanted[::-1]:
    one_by_one, _ = lego.unlearn(one_by_one, samples, [i])
  assert lego.digest(at_once) == lego.digest(one_by_one)


@pytest.mark.parametrize("which", ["anchor", "other"])
def test_a_sample_removed_and_added_again_leaves_no_trace(samples, state, which):
  wanted = state.ids[:1] if which == "anchor" else state.ids[-1:]
  without, _ = lego.unlearn(state, samples, wanted)
  assert lego.digest(without) != lego.digest(state)
  back, _ = lego.learn(without, samples, wanted)
  assert lego.digest(back) == lego.digest(state)


def test_the_order_of_the_callers_rows_does_not_matter(state):
  order = np.random.default_rng(5).permutation(len(ids()))
  turned = lego.make_samples(CONFIG, encodings()[order], labels()[order], ids()[order])
  again, _ = lego.fit(CONFIG, turned)
  assert lego.digest(again) == lego.digest(state)


def test_rows_may_leave_the_table_before_or_after_the_request(samples, state):
  wanted = state.ids[[0, 9, 33]]
  without_rows = lego.drop(samples, wanted)
  before, _ = lego.unlearn(state, without_rows, wanted)
  after, _ = lego.unlearn(state, samples, wanted)
  assert lego.digest(before) == lego.digest(after)
  back = lego.append(without_rows, lego.select(samples, wanted))
  again, _ = lego.learn(before, back, wanted)
  assert lego.digest(again) == lego.digest(state)


def test_an_emptied_adapter_takes_no_part_and_comes_back():
  name = "given"
  cfg = CONFIGS[name]
  samples, start = world(name)
  sizes = np.bincount(start.routes.ravel(), minlength=cfg.num_adapters)
  j = int(np.flatnonzero(sizes)[np.argmin(sizes[sizes > 0])])
  wanted = start.ids[(start.routes == j).any(1)]
  emptied, info = lego.unlearn(start, samples, wanted)
  assert info.balance.smallest == 0
  assert not emptied.model.live[j]
  assert not np.asarray(emptied.model.weights[j]).any()
  back, _ = lego.learn(emptied, samples, wanted)
  assert lego.digest(back) == lego.digest(start)


def test_each_changed_adapter_is_retrained_once_per_call(samples, state):
  wanted = state.ids[-12:]
  touched = np.unique(state.routes[-12:])
  after, info = lego.unlearn(state, samples, wanted)
  assert info.adapters_retrained == len(touched)
  assert info.anchors_replaced == 0
  sizes = np.bincount(after.routes.ravel(), minlength=CONFIG.num_adapters)
  assert info.samples_retrained == sizes[touched].sum()
  untouched = np.setdiff1d(np.arange(CONFIG.num_adapters), touched)
  np.testing.assert_array_equal(
    np.asarray(after.model.weights)[untouched],
    np.asarray(state.model.weights)[untouched],
  )


def test_keep_says_that_it_is_not_exact_and_is_not(samples):
  cfg = dataclasses.replace(CONFIG, key_policy="keep")
  state, info = lego.fit(cfg, samples)
  assert not info.exact
  after, info = lego.unlearn(state, samples, state.anchors[:1])
  assert not info.exact
  assert info.anchors_replaced == 0
  assert lego.digest(after) != lego.digest(refit(cfg, samples, after.ids))
