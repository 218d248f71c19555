"""SISA (Bourtoule et al., 2021): sharded, isolated, sliced, aggregated training.

    shard of x  = hash(seed, id of x) mod s                 (isolated: shards never mix)
    M_i,r       = M_i,r-1 trained further on slices 1 ... r of shard i
    p(x)        = mean over shards of M_i,R(x), or the share of their votes

To forget samples, their shards are re-trained from the last checkpoint before the first
slice that changes. A sample's shard and slice depend on its id alone, and the retained
ids are the only record of membership: a forgotten sample cannot come back with a later
request.
"""

import dataclasses
import json
import time
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from legonet_jax import errors
from legonet_jax.baselines.learner import AnyModel, Learner
from legonet_jax.core.ids import Ids, hash_ids
from legonet_jax.core.samples import check_ids
from legonet_jax.host.digest import digest_tree

# Slices need a hash of their own; with the shards' hash they would depend on the shard.
_SLICE_SALT = 1 << 40


@dataclasses.dataclass(frozen=True)
class SisaConfig:
  """Settings of SISA.

  Attributes:
    shards: s.
    slices: R, the slices of a shard. With R > 1 every shard keeps R checkpoints, and
      each stage has 2 / (R + 1) of the epochs, so that the work stays about the same
      (it grows if epochs are few, because a stage has at least one).
    aggregate: the mean of the shards' probabilities, or their votes.
    seed: of the hash.
  """

  shards: int = 10
  slices: int = 1
  aggregate: Literal["probs", "vote"] = "probs"
  seed: int = 0

  def __post_init__(self) -> None:
    for name in ("shards", "slices"):
      errors.whole_number(name, getattr(self, name), 1)
    if self.aggregate not in ("probs", "vote"):
      raise errors.ConfigError(f"aggregate is {self.aggregate!r}; use probs or vote")


class SisaState(NamedTuple):
  """The state of SISA.

  Attributes:
    settings: of the fit; with others, ids would be looked up in wrong shards.
    ids: [m] int64, the retained samples, increasing.
    models: for each shard its R checkpoints; none for a shard without samples.
  """

  settings: SisaConfig
  ids: Ids
  models: tuple[tuple[AnyModel, ...], ...]


class SisaInfo(NamedTuple):
  """The work of a request.

  Attributes:
    shards_trained: how many shards were trained, in part or whole.
    samples_passed: samples trained on, summed over stages (once per stage).
    seconds: wall-clock time.
  """

  shards_trained: int
  samples_passed: int
  seconds: float


def shard_of(cfg: SisaConfig, ids: Ids) -> NDArray[np.int64]:
  """The shard [m] of each id, in 0 ... s-1."""
  return (hash_ids(cfg.seed, ids) % np.uint64(cfg.shards)).astype(np.int64)


def slice_of(cfg: SisaConfig, ids: Ids) -> NDArray[np.int64]:
  """The slice [m] of each id within its shard, in 0 ... R-1."""
  h = hash_ids(cfg.seed + _SLICE_SALT, ids)
  return (h % np.uint64(cfg.slices)).astype(np.int64)


def fit(
  cfg: SisaConfig, learner: Learner, ids: ArrayLike
) -> tuple[SisaState, SisaInfo]:
  """Trains all shards on the samples `ids`."""
  empty = SisaState(cfg, np.zeros(0, np.int64), ((),) * cfg.shards)
  return update(cfg, learner, empty, [], ids)


def unlearn(
  cfg: SisaConfig, learner: Learner, state: SisaState, ids: ArrayLike
) -> tuple[SisaState, SisaInfo]:
  """Forgets `ids`: the result equals, bit for bit, a `fit` on the others."""
  return update(cfg, learner, state, ids, [])


def learn(
  cfg: SisaConfig, learner: Learner, state: SisaState, ids: ArrayLike
) -> tuple[SisaState, SisaInfo]:
  """Learns `ids`: the result equals, bit for bit, a `fit` on all."""
  return update(cfg, learner, state, [], ids)


