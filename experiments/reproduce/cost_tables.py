"""Figure 5 of the paper, the work of a request, and the paper's errata, computed.

    python -m experiments.reproduce.cost_tables

prints the tables of docs/cost.md. Nothing is measured here: the numbers follow from the
network (`legonet_jax.cost`), and from the hubs that `experiments.balance` found.
"""

import json
import math
from typing import Any

from experiments import common
from experiments.reproduce import paper, tables
from legonet_jax import cost
from legonet_jax.encoder.counting import count_encoder

Rows = list[dict[str, Any]]

# Figure 5 has 51,200 parameters per adapter: 100 classes.
FIGURE = cost.Setting(num_classes=100)
CIFAR10 = cost.Setting()
_K, _SHARDS = 10, 10


def figure_5_parameters() -> Rows:
  """The left plot: the paper's encoder is its MACs; put back, it equals ours."""
  rows: Rows = []
  macs, parameters = _printed_encoder()
  for method, points in paper.FIGURE_5_PARAMETERS_G.items():
    for size, printed in points.items():
      whole = round(printed * 1e9)
      if method == "sisa":
        label, made, right = f"SISA s = {size}", cost.sisa(size), size * parameters
      else:
        label, made = f"LegoNet n = {size}", cost.legonet(size, 1)
        right = whole - macs + parameters
      rows.append(
        {
          "method": label,
          "paper prints": whole,
          "paper, swapped back": right,
          "ours": cost.count_model(FIGURE, made).parameters,
        }
      )
  return rows


def figure_5_macs() -> Rows:
  """The right plot; the last column counts what the paper counts besides MACs."""
  rows: Rows = []
  macs, parameters = _printed_encoder()
  for method, points in paper.FIGURE_5_FLOPS_M.items():
    for size, printed in points.items():
      whole = round(printed * 1e6)
      if method == "sisa":
        label, made, right = f"SISA s = {size}", cost.sisa(size), size * macs
      else:
        label, made = f"LegoNet k = {size}", cost.legonet(1000, size)
        right = whole - parameters + macs
      ours = cost.count_model(FIGURE, made).macs
      encoders = made.parts if made.own_encoder else 1
      rows.append(
        {
          "method": label,
          "paper prints": whole,
          "paper, swapped back": right,
          "ours": ours,
          "ours + BatchNorm and pooling": ours + encoders * elementwise(FIGURE),
        }
      )
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


def retraining(request: int = 1, epochs: int = 1) -> Rows:
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
  work = {
    label: cost.count_retraining(CIFAR10, method, request, epochs)
    for label, method in methods.items()
  }
  sisa = work[f"SISA s = {_SHARDS}"].macs
  return [
    {
      "method": label,
      "sub-models": w.models,
      "parameters": round(w.parameters),
      "samples per epoch": round(w.samples),
      "million MACs": round(w.macs / 1e6),
      "times fewer than SISA": _short(sisa / w.macs),
    }
    for label, w in work.items()
  ]


def measured_imbalance() -> dict[int, float]:
  """By n: Σ |D_aj|² over the even split's, on all of CIFAR-10 under the default map."""
  found = json.loads((common.RESULTS / "balance.json").read_text())
  return {
    row["n"]: row["retrained_over_even"]
    for row in found["rows"]
    if row["map"] == "sqrt"
  }


