"""A random draw for which one training step is a well-posed question in float32.

A ReLU input within rounding error of zero, or two values as close in a maximum, makes
a float32 gradient a matter of luck. A ResNet has millions of them, and an ordinary draw
always holds a few such. Here the draw stays random, and is then changed a little:

* Each BatchNorm bias moves, by at most `_REACH` of its scale, to where zero is in the
  middle of the widest gap between the values of its channel in this batch. ReLUs still
  cut through their channels; none cuts close to a value.
* Where the two largest values of a max-pooling window nearly tie, the pixels below it
  are drawn anew.
* The scale that ends a block is small, as in common initialisations (Goyal et al. 2017
  take zero): random blocks at full scale amplify every rounding error with depth, and
  PyTorch's float32 gradients of ResNet-50 are then 5e-4 away from its float64 ones.

The changes are computed in float64, where the decisions are beyond doubt, and are
float32 values. `margin` measures the result.
"""

import copy

import torch
from torch.nn import functional

_REACH = 0.25
_TIE = 1e-4
_LAST_SCALE = 0.2


def separate(net, batch, seed):
  """`net` and images [B, 3, H, W], changed as above, as new objects in float64."""
  moved, batch = copy.deepcopy(net).double().train(), batch.double()
  with torch.no_grad():
    _break_ties(moved, batch, torch.Generator().manual_seed(seed))
    x = moved.maxpool(_settle(moved.bn1, moved.bn1(moved.conv1(batch))))
    for stage in (moved.layer1, moved.layer2, moved.layer3, moved.layer4):
      for block in stage:
        x = _settle_block(block, x)
  moved.load_state_dict(dict(net.named_buffers()), strict=False)  # not yet trained
  return moved, batch


def margin(exact, rounded):
  """How far every decision is from turning, in units of its layer's rounding error.

  `exact` and `rounded` are the inputs of all ReLUs in float64 and float32, the stem's
  first. Beyond 1, both take the same decisions.
  """
  errors = [(e - r).abs().max() for e, r in zip(exact, rounded, strict=True)]
  ratios = [e.abs().min() / r for e, r in zip(exact, errors, strict=True)]
  stem = torch.relu(exact[0])
  alive = functional.max_pool2d(stem, 3, 2, 1) > 0  # elsewhere no gradient passes
  return min(*ratios, _leads(stem)[alive].min() / (2 * errors[0])).item()


def _settle_block(block, x):
  y = x
  for i in range(1, block.depth + 1):
    norm = getattr(block, f"bn{i}")
    if i == block.depth:
      norm.weight.copy_((_LAST_SCALE * norm.weight).float())
    y = norm(getattr(block, f"conv{i}")(y))
    if i == block.depth:
      y = y + (x if block.downsample is None else block.downsample(x))
    y = _settle(norm, y)
  return y


def _settle(norm, x):
  """Moves the bias that `norm` put into x [B, C, H, W]; the ReLU of x, so moved."""
  reach = _REACH * norm.weight[:, None]
  values = x.transpose(0, 1).flatten(1).clamp(-reach, reach)
  values = torch.cat([values, -reach, reach], 1).sort(1).values
  lower = values.diff(dim=1).argmax(1, keepdim=True)
  middle = (values.gather(1, lower) + values.gather(1, lower + 1))[:, 0] / 2
  bias = (norm.bias - middle).float().double()
  moved = x + (bias - norm.bias)[:, None, None]
  norm.bias.copy_(bias)
  return torch.relu(moved)


def _break_ties(net, batch, rng):
  for _ in range(100):
    ties = (_leads(net.bn1(net.conv1(batch))) < _TIE).any(1).nonzero().tolist()
    if not ties:
      return
    for b, i, j in ties:
      # Window i holds rows 2i-1 to 2i+1, and row r of the 7×7 pixels 2r-3 to 2r+3.
      patch = batch[b, :, max(4 * i - 5, 0) : 4 * i + 6, max(4 * j - 5, 0) : 4 * j + 6]
      patch.copy_(torch.randn(patch.shape, generator=rng))
  raise AssertionError("some windows still tie after 100 draws")


def _leads(x):
  """By how much the largest value leads in each window of the max pooling."""
  wide = functional.pad(x, (1, 1, 1, 1), value=-torch.inf)
  top = wide.unfold(2, 3, 2).unfold(3, 3, 2).flatten(4).topk(2).values
  return top[..., 0] - top[..., 1]
