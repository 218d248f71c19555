"""`legonet quickstart`: fits, forgets, and proves it, on the embedded data."""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import common, console, figure

TEXT = """\
Fits a LegoNet on 6,000 real CIFAR-10 encodings that come with the package, forgets
random samples one request at a time, then a whole class, and proves by digest that each
result equals, bit for bit, a fresh fit on the remaining samples. With the default
options it also compares the digests with the published ones, which hold on every
machine. Exit code 1 if a proof fails.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  parser.add_argument(
    "--adapters", type=int, default=100, metavar="N", help="number of adapters (100)"
  )
  parser.add_argument(
    "--top-k", type=int, default=10, metavar="K", help="adapters per sample (10)"
  )
  parser.add_argument(
    "--forget", type=int, default=100, metavar="M", help="M random samples (100)"
  )
  parser.add_argument(
    "--forget-class", type=int, default=5, metavar="C", help="this class (5: dog)"
  )
  parser.add_argument("--seed", type=int, default=0, help="of keys and weights (0)")
  parser.add_argument(
    "--solver",
    choices=("ridge", "sgd"),
    default="ridge",
    help="ridge: closed form, forgets by subtraction; sgd: the paper's (ridge)",
  )
  parser.add_argument(
    "--figure",
    type=pathlib.Path,
    default=pathlib.Path("legonet_quickstart.png"),
    metavar="FILE",
    help="where to save the figure (legonet_quickstart.png)",
  )


def run(args: argparse.Namespace) -> int:
  """Runs the command."""
  say = console.sayer(quiet=args.json)
  train, test = lego.data.embedded.load_embedded()
  _check(args, train)
  cfg = lego.LegoConfig(
    num_classes=10,
    num_adapters=args.adapters,
    top_k=args.top_k,
    seed=args.seed,
    solver=lego.Ridge() if args.solver == "ridge" else lego.Sgd(),
  )
  samples = lego.make_samples(cfg, train.encodings, train.labels, train.ids)
  accuracy = _accuracy_on(cfg, train, test)
  say(
    f"{len(train.ids):,} training and {len(test.ids):,} test encodings of CIFAR-10;"
    f" n = {args.adapters} adapters, k = {args.top_k}, {args.solver}"
  )

  with console.bar("fit", quiet=args.json) as progress:
    state, info = lego.fit(cfg, samples, progress=progress)
  balance = info.balance
  say(
    f"fit         {info.seconds:.2f} s with compilation,"
    f" test accuracy {accuracy(state)['test']:.1%}"
    f"\n            |D_aj| min {balance.smallest}, median {balance.median:.0f},"
    f" max {balance.largest}, Gini {balance.gini:.2f}"
  )

  published = lego.known_answers.PUBLISHED if _is_default(args) else {}
  reached = {"fit": lego.digest(state)}
  rng = np.random.default_rng(args.seed)
  random_ids = rng.choice(train.ids, args.forget, replace=False)
  one_class = np.setdiff1d(train.ids[train.labels == args.forget_class], random_ids)
  label = lego.data.embedded.CLASSES[args.forget_class]
  tasks: list[tuple[str, list[Any], NDArray[np.int64]]] = [
    (f"{args.forget} samples, one by one", [[i] for i in random_ids], random_ids),
    (f"class {args.forget_class} ({label}), at once", [one_class], one_class),
  ]
  results = []
  names = ("forget 100 samples", "forget a class")
  for name, (title, requests, forgotten) in zip(names, tasks, strict=True):
    result, state = _forget(
      cfg, samples, state, requests, accuracy, forgotten, args.json
    )
    results.append({"task": title, **result})
    reached[name] = result["digest"]
    _tell(say, results[-1])
    if name in published:
      same = reached[name] == published[name]
      word = "equal to" if same else "NOT EQUAL to"
      say(f"  published {published[name][:16]}: {word} the published digest")

  proved = all(r["digest"] == r["refit_digest"] for r in results)
  proved = proved and all(reached[name] == d for name, d in published.items())
  if args.json:
    report = {
      "fit_seconds": info.seconds,
      "balance": balance._asdict(),
      "tasks": results,
      "proved": proved,
      "digests": reached,
      "published": published,
      "environment": lego.environment(),
    }
    print(json.dumps(report), flush=True)
  figure.quickstart(args.figure, results)
  say(f"figure      {args.figure}")
  return 0 if proved else 1


def _is_default(args: argparse.Namespace) -> bool:
  """Whether the digests of these options are published (those of `Ridge` are)."""
  given = (args.adapters, args.top_k, args.forget, args.forget_class, args.seed)
  return args.solver == "ridge" and given == (100, 10, 100, 5, 0)


def _check(args: argparse.Namespace, train: lego.data.embedded.EmbeddedSplit) -> None:
  """Checks all options before any work, also those that are needed only at its end."""
  if not 1 <= args.forget <= len(train.ids) // 2:
    raise errors.ConfigError(
      f"--forget is {args.forget}; give 1 to {len(train.ids) // 2}"
    )
  if not 0 <= args.forget_class < 10:
    raise errors.ConfigError(f"--forget-class is {args.forget_class}; give 0 to 9")
  left = len(train.ids) - args.forget - int(np.sum(train.labels == args.forget_class))
  if args.adapters > left:
    raise errors.ConfigError(
      f"--adapters is {args.adapters}; only {left} samples may be left in the end, and"
      " each adapter needs one as anchor; give at most that many"
    )
  if args.figure.suffix not in (".png", ".pdf", ".svg"):
    raise errors.ConfigError(
      f"--figure is {args.figure}; name a .png, .pdf or .svg file"
    )
  common.check_out("--figure", args.figure, lambda _: True)


def _accuracy_on(
  cfg: lego.LegoConfig,
  train: lego.data.embedded.EmbeddedSplit,
  test: lego.data.embedded.EmbeddedSplit,
) -> Any:
  """A function that gives a state's accuracy on retain, unlearn and test samples."""
  both = np.concatenate([train.encodings, test.encodings])
  truth = np.concatenate([train.labels, test.labels])

  def accuracy(
    state: lego.LegoState, forgotten: NDArray[np.int64] | None = None
  ) -> Any:
    right = lego.core.prediction.classify_array(state.model, both) == truth
    right_train, right_test = right[: len(train.ids)], right[len(train.ids) :]
    if forgotten is None:
      return {"test": float(right_test.mean())}
    retained = np.isin(train.ids, np.setdiff1d(state.ids, forgotten))
    return {
      "retain": float(right_train[retained].mean()),
      "unlearn": float(right_train[np.isin(train.ids, forgotten)].mean()),
      "test": float(right_test.mean()),
    }

  return accuracy


