"""Which cells make which table or figure."""

import argparse
from collections.abc import Callable

from experiments.reproduce import end_to_end, on_encodings, privacy, timing
from experiments.reproduce.cells import Cell
from experiments.reproduce.inputs import Inputs, make_inputs
from experiments.reproduce.scales import SCALES, Scale
from legonet_jax.cli import compiled

Suite = Callable[[Scale, Inputs], list[Cell]]

# Cheap cells first, and seeds outermost: a run cut short has something of everything.
SUITES: dict[str, tuple[Suite, ...]] = {
  "main": (on_encodings.task_cells, end_to_end.task_cells),
  "ablation": (on_encodings.accuracy_cells, end_to_end.accuracy_cells),
  "hyperparameters": (on_encodings.accuracy_cells, on_encodings.explain_cells),
  "time": (timing.time_cells,),
  "cost": (),
  "privacy": (privacy.privacy_cells,),
}
_ALL = (
  on_encodings.accuracy_cells,
  on_encodings.task_cells,
  on_encodings.explain_cells,
  privacy.privacy_cells,
  timing.time_cells,
  end_to_end.task_cells,
  end_to_end.accuracy_cells,
)

ABOUT = {
  "main": "Table 1: RNC, SISA, FixSISA, LegoNet on Random100 and UnClass",
  "ablation": "Table 2 and the left of Figure 3: accuracy against segmentation",
  "hyperparameters": "Figure 4: n and k, and why accuracy changes with n",
  "time": "the right of Figure 3: seconds per request, side by side",
  "cost": "Figure 5: parameters and multiply-accumulates, and the paper's errata",
  "privacy": "U-LiRA and KLoM with its null",
  "all": "everything",
}


def build(args: argparse.Namespace) -> list[Cell]:
  """The cells that a command line asks for; also where a worker process begins."""
  compiled.use_cache()
  scale = SCALES[args.scale]
  inputs = make_inputs(scale, args.dataset, args.encodings, args.images, args.weights)
  return make_cells(args.suite, scale, inputs)


def make_cells(suite: str, scale: Scale, inputs: Inputs) -> list[Cell]:
  """The cells of a suite, each once."""
  makers = _ALL if suite == "all" else SUITES[suite]
  found: dict[str, Cell] = {}
  for make in makers:
    for cell in make(scale, inputs):
      found.setdefault(cell.name, cell)
  return list(found.values())
