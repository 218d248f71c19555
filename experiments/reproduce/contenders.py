"""LegoNet, FixSISA, SISA and RNC, made ready to run on their data."""

from collections.abc import Mapping
import dataclasses
import functools
from typing import Any

import numpy as np

from experiments.reproduce.datasets import Bench, Data
from experiments.reproduce.tasks import Contender
import legonet_jax as lego
from legonet_jax.baselines import (
  ImageTable,
  Learner,
  SisaConfig,
  linear_learner,
  rnc,
  rnc_learner,
  sisa,
)
from legonet_jax.core.balance import balance
from legonet_jax.core.ids import Ids
from legonet_jax.core.prediction import predict_array

Recipe = Mapping[str, Any]  # by strategy, all that it is run with


@functools.lru_cache(maxsize=2)
def make_samples(data: Data, classes: int, feature_map: Any) -> lego.Samples:
  """The samples of LegoNet; those last made are kept."""
  cfg = lego.LegoConfig(classes, 1, 1, feature_map=feature_map)
  return lego.make_samples(cfg, data.inputs, data.labels, data.ids)


def build_lego(bench: Bench, data: Data, recipe: Recipe) -> Contender:
  """LegoNet, and with n = k = 1 one linear layer."""
  cfg = recipe["retrain"]
  samples = make_samples(data, cfg.num_classes, cfg.feature_map)
  return Contender(
    data,
    lambda ids: lego.fit(cfg, lego.select(samples, ids))[0],
    {"retrain": lambda state, gone, _: lego.unlearn(state, samples, gone)[0]},
    lambda state, encodings: predict_array(state.model, encodings),
    lego.digest,
    balance=lambda state: balance(state.sizes)._asdict(),
    anchors=lambda state: state.anchors,
  )


def build_fixsisa(bench: Bench, data: Data, recipe: Recipe) -> Contender:
  """FixSISA whose layers are trained as an adapter of LegoNet is."""
  split, cfg = recipe["retrain"]
  samples = make_samples(data, cfg.num_classes, cfg.feature_map)
  learner = linear_learner(cfg, samples)
  return dataclasses.replace(_build_shards(data, split, learner), digest=sisa.digest)


def build_sisa(bench: Bench, data: Data, recipe: Recipe) -> Contender:
  """SISA whose shards are whole networks."""
  split, cfg = recipe["retrain"]
  table = ImageTable(data.ids, data.inputs, data.labels)
  learner = rnc_learner(cfg, bench.pretrained[0], table)

  def train_and_answer(model: Any, ids: Ids, stream: int, share: float) -> Any:
    return learner.predict(learner.train(model, ids, stream, share), data.test)

  def answer_test(ids: Ids) -> Any:
    # A hundred networks fill the memory of a small machine: only answers are kept.
    kept = Learner(learner.init, train_and_answer, lambda answers, _: answers)
    return sisa.predict(split, kept, sisa.fit(split, kept, ids)[0], data.test)

  def prepare_timing(gone: Ids) -> tuple[sisa.SisaState, Ids]:
    # With one slice a shard is trained from the pretrained weights: its old model is
    # not looked at, so none needs to be trained before the clock starts.
    untrained = sisa.SisaState(split, data.ids, ((None,),) * split.shards)
    left = np.bincount(sisa.shard_of(split, data.ids), minlength=split.shards) - 1
    batches = [rnc.batch_size(cfg, int(left[i])) for i in sisa.shard_of(split, gone)]
    _, first = np.unique(batches, return_index=True)
    return untrained, gone[np.sort(first)]

  return dataclasses.replace(
    _build_shards(data, split, learner),
    answer_test=answer_test,
    prepare_timing=prepare_timing,
  )


def _build_shards(data: Data, split: SisaConfig, learner: Learner) -> Contender:
  """SISA of any learner."""
  return Contender(
    data,
    lambda ids: sisa.fit(split, learner, ids)[0],
    {"retrain": lambda state, gone, _: sisa.unlearn(split, learner, state, gone)[0]},
    functools.partial(sisa.predict, split, learner),
  )


def build_rnc(bench: Bench, data: Data, recipe: Recipe) -> Contender:
  """RNC with its three strategies."""
  cfg, table = recipe["retrain"], ImageTable(data.ids, data.inputs, data.labels)

  def fit(ids: Ids) -> rnc.RncModel:
    return rnc.train(cfg, rnc.init(cfg, bench.pretrained[0]), table, ids)

  forget = {
    "retrain": lambda model, gone, retain: fit(retain),
    "tune": lambda model, gone, retain: rnc.tune(recipe["tune"], model, table, retain),
    "ngrad": lambda model, gone, retain: rnc.ngrad(recipe["ngrad"], model, table, gone),
  }
  return Contender(data, fit, forget, functools.partial(rnc.predict, cfg))
