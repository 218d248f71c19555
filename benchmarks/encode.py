"""Images per second of the encoder, beside PyTorch on the same cores.

    pip install "legonet-jax[bench]"
    python -m benchmarks.encode [--out benchmarks/results/encode.json]

ResNet-34, float32, inference. Both run in one process on all its cores, in turns, so
that whatever else the machine does hits them alike; the median of the rounds is
reported. PyTorch runs in `inference_mode`, in both memory layouts, with BatchNorm as it
is and folded (`fuse_conv_bn_eval`); the ratio is against the fastest of the four. Both
start from normalised float32 images. Compilation (reported) is not in the rates.
"""

import argparse
from collections.abc import Callable
import copy
import itertools
import json
import os
import pathlib
import statistics
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from legonet_jax.encoder import encode, resnet, weights
from legonet_jax.runtime.environment import environment

CASES = ((224, 16), (64, 128))  # image size, batch
NAME = "resnet34"


def main() -> None:
  """Measures all cases and writes the results."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--rounds", type=int, default=9)
  parser.add_argument("--out", type=pathlib.Path)
  args = parser.parse_args()
  import torch

  load = os.getloadavg()[0]  # above 0: others were at work here as well
  torch.set_num_threads(os.cpu_count() or 1)
  reference = _torch_resnet().ResNet(NAME).eval()
  state = {k: v.numpy() for k, v in reference.state_dict().items()}
  variables = weights.from_torchvision(resnet.build_resnet(NAME), state)
  results = [
    measure(size, batch, reference, variables, args.rounds) for size, batch in CASES
  ]
  report = {
    "encoder": NAME,
    "cores": os.cpu_count(),
    "torch": torch.__version__,
    "environment": environment(),
    "rounds": args.rounds,
    "load_average_before": load,
    "results": results,
  }
  print(json.dumps(report, indent=1))
  if args.out:
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")


def measure(
  size: int, batch: int, reference: Any, variables: resnet.Variables, rounds: int
) -> dict[str, Any]:
  """Rates of all contestants on one batch shape, and how far their features differ."""
  images = np.random.default_rng(0).standard_normal((batch, size, size, 3), np.float32)
  net = resnet.build_resnet(NAME)
  folded = encode.prepare(encode.ImageEncoder(NAME, size), variables)
  ours = jax.jit(lambda params, x: resnet.apply_folded(net, params, x))
  began = time.perf_counter()
  compiled = ours.lower(folded, images).compile()
  compile_seconds = time.perf_counter() - began
  held = jnp.asarray(images)
  runs: dict[str, Callable[[], Any]] = {
    "legonet": lambda: compiled(folded, held).block_until_ready(),
    **_torch_runs(reference, images),
  }
  features = {name: np.asarray(run()) for name, run in runs.items()}
  error = max(
    np.linalg.norm(features["legonet"] - f) / np.linalg.norm(f)
    for f in features.values()
  )
  seconds: dict[str, list[float]] = {name: [] for name in runs}
  for _ in range(rounds):
    for name, run in runs.items():
      began = time.perf_counter()
      run()
      seconds[name].append(time.perf_counter() - began)
  rates = {name: batch / statistics.median(times) for name, times in seconds.items()}
  best = max(rate for name, rate in rates.items() if name != "legonet")
  # Each round's own ratio cancels what slows the whole machine down for a while.
  ratios = [
    min(seconds[name][i] for name in runs if name != "legonet") / seconds["legonet"][i]
    for i in range(rounds)
  ]
  return {
    "size": size,
    "batch": batch,
    "images_per_second": {name: round(rate, 2) for name, rate in rates.items()},
    "ratio_to_fastest_torch": round(rates["legonet"] / best, 3),
    "median_ratio_of_rounds": round(statistics.median(ratios), 3),
    "largest_relative_difference": float(error),
    "compile_seconds": round(compile_seconds, 1),
  }


def _torch_runs(reference: Any, images: np.ndarray) -> dict[str, Callable[[], Any]]:
  import torch

  def runner(model: Any, layout: Any) -> Callable[[], Any]:
    model = copy.deepcopy(model).to(memory_format=layout)
    batch = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    batch = batch.to(memory_format=layout)

    def run() -> Any:
      with torch.inference_mode():
        return model(batch).numpy()

    return run

  layouts = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
  models = {"torch": reference, "torch_folded": _fold(reference)}
  return {
    f"{kind}_{name}": runner(model, layout)
    for kind, model in models.items()
    for name, layout in layouts.items()
  }


def _fold(reference: Any) -> Any:
  """PyTorch's own folding of every BatchNorm into the convolution before it."""
  from torch import nn
  from torch.nn.utils.fusion import fuse_conv_bn_eval

  model = copy.deepcopy(reference).eval()
  for module in model.modules():
    children = list(module.named_children())
    for (a, conv), (b, norm) in itertools.pairwise(children):
      if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
        setattr(module, a, fuse_conv_bn_eval(conv, norm))
        setattr(module, b, nn.Identity())
  return model


def _torch_resnet() -> Any:
  """The reference network of the parity tests."""
  sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))
  import torch_resnet

  return torch_resnet


if __name__ == "__main__":
  main()