def _forget(
  cfg: lego.LegoConfig,
  samples: lego.Samples,
  state: lego.LegoState,
  requests: list[Any],
  accuracy: Any,
  forgotten: NDArray[np.int64],
  quiet: bool,
) -> tuple[dict[str, Any], lego.LegoState]:
  """Carries out `requests` one by one, then refits to compare."""
  before = accuracy(state, forgotten)
  infos = []
  start = time.perf_counter()
  with console.bar("forget", quiet=quiet) as progress:
    for done, ids in enumerate(requests, 1):
      state, info = lego.unlearn(state, samples, ids)
      infos.append(info)
      progress(done, len(requests))
  seconds = time.perf_counter() - start
  with console.bar("refit", quiet=quiet) as progress:
    refit, refit_info = lego.fit(
      cfg, lego.select(samples, state.ids), progress=progress
    )
  result = {
    "requests": len(requests),
    "seconds_per_request": seconds / len(requests),
    "median_seconds": float(np.median([info.seconds for info in infos])),
    "refit_seconds": refit_info.seconds,
    "adapters_retrained": sum(info.adapters_retrained for info in infos),
    "anchors_replaced": sum(info.anchors_replaced for info in infos),
    "before": before,
    "after": accuracy(state, forgotten),
    "digest": lego.digest(state),
    "refit_digest": lego.digest(refit),
  }
  return result, state


def _tell(say: Any, result: dict[str, Any]) -> None:
  """Prints the result of one task."""
  count, seconds = result["requests"], result["seconds_per_request"]
  equal = result["digest"] == result["refit_digest"]
  say(f"\nforget {result['task']}")
  say(
    f"  time      {seconds:.3f} s per request (median {result['median_seconds']:.3f}),"
    f" a refit takes {result['refit_seconds']:.2f} s"
    f"\n  work      {result['adapters_retrained'] / count:.0f} adapters retrained per"
    f" request, {result['anchors_replaced']} anchors replaced"
    f"\n  proof     {result['digest'][:16]} {'==' if equal else '!='}"
    f" {result['refit_digest'][:16]}"
    f" (refit): {'equal bit for bit' if equal else 'NOT EQUAL'}"
    "\n  accuracy  retain  unlearn    test"
  )
  for when in ("before", "after"):
    a = result[when]
    say(f"    {when:7} {a['retain']:6.1%}  {a['unlearn']:7.1%}  {a['test']:6.1%}")
