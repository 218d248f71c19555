"""torchvision's ResNet in plain torch, names and layout included: the reference.

Written from the architecture's description (He et al. 2015; stride on the 3×3 of a
bottleneck, as torchvision does), because torchvision itself is not a dependency.
"""

import torch
from torch import nn

LAYERS = {
  "resnet18": (False, (2, 2, 2, 2)),
  "resnet34": (False, (3, 4, 6, 3)),
  "resnet50": (True, (3, 4, 6, 3)),
}


class Block(nn.Module):
  def __init__(self, inputs, width, stride, bottleneck):
    super().__init__()
    outputs = 4 * width if bottleneck else width
    if bottleneck:
      shapes = [
        (inputs, width, 1, 1),
        (width, width, 3, stride),
        (width, outputs, 1, 1),
      ]
    else:
      shapes = [(inputs, width, 3, stride), (width, outputs, 3, 1)]
    self.depth = len(shapes)
    for i, (a, b, k, s) in enumerate(shapes, 1):
      self.add_module(f"conv{i}", nn.Conv2d(a, b, k, s, k // 2, bias=False))
      self.add_module(f"bn{i}", nn.BatchNorm2d(b))
    self.downsample = None
    if stride > 1 or inputs != outputs:
      self.downsample = nn.Sequential(
        nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
      )

  def forward(self, x):
    y = x
    for i in range(1, self.depth + 1):
      y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
      y = torch.relu(y) if i < self.depth else y
    return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
  def __init__(self, name):
    super().__init__()
    bottleneck, stages = LAYERS[name]
    self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    self.bn1 = nn.BatchNorm2d(64)
    self.maxpool = nn.MaxPool2d(3, 2, 1)
    inputs = 64
    for s, count in enumerate(stages):
      blocks = []
      for b in range(count):
        stride = 2 if s > 0 and b == 0 else 1
        blocks.append(Block(inputs, 64 << s, stride, bottleneck))
        inputs = (64 << s) * (4 if bottleneck else 1)
      self.add_module(f"layer{s + 1}", nn.Sequential(*blocks))

  def forward(self, x):
    x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
    for s in range(1, 5):
      x = getattr(self, f"layer{s}")(x)
    return x.mean(dim=(2, 3))


def randomise(net, seed):
  """Random weights and running statistics, so that no BatchNorm is the identity."""
  rng = torch.Generator().manual_seed(seed)
  for name, tensor in net.state_dict().items():
    if tensor.dtype != torch.float32:
      continue
    if name.endswith("running_var") or (tensor.ndim == 1 and name.endswith("weight")):
      tensor.copy_(0.5 + torch.rand(tensor.shape, generator=rng))
    elif tensor.ndim == 1:
      tensor.copy_(0.2 * torch.randn(tensor.shape, generator=rng))
  return net
