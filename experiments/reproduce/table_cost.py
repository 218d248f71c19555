"""Costs and errata as tables; the numbers are computed in `cost_tables`."""

from experiments.reproduce import cost_tables
from experiments.reproduce.tables import Table, from_rows

_NONE_MEASURED = (
  "Computed from the network, nothing is measured, so there are no seeds and no "
  "hardware; by `python -m experiments.reproduce.cost_tables`."
)


def cost_list() -> list[Table]:
  """Figure 5 corrected, and the work of a request."""
  work = (
    "Expected work of one epoch, CIFAR-10, N = 50,000, C = 10, ResNet-34 at 224 px. "
    "Encodings of a frozen encoder are kept. "
  )
  swapped = (
    "The paper's two plots have the encoder's numbers swapped; put back, its "
    "parameters equal ours, and its MACs once those of BatchNorm and pooling count. "
  )
  return [
    from_rows(
      "cost_parameters",
      "Figure 5, corrected: parameters",
      "ResNet-34, C = 100. " + swapped + _NONE_MEASURED,
      cost_tables.figure_5_parameters(),
    ),
    from_rows(
      "cost_macs",
      "Figure 5, corrected: MACs of one inference",
      "ResNet-34 at 224 px, C = 100, n = 1000. " + swapped + _NONE_MEASURED,
      cost_tables.figure_5_macs(),
    ),
    from_rows(
      "cost_request_1",
      "Work of forgetting one sample",
      work + _NONE_MEASURED,
      cost_tables.retraining(1),
    ),
    from_rows(
      "cost_request_100",
      "Work of forgetting 100 samples at once",
      work + _NONE_MEASURED,
      cost_tables.retraining(100),
    ),
  ]


def errata_table() -> Table:
  """What the paper says, what it should say, and why."""
  return from_rows(
    "errata", "Errata of the paper", _NONE_MEASURED, cost_tables.errata()
  )
