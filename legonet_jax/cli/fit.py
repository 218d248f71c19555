"""`legonet fit`: makes a run from an encoding store."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from typing import Any

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import common, console, signed

TEXT = """\
Fits a LegoNet on the training samples of an encoding store and keeps it in a run
folder: checkpoint, journal, requests. From then on the store belongs to the run:
requests to forget erase rows in it. If it is interrupted, run the same command again.

examples:
  legonet encode --dataset cifar10 --encoder resnet34 --out cifar10_224
  legonet fit cifar10_224 --out run --adapters 1000
  legonet import-encodings embedded --out demo && legonet fit demo --out run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command; their defaults are the library's."""
  add = parser.add_argument
  add("store", type=pathlib.Path, metavar="STORE",
      help="made by encode or import-encodings")  # fmt: skip
  add("--out", required=True, type=pathlib.Path, metavar="RUN", help="the new run")
  add("--adapters", type=int, metavar="N", help="number of adapters (100)")
  add("--top-k", type=int, metavar="K", help="adapters per sample (10)")
  add("--classes", type=int, metavar="C", help="labels 0 ... C-1 (largest label + 1)")
  add("--seed", type=int, help="of keys, weights and order (0)")
  add("--key-policy", choices=("replace", "given"),
      help="what happens when an anchor is forgotten (replace)")  # fmt: skip
  add("--keys", type=pathlib.Path, metavar="FILE.npy",
      help="keys [N, d] from public data, for --key-policy given")  # fmt: skip
  add("--key-noise", type=float, help="noise on keys, ξ (0.01)")
  add("--feature-map", choices=("auto", "l2", "sqrt", "none"),
      help="auto: sqrt for ridge, l2 for sgd")  # fmt: skip
  add("--feature-range", type=float, help="needed for --feature-map none")
  add("--aggregate", choices=("auto", "probs", "logits"),
      help="average these; auto: logits for ridge, probs for sgd")  # fmt: skip
  add("--solver", default="ridge", metavar="SOLVER",
      help="ridge (closed form), sgd (the paper's training), or MODULE:CLASS, a solver"
      " of your own (ridge)")  # fmt: skip
  add("--set", dest="fields", action="append", default=[], metavar="NAME=VALUE",
      help="a setting of your own solver")  # fmt: skip
  add("--penalty", type=float, help="of ridge (0.01)")
  add("--epochs", type=int, help="of sgd (20)")
  add("--batch-size", type=int, help="of sgd (64)")
  add("--optimizer", help="of sgd, a name of optax (adam)")
  add("--learning-rate", type=float, help="of sgd (0.1)")
  add("--lanes", type=int, help="of sgd, adapters trained side by side (2)")
  add("--ids-file", type=pathlib.Path, metavar="FILE", help="only these samples")
  signed.add_key(parser)


def run(args: argparse.Namespace) -> int:
  """Runs the command; 0 when the run is complete."""
  key = signed.load_key(args)
  classes = args.classes
  if classes is None:
    names = lego.store.read.classes_of(args.store)
    labels = lego.store.rows.read(args.store).labels
    classes = int(labels.max(initial=0)) + 1 if names is None else len(names)
  given = {
    "num_adapters": args.adapters,
    "top_k": args.top_k,
    "seed": args.seed,
    "key_policy": args.key_policy,
    "key_noise": args.key_noise,
    "feature_map": args.feature_map,
    "feature_range": args.feature_range,
    "aggregate": args.aggregate,
  }
  cfg = lego.LegoConfig(
    num_classes=classes,
    encoder=lego.store.read.encoder_of(args.store),
    solver=_solver(args),
    **_without_none(given),
  )
  keys = None if args.keys is None else lego.data.encodings.read_given_keys(args.keys)
  ids = None if args.ids_file is None else common.read_ids_file(args.ids_file)
  with console.bar("fit", quiet=args.json) as progress:
    made = lego.runs.create.create(args.out, cfg, args.store, ids, keys, progress)
  entries = lego.runs.journal.read(made.layout.journal)
  if key is not None:
    signed.write_in_run(
      made.layout.head, lego.runs.attest.sign_head(key, made, entries)
    )
  count = len(made.state.ids)
  value = {
    "run": str(args.out),
    "samples": count,
    "digest": made.manifest.digest,
    "head": entries[-1]["hash"],
  }
  common.show(
    args,
    value,
    f"{args.out}: {cfg.num_adapters} adapters on {count:,} samples, digest"
    f" {made.manifest.digest[:16]}",
  )
  return 0


def _solver(args: argparse.Namespace) -> Any:
  """The solver that the options describe."""
  if args.fields and args.solver in ("ridge", "sgd"):
    raise errors.ConfigError(
      f"--set is for solvers of your own; {args.solver} has its own options, see --help"
    )
  _require_no_others_options(args)
  if args.solver == "ridge":
    return lego.Ridge(**_without_none({"penalty": args.penalty}))
  if args.solver == "sgd":
    given = {
      "epochs": args.epochs,
      "batch_size": args.batch_size,
      "optimizer": args.optimizer,
      "lanes": args.lanes,
    }
    if args.learning_rate is not None or args.optimizer is not None:
      rate = 0.1 if args.learning_rate is None else args.learning_rate
      given["options"] = (("learning_rate", rate),)
    return lego.Sgd(**_without_none(given))
  return _own_solver(args)


_OF_SOLVER = {
  "ridge": ("penalty",),
  "sgd": ("epochs", "batch_size", "optimizer", "learning_rate", "lanes"),
}


def _require_no_others_options(args: argparse.Namespace) -> None:
  """Raises if an option is given that the chosen solver does not have."""
  for solver, options in _OF_SOLVER.items():
    for option in options:
      if solver != args.solver and getattr(args, option) is not None:
        raise errors.ConfigError(
          f"--{option.replace('_', '-')} is an option of {solver}, and the solver is"
          f" {errors.brief(args.solver)}; leave it out, or add --solver {solver}"
        )


def _own_solver(args: argparse.Namespace) -> Any:
  """An instance of MODULE:CLASS; imports the module."""
  module, _, name = args.solver.partition(":")
  if not (module and name):
    raise errors.ConfigError(
      f"--solver is {errors.brief(args.solver)}; give ridge, sgd or MODULE:CLASS"
    )
  common.import_own([module], "--solver")
  kind = getattr(sys.modules[module], name, None)
  if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
    raise errors.ConfigError(
      f"{module} has no dataclass {name}; a solver must be one, see docs/extending.md"
    )
  train = getattr(kind, "train", None)
  if not callable(train) or train is lego.Solver.train:
    raise errors.ConfigError(
      f"{name} has no method train of its own; write one, see docs/extending.md"
    )
  fields: dict[str, Any] = {}
  for text in args.fields:
    field, equals, value = text.partition("=")
    if not equals:
      raise errors.ConfigError(f"--set is {errors.brief(text)}; give NAME=VALUE")
    try:
      fields[field] = json.loads(value)
    except ValueError:
      fields[field] = value
  known = [field.name for field in dataclasses.fields(kind) if field.init]
  for field in fields:
    if field not in known:
      raise errors.ConfigError(
        f"{name} has no setting {errors.brief(field)} for --set; it has"
        f" {', '.join(known) or 'none'}"
      )
  try:
    return kind(**fields)
  except TypeError as e:
    raise errors.ConfigError(f"--solver {args.solver}: {e}; check --set") from None


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
  return {name: value for name, value in values.items() if value is not None}
