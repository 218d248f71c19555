"""FixSISA: SISA whose shards share one frozen encoder, so a sub-model is one layer.

The layer of a shard is trained like an adapter of LegoNet, with the same solver and
feature map: it is a LegoNet with n = k = 1 on the samples of the shard. So FixSISA and
LegoNet differ only in which sub-models train on a sample, which ones answer, and, with
`Ridge`, that SISA averages probabilities and LegoNet logits. To forget a sample, its
shard is trained again, as in SISA; LegoNet's `Ridge` subtracts instead.
"""

import dataclasses
from typing import Any

from legonet_jax.baselines.learner import Learner
from legonet_jax.core.config import LegoConfig
from legonet_jax.core.ids import Ids
from legonet_jax.core.model import Model
from legonet_jax.core.prediction import predict_array
from legonet_jax.core.samples import Samples, select
from legonet_jax.host.requests import fit


def linear_learner(cfg: LegoConfig, samples: Samples) -> Learner:
  """One linear layer on encodings, for `sisa`.

  Args:
    cfg: solver, feature map and number of classes; n and k are taken as 1.
    samples: the table that ids refer to, from `make_samples` with the same settings.

  Returns:
    A learner whose inputs are encodings e [B, d]. A layer is solved from its members
    alone, so slices change nothing but the time.
  """
  one = dataclasses.replace(cfg, num_adapters=1, top_k=1, key_policy="replace")

  def train(model: Any, ids: Ids, stream: int, share: float) -> Model:
    del model, stream, share
    return fit(one, select(samples, ids))[0].model

  return Learner(lambda stream: None, train, predict_array)
