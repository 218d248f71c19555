"""How even is the routing, what do hubs cost, and which feature map is the best?

    python -m experiments.balance --encodings DIR

The paper says that |D_aj| is roughly uniform. For each feature map and n = 100, 1000
(k = 10) this prints the distribution of |D_aj|, the samples that one random request
retrains (Σ |D_aj|² / N) over what it would be if all adapters were alike (k² N / n),
and the test accuracy averaging probabilities and averaging logits. `none` is the plain
encoding; its learning rate is that of the others divided by its typical norm. On 2
cores and CIFAR-10 about 3 minutes; results in experiments/results/balance.json.
"""

import argparse
import dataclasses

import numpy as np

from experiments import common
import legonet_jax as lego
from legonet_jax.cli import console


def main() -> None:
  """Measures all maps and prints a table."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  common.add_encodings(parser)
  parser.add_argument("--adapters", type=int, nargs="+", default=[100, 1000])
  parser.add_argument("--seed", type=int, default=0)
  args = parser.parse_args()
  train, test = (common.load(args.encodings, s) for s in ("train", "test"))
  e = np.asarray(train.encodings, np.float32)
  norm = float(np.linalg.norm(e, axis=1).mean())

  base = lego.LegoConfig(int(train.labels.max()) + 1, seed=args.seed, solver=lego.Sgd())
  rate = dict(base.solver.options)["learning_rate"]
  slow = (("learning_rate", rate / norm), *base.solver.options[1:])
  settings = {
    "none": dataclasses.replace(
      base,
      feature_map="none",
      feature_range=float(np.abs(e).max()),  # a measurement, not a recommendation
      solver=dataclasses.replace(base.solver, options=slow),
    ),
    "l2": dataclasses.replace(base, feature_map="l2"),
    "sqrt": dataclasses.replace(base, feature_map="sqrt"),
  }
  rows = []
  print("map      n    min  median    max  Gini  retrained/even  acc probs  acc logits")
  for name, cfg in settings.items():
    samples = lego.make_samples(cfg, e, train.labels)
    for n in args.adapters:
      cfg = dataclasses.replace(cfg, num_adapters=n)
      with console.bar(f"{name}, n = {n}", quiet=False) as progress:
        state, info = lego.fit(cfg, samples, progress=progress)
      sizes = state.sizes.astype(float)
      even = cfg.top_k**2 * len(samples.ids) / n
      row = {
        "map": name,
        "n": n,
        **info.balance._asdict(),
        "retrained_over_even": float((sizes**2).sum() / len(samples.ids) / even),
        "fit_seconds": info.seconds,
      }
      # Both means of the same adapters, whichever the settings of the fit name.
      for way in ("probs", "logits"):
        averaged = dataclasses.replace(state.model.cfg, aggregate=way)
        model = dataclasses.replace(state.model, cfg=averaged)
        row[f"accuracy_{way}"] = common.accuracy(model, test)
      rows.append(row)
      print(
        f"{name:5} {n:4} {row['smallest']:6} {row['median']:7.0f} {row['largest']:6}"
        f"  {row['gini']:.2f}  {row['retrained_over_even']:14.2f}"
        f"  {row['accuracy_probs']:9.2f}  {row['accuracy_logits']:10.2f}",
        flush=True,
      )
  print(common.save(args.out, "balance", {"seed": args.seed, "rows": rows}))


if __name__ == "__main__":
  main()
