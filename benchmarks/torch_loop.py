"""Algorithm 1 of the paper, written plainly in PyTorch, to measure against.

One adapter after the other: its members from the cached float32 encodings, a linear
layer, the same epochs, batches, optimiser and first weights' scale as the settings of
the library say. No trick that hurts it, and none beyond what a careful user writes.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
import torch

import legonet_jax as lego
from legonet_jax.core import features


def features_of(cfg: lego.LegoConfig, samples: lego.Samples) -> torch.Tensor:
  """x [N, d] float32, what the library's adapters see."""
  unit = features.unit(cfg, samples.codes.shape[1])
  return torch.from_numpy(samples.codes.astype(np.float32) * np.float32(unit))


def train(
  cfg: lego.LegoConfig,
  x: torch.Tensor,
  y: torch.Tensor,
  members: Iterable[NDArray[np.intp]],
) -> list[torch.Tensor]:
  """Trains one adapter per entry of `members` (rows of x and y)."""
  solver: lego.Sgd = cfg.solver
  rate = dict(solver.options)["learning_rate"]
  trained = []
  for rows in members:
    mine = torch.from_numpy(rows)
    xs, ys = x[mine], y[mine]
    layer = torch.nn.Linear(x.shape[1], cfg.num_classes, bias=False)
    torch.nn.init.normal_(layer.weight, std=solver.init_scale)
    optimizer = torch.optim.Adam(layer.parameters(), lr=rate)
    for _ in range(solver.epochs):
      for start in range(0, len(rows), solver.batch_size):
        stop = start + solver.batch_size
        logits = layer(xs[start:stop])
        loss = torch.nn.functional.cross_entropy(logits, ys[start:stop])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trained.append(layer.weight.detach())
  return trained
