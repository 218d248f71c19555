"""`legonet fit`: a run on an encoding store."""

import argparse
import pathlib
from typing import Any

from legonet_jax.cli import common, console, signed
from legonet_jax.core.config import LegoConfig
from legonet_jax.runs import attest, journal, run as run_lib
from legonet_jax.solvers.ridge import Ridge
from legonet_jax.solvers.sgd import Sgd
from legonet_jax.store import read as store_read, rows as store_rows

_TEXT = """\
Fits a LegoNet on the training samples of an encoding store and keeps it in a run
folder: checkpoint, journal, requests. From then on the store is the run's: requests to
forget erase rows in it. Interrupted, run the same command again.

examples:
  legonet encode --dataset cifar10 --encoder resnet34 --out cifar10_224
  legonet fit cifar10_224 --out run --adapters 1000
  legonet import-encodings embedded --out demo && legonet fit demo --out run
"""


def register(commands: Any) -> None:
  """Adds the command."""
  parser = common.parser_of(commands, "fit", "fit a model into a run", _TEXT, run)
  add = parser.add_argument
  solver, cfg = Sgd(), LegoConfig(num_classes=2)
  add("store", type=pathlib.Path, metavar="STORE", help="from encode, import-encodings")
  add("--out", required=True, type=pathlib.Path, metavar="RUN", help="the new run")
  add("--adapters", type=int, default=100, metavar="N", help="n (100)")
  add("--top-k", type=int, default=10, metavar="K", help="k (10)")
  add("--classes", type=int, metavar="C", help="labels 0 ... C-1 (largest label + 1)")
  add("--seed", type=int, default=0, help="of keys, weights and order (0)")
  add("--key-policy", choices=("replace", "given"), default="replace",
      help="what happens when an anchor is forgotten")  # fmt: skip
  add("--keys", type=pathlib.Path, metavar="FILE.npy",
      help="keys [N, d] from public data, for --key-policy given")  # fmt: skip
  add("--key-noise", type=float, default=cfg.key_noise, help=f"ξ ({cfg.key_noise})")
  add("--feature-map", choices=("auto", "l2", "sqrt", "none"), default="auto",
      help="auto: sqrt for ridge, l2 for sgd")  # fmt: skip
  add("--feature-range", type=float, help="needed for --feature-map none")
  add("--aggregate", choices=("auto", "probs", "logits"), default="auto",
      help="what is averaged; auto: logits for ridge, probs for sgd")  # fmt: skip
  add("--solver", choices=("ridge", "sgd"), default="ridge",
      help="a closed form, or the paper's training (ridge)")  # fmt: skip
  add("--penalty", type=float, default=Ridge().penalty, help="of ridge (0.01)")
  add("--epochs", type=int, default=solver.epochs, help=f"({solver.epochs})")
  add(
    "--batch-size", type=int, default=solver.batch_size, help=f"({solver.batch_size})"
  )
  add("--optimizer", default=solver.optimizer, help="a name of optax (adam)")
  add("--learning-rate", type=float, default=0.1, help="(0.1)")
  add("--lanes", type=int, default=solver.lanes, help="adapters side by side (2)")
  add("--ids-file", type=pathlib.Path, metavar="FILE", help="only these samples")
  signed.add_key(parser)


def run(args: argparse.Namespace) -> int:
  """Runs the command; 0 when the run is complete."""
  key = signed.load_key(args)
  classes = args.classes
  if classes is None:
    names = store_read.classes_of(args.store)
    labels = store_rows.read(args.store).labels
    classes = int(labels.max(initial=0)) + 1 if names is None else len(names)
  cfg = LegoConfig(
    num_classes=classes,
    num_adapters=args.adapters,
    top_k=args.top_k,
    seed=args.seed,
    key_policy=args.key_policy,
    key_noise=args.key_noise,
    feature_map=args.feature_map,
    feature_range=args.feature_range,
    encoder=store_read.encoder_of(args.store),
    aggregate=args.aggregate,
    solver=_solver(args),
  )
  keys = None if args.keys is None else common.read_keys(args.keys)
  ids = None if args.ids_file is None else common.read_ids_file(args.ids_file)
  with console.bar("fit", quiet=args.json) as progress:
    made = run_lib.create(args.out, cfg, args.store, ids, keys, progress)
  entries = journal.read(made.layout.journal)
  if key is not None:
    signed.write_in_run(made.layout.head, attest.sign_head(key, made, entries))
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


def _solver(args: argparse.Namespace) -> Sgd | Ridge:
  if args.solver == "ridge":
    return Ridge(penalty=args.penalty)
  return Sgd(
    epochs=args.epochs,
    batch_size=args.batch_size,
    optimizer=args.optimizer,
    options=(("learning_rate", args.learning_rate),),
    lanes=args.lanes,
  )
