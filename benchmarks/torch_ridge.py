"""The closed form of `Ridge`, written in PyTorch, to measure against.

Gathers the float32 features of an adapter's members, sums up A = XᵀX and B = YᵀX, adds
the penalty, and solves with a Cholesky factor. It keeps no sums between requests, and
its bits depend on the machine. The factors of all adapters are one batched call, which
is faster here than one by one.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
import torch

import legonet_jax as lego


def solve(
  cfg: lego.LegoConfig,
  x: torch.Tensor,
  y: torch.Tensor,
  members: Sequence[NDArray[np.intp]],
) -> torch.Tensor:
  """W [m, C, d] of one adapter per entry of `members` (rows of x and y)."""
  solver: lego.Ridge = cfg.solver
  dim = x.shape[1]
  gram = torch.empty(len(members), dim, dim)
  cross = torch.empty(len(members), cfg.num_classes, dim)
  for j, rows in enumerate(members):
    mine = torch.from_numpy(rows)
    xs = x[mine]
    hit = torch.nn.functional.one_hot(y[mine], cfg.num_classes).to(x.dtype)
    torch.mm(xs.T, xs, out=gram[j])
    torch.mm(hit.T, xs, out=cross[j])
  diagonal = gram.diagonal(dim1=1, dim2=2)
  diagonal += solver.penalty * diagonal.mean(dim=1, keepdim=True)
  factor = torch.linalg.cholesky(gram)
  return torch.cholesky_solve(cross.transpose(1, 2), factor).transpose(1, 2)