def errata() -> Rows:
  """What the paper says, and what follows from the network and from its own numbers."""
  rnc = cost.count_model(FIGURE, cost.rnc())
  macs, parameters = _printed_encoder()
  shard = cost.count_retraining(CIFAR10, cost.sisa(_SHARDS))
  lego = {n: cost.count_retraining(CIFAR10, cost.legonet(n, _K)) for n in (100, 1000)}
  share = {
    n: 100 * paper.SECONDS["lego"][i] / paper.SECONDS["sisa"][0]
    for i, n in ((0, 100), (3, 1000))
  }
  total, anchors = CIFAR10.num_samples, 1000
  missed = math.comb(total - anchors, 100) / math.comb(total, 100)
  entries = (
    (
      f"Figure 5, Parameters: SISA s = 1 has {macs / 1e9:.3f} G",
      f"{rnc.parameters / 1e6:.2f} M",
      "The encoder's operations stand in the plot of parameters. An RNC of"
      f" {FIGURE.num_classes} classes has {rnc.parameters:,} parameters.",
    ),
    (
      f"Figure 5, FLOPs: SISA s = 1 needs {parameters / 1e6:.2f} M",
      f"{macs / 1e9:.3f} G in the paper's count, {rnc.macs / 1e9:.3f} G MACs in ours",
      "The encoder's parameters stand in the plot of FLOPs. They are multiply-"
      "accumulates, two FLOPs each; the paper's count also has"
      f" {elementwise(FIGURE):,} operations of BatchNorm and pooling.",
    ),
    (
      "SISA needs to re-train 3.68 million parameters",
      f"{shard.parameters / 1e6:.1f} million per shard",
      f"The swapped number again: {round(shard.parameters):,} with 10 classes."
      f" LegoNet's {lego[100].parameters / 1e3:.1f} thousand is right.",
    ),
    (
      "LegoNet can even achieve k²N/n < N/s",
      f"only for n > k²s, {_K**2 * _SHARDS} at k = {_K} and s = {_SHARDS}",
      " ".join(
        f"At n = {n}: {w.samples:,.0f} {_sign(w.samples, shard.samples)}"
        f" {shard.samples:,.0f}."
        for n, w in lego.items()
      )
      + " In the paper's comparison, s = n/k, LegoNet reads k times as many samples;"
      " it is faster because each costs less.",
    ),
    (
      f"LegoNet (n = 100) only costs {share[1000]:.2f} % of the time of SISA (s = 10)",
      f"n = 1000 costs {share[1000]:.2f} %, n = 100 costs {share[100]:.2f} %",
      "Figure 3: {0[0]} and {0[3]} s against {1[0]} s.".format(
        paper.SECONDS["lego"], paper.SECONDS["sisa"]
      ),
    ),
    (
      "Keys are encodings of training samples plus a slight noise, and fixed",
      "the key of a deleted anchor must be replaced",
      "It is the deleted sample's encoding, up to the noise. At n = 1000 one random"
      f" request in {total // anchors} is for an anchor, and Random100 has at least one"
      f" in {100 * (1 - missed):.0f} % of all draws.",
    ),
  )
  return [
    {"paper says": says, "it should be": should, "why": why}
    for says, should, why in entries
  ]


def _printed_encoder() -> tuple[int, int]:
  """The paper's count of operations and of parameters of one RNC."""
  macs = round(paper.FIGURE_5_PARAMETERS_G["sisa"][1] * 1e9)
  return macs, round(paper.FIGURE_5_FLOPS_M["sisa"][1] * 1e6)


def _sign(a: float, b: float) -> str:
  return "=" if a == b else "<" if a < b else ">"


def _short(ratio: float) -> float | int:
  """Whole from 10 on."""
  return ratio if ratio < 10 else round(ratio)


def main() -> None:
  """Prints all tables as Markdown."""
  place = "CIFAR-10, ResNet-34 at 224, one epoch, expected values."
  for title, caption, rows in (
    ("Figure 5, parameters", "ResNet-34, C = 100.", figure_5_parameters()),
    ("Figure 5, MACs", "ResNet-34 at 224, C = 100, n = 1000.", figure_5_macs()),
    ("A request of one sample", place, retraining()),
    ("A request of 100 samples at once", place, retraining(100)),
    ("Errata", "", errata()),
  ):
    print(tables.markdown(tables.from_rows("", title, caption, rows), level=2))


if __name__ == "__main__":
  main()
