"""Figure 5 of the paper, the work of a request, and the paper's errata, computed.

    python -m experiments.reproduce.cost_tables

prints the tables of docs/cost.md. Nothing is measured here: the numbers follow from the
network (`legonet_jax.measures.cost`) and from the hubs that `experiments.balance`
found.
"""

import json
import math
from typing import Any

from experiments import common
from experiments.reproduce import labels, paper
from experiments.reproduce.tables import Table, fill_words, make_table, markdown
from legonet_jax.encoder.counting import count_encoder
from legonet_jax.measures import cost

TableRows = list[dict[str, Any]]

# Figure 5 has 51,200 parameters per adapter: 100 classes.
FIGURE = cost.Setting(num_classes=100)
CIFAR10 = cost.Setting()
_K, _SHARDS = 10, 10
# The paper's counts of one RNC, each of which stands in the other's plot.
_MACS = round(paper.FIGURE_5["parameters"]["sisa", 1] * 1e9)
_PARAMETERS = round(paper.FIGURE_5["flops"]["sisa", 1] * 1e6)


def figure_5_parameters() -> TableRows:
  """The left plot: the paper's encoder is its MACs; put back, it equals ours."""
  rows = _swap_back("parameters", 1e9, "n", drawn=_MACS, right=_PARAMETERS)
  for row in rows:
    row["ours"] = cost.count_model(FIGURE, row.pop("made")).parameters
  return rows


def figure_5_macs() -> TableRows:
  """The right plot; the last column counts what the paper counts besides MACs."""
  rows = _swap_back("flops", 1e6, "k", drawn=_PARAMETERS, right=_MACS)
  for row in rows:
    made = row.pop("made")
    row["ours"] = cost.count_model(FIGURE, made).macs
    more = elementwise(FIGURE) * (made.parts if made.own_encoder else 1)
    row["ours + BatchNorm and pooling"] = row["ours"] + more
  return rows


def _swap_back(
  plot: str, unit: float, letter: str, drawn: int, right: int
) -> TableRows:
  """A plot with the `right` number of the encoder for the one that was `drawn`."""
  rows = []
  for (method, size), number in paper.FIGURE_5[plot].items():
    printed = round(number * unit)
    if method == "sisa":
      label, made, swapped = f"SISA s = {size}", cost.sisa(size), size * right
    else:
      label, swapped = f"LegoNet {letter} = {size}", printed - drawn + right
      made = cost.legonet(*((size, 1) if letter == "n" else (1000, size)))
    row: dict[str, Any] = {"method": label, "paper prints": printed}
    rows.append({**row, "paper, swapped back": swapped, "made": made})
  return rows


def elementwise(setting: cost.Setting) -> int:
  """Operations of one encoding in the paper's count that are no MACs.

  4 for each number that a BatchNorm passes over, and h w + 1 for each of the d means
  over the last map [h, w, d]: the rules of the PyTorch tool thop 0.1.1, whose total is
  the paper's to the last digit.
  """
  encoder = count_encoder(setting.encoder, setting.image_size)
  last = encoder.convs[-1]
  norms = sum(conv.elements for conv in encoder.convs)
  return 4 * norms + (last.height * last.width + 1) * encoder.dim


def retraining(request: int = 1, epochs: int = 1) -> TableRows:
  """The expected work of one request on CIFAR-10: N = 50,000, C = 10, ResNet-34 at 224.

  A request of one sample also has LegoNet with the hubs that were measured; for more
  samples their factor is not known.
  """
  methods = {
    "RNC": cost.rnc(),
    f"SISA s = {_SHARDS}": cost.sisa(_SHARDS),
    f"FixSISA s = {_SHARDS}": cost.fixsisa(_SHARDS),
    f"LegoNet n = 100, k = {_K}": cost.legonet(100, _K),
    f"LegoNet n = 1000, k = {_K}": cost.legonet(1000, _K),
  }
  if request == 1:
    for n, factor in measured_imbalance().items():
      label = f"LegoNet n = {n}, k = {_K}, measured hubs"
      methods[label] = cost.legonet(n, _K, factor)
  sisa = cost.count_retraining(CIFAR10, cost.sisa(_SHARDS), request, epochs).macs
  rows = []
  for label, method in methods.items():
    work = cost.count_retraining(CIFAR10, method, request, epochs)
    ratio = sisa / work.macs
    rows.append(
      {
        "method": label,
        "sub-models": work.models,
        "parameters": round(work.parameters),
        "samples per epoch": round(work.samples),
        "million MACs": round(work.macs / 1e6),
        "times fewer than SISA": ratio if ratio < 10 else round(ratio),
      }
    )
  return rows


def measured_imbalance() -> dict[int, float]:
  """By n: Σ |D_aj|² over the even split's, on all of CIFAR-10 under the default map."""
  rows = json.loads((common.RESULTS / "balance.json").read_text())["rows"]
  return {row["n"]: row["retrained_over_even"] for row in rows if row["map"] == "sqrt"}


def errata() -> TableRows:
  """What the paper says, and what follows from the network and from its own numbers."""
  rnc = cost.count_model(FIGURE, cost.rnc())
  shard = cost.count_retraining(CIFAR10, cost.sisa(_SHARDS))
  lego = {n: cost.count_retraining(CIFAR10, cost.legonet(n, _K)) for n in (100, 1000)}
  over = {n: work.samples - shard.samples for n, work in lego.items()}
  signs = {n: "<" if more < 0 else ">" if more else "=" for n, more in over.items()}
  total, anchors, seconds = CIFAR10.num_samples, 1000, paper.SECONDS
  missed = math.comb(total - anchors, 100) / math.comb(total, 100)
  values = {
    "giga": _MACS / 1e9,
    "mega": _PARAMETERS / 1e6,
    "rnc": rnc,
    "rnc_mega": rnc.parameters / 1e6,
    "rnc_giga": rnc.macs / 1e9,
    "more": elementwise(FIGURE),
    "shard": shard,
    "shard_mega": shard.parameters / 1e6,
    "lego": lego,
    "lego_kilo": lego[100].parameters / 1e3,
    "signs": signs,
    "least": _K**2 * _SHARDS,
    "seconds": seconds,
    "few": 100 * seconds["lego"][0] / seconds["sisa"][0],
    "many": 100 * seconds["lego"][3] / seconds["sisa"][0],
    "one_in": total // anchors,
    "hit": 100 * (1 - missed),
  }
  return [
    {part: fill_words(words, **values) for part, words in erratum.items()}
    for erratum in labels.WORDS["errata"]
  ]


def tabulate_cost() -> list[Table]:
  """Figure 5 corrected, the work of a request, and the errata."""
  return [
    make_table("cost_parameters", figure_5_parameters()),
    make_table("cost_macs", figure_5_macs()),
    make_table("cost_request_1", retraining(1)),
    make_table("cost_request_100", retraining(100)),
    make_table("errata", errata()),
  ]


def main() -> None:
  """Prints all tables as Markdown."""
  for table in tabulate_cost():
    print(markdown(table, level=2))


if __name__ == "__main__":
  main()
