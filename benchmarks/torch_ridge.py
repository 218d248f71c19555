"""The closed form of `Ridge`, written in PyTorch, to measure against.

Gathers the float32 features of an adapter's members, sums up A = XᵀX and B = YᵀX, adds
the penalty, and solves with a Cholesky factor. It keeps no sums between requests, and
its bits depend on the machine. Of the ways to write it these two are the fastest here:
one adapter after the other, each on all threads (batched factors, or one-hot labels for
B, take a little longer), and one adapter per thread.
"""

from collections.abc import Sequence
from concurrent import futures

import numpy as np
from numpy.typing import NDArray
import torch

import legonet_jax as lego

Members = Sequence[NDArray[np.intp]]  # rows of x and y, for each adapter


def solve(
  cfg: lego.LegoConfig, x: torch.Tensor, y: torch.Tensor, members: Members
) -> list[torch.Tensor]:
  """W [C, d] of each adapter, one after the other."""
  return [_solve_one(cfg, x, y, rows) for rows in members]


def solve_in_pool(
  pool: futures.Executor,
  cfg: lego.LegoConfig,
  x: torch.Tensor,
  y: torch.Tensor,
  members: Members,
) -> list[torch.Tensor]:
  """W [C, d] of each adapter; every thread of `pool` has adapters of its own."""
  threads = torch.get_num_threads()
  torch.set_num_threads(1)
  try:
    return list(pool.map(lambda rows: _solve_one(cfg, x, y, rows), members))
  finally:
    torch.set_num_threads(threads)


def _solve_one(
  cfg: lego.LegoConfig, x: torch.Tensor, y: torch.Tensor, rows: NDArray[np.intp]
) -> torch.Tensor:
  solver: lego.Ridge = cfg.solver
  mine = torch.from_numpy(rows)
  xs = x[mine]
  gram = xs.T @ xs
  cross = torch.zeros(cfg.num_classes, x.shape[1]).index_add_(0, y[mine], xs)
  gram.diagonal().add_(solver.penalty * gram.diagonal().mean())
  return torch.cholesky_solve(cross.T, torch.linalg.cholesky(gram)).T