def update(
  cfg: SisaConfig, learner: Learner, state: SisaState, forget: ArrayLike, add: ArrayLike
) -> tuple[SisaState, SisaInfo]:
  """Forgets and learns at once; trains only the shards and slices that change."""
  began = time.perf_counter()
  if dataclasses.replace(state.settings, aggregate=cfg.aggregate) != cfg:
    raise errors.ConfigError(
      "the state was made with other shards, slices or seed; pass those of the fit"
    )
  gone, new = check_ids(forget), check_ids(add)
  if not len(gone) + len(new):
    raise errors.EmptyRequestError("the request names no sample; give at least one id")
  missing = gone[~np.isin(gone, state.ids)]
  if len(missing):
    raise errors.ForgottenIdError(
      f"sample {missing[0]} is not in the model: forgotten already or never learned"
    )
  known = new[np.isin(new, state.ids)]
  if len(known):
    raise errors.DuplicateIdError(f"sample {known[0]} is in the model already")
  ids = np.union1d(np.setdiff1d(state.ids, gone), new)
  if not len(ids):
    raise errors.TooFewSamplesError("the request would leave no sample")
  changed = np.concatenate([gone, new])
  first = np.full(cfg.shards, cfg.slices)
  np.minimum.at(first, shard_of(cfg, changed), slice_of(cfg, changed))
  shards, slices = shard_of(cfg, ids), slice_of(cfg, ids)
  models, passed = [], []
  for shard, start in enumerate(first.tolist()):
    members, place = ids[shards == shard], slices[shards == shard]
    # A shard that was empty has no checkpoint to start from.
    start = start if len(state.models[shard]) == cfg.slices else 0
    kept = state.models[shard][:start]
    trained, samples = _train(cfg, learner, shard, kept, members, place)
    models.append(trained)
    passed.append(samples)
  jax.block_until_ready(models)  # type: ignore[no-untyped-call]  # for the clock
  trained_shards = sum(samples > 0 for samples in passed)
  info = SisaInfo(trained_shards, sum(passed), time.perf_counter() - began)
  return SisaState(cfg, ids, tuple(models)), info


def predict(
  cfg: SisaConfig, learner: Learner, state: SisaState, inputs: Any
) -> NDArray[np.float64]:
  """p [B, C]: the shards' mean probabilities, or the share of their votes."""
  total: NDArray[np.float64] | None = None
  live = [checkpoints[-1] for checkpoints in state.models if checkpoints]
  for model in live:
    p = np.asarray(learner.predict(model, inputs), np.float64)
    if cfg.aggregate == "vote":
      p = np.eye(p.shape[1])[p.argmax(axis=1)]
    total = p if total is None else total + p
  assert total is not None  # a state always has a sample
  return total / len(live)


def digest(state: SisaState) -> str:
  """The sha256 of settings, retained ids and all checkpoints, in hexadecimal."""
  settings = json.dumps(dataclasses.asdict(state.settings), sort_keys=True)
  return digest_tree((state.ids, state.models), settings.encode())


def _train(
  cfg: SisaConfig,
  learner: Learner,
  shard: int,
  kept: tuple[AnyModel, ...],
  members: Ids,
  slices: NDArray[np.int64],
) -> tuple[tuple[AnyModel, ...], int]:
  """The R checkpoints of a shard, trained on from those `kept`; samples passed."""
  if not len(members):
    return (), 0
  models, passed = list(kept), 0
  for stage in range(len(kept), cfg.slices):
    model = models[-1] if models else learner.init(shard)
    upto = members[slices <= stage]
    if len(upto):
      stream = shard * cfg.slices + stage
      model = learner.train(model, upto, stream, 2 / (cfg.slices + 1))
      passed += len(upto)
    models.append(model)
  return tuple(models), passed
