"""`legonet verify` and `repair`: proofs about a run, and a way back from damage."""

import argparse
import pathlib
from typing import Any

import numpy as np

from legonet_jax import errors, samples as samples_lib
from legonet_jax.cli import common, console
from legonet_jax.runs import (
  certificate as certificate_lib,
  durable,
  lock,
  repair as repair_lib,
  rows as rows_lib,
  service,
  verify as verify_lib,
)
from legonet_jax.runs.certificate import Check
from legonet_jax.runs.layout import Layout

_VERIFY = """\
Checks a run: the journal's chain, every file of the checkpoint, the digests, the
stores; and makes keys, routes and members of all adapters again from the samples.
--adapters M trains M random adapters again and compares bits, --full all of them; both
write a certificate. Exit code 1 if anything does not hold.

With --certificate and --encodings it checks a certificate without the run: for others,
who have the retained encodings.

examples:
  legonet verify run
  legonet verify run --adapters 20
  legonet verify run --full --out certificate.json
  legonet verify --certificate certificate.json --encodings retained_store --adapters 20
"""
_REPAIR = """\
Makes a damaged checkpoint again: fits on the retained samples in the stores, and proves
by the digest in the journal that it is the state that was lost.
"""


def register(commands: Any) -> None:
  """Adds the commands."""
  parser = common.parser_of(commands, "verify", "check a run", _VERIFY, verify)
  add = parser.add_argument
  add("path", nargs="?", type=pathlib.Path, metavar="RUN", help="the run's folder")
  add("--adapters", type=int, default=0, metavar="M", help="train M again")
  add("--full", action="store_true", help="train all again")
  add("--head", default="", metavar="HASH", help="a journal hash that you noted before")
  add("--out", type=pathlib.Path, metavar="FILE",
      help="where the certificate goes (RUN/certificate.json)")  # fmt: skip
  add("--certificate", type=pathlib.Path, metavar="FILE", help="check this one")
  add("--encodings", type=pathlib.Path, metavar="STORE|FILE.npz",
      help="the retained samples, for --certificate")  # fmt: skip
  add("--ids-file", type=pathlib.Path, metavar="FILE",
      help="which rows of --encodings are retained (all training rows)")  # fmt: skip
  add("--keys", type=pathlib.Path, metavar="FILE.npy",
      help="the given keys, for --certificate")  # fmt: skip
  parser = common.parser_of(
    commands, "repair", "make a damaged checkpoint again", _REPAIR, repair
  )
  common.add_run(parser)


def verify(args: argparse.Namespace) -> int:
  """Runs the command; 0 if everything holds, else 1."""
  if (args.path is None) == (args.certificate is None):
    raise errors.ConfigError("name a run, or a --certificate with --encodings")
  if args.certificate is not None:
    return _verify_certificate(args)
  layout = Layout(args.path)
  if not layout.settings.is_file():
    raise errors.RunError(f"{args.path} is not a run; make one with `legonet fit`")
  try:
    if service.unfinished(args.path):
      service.carry_out(args.path)
  except (errors.LegoError, OSError) as e:
    common.note(" ".join(str(e).split()))
  with console.bar("verify", quiet=args.json) as progress:
    report = verify_lib.verify(args.path, args.adapters, args.full, args.head, progress)
  out = args.out
  if report.certificate is not None and (args.adapters or args.full or out):
    out = out or layout.certificate
    with lock.folder(args.path):
      durable.write(out, certificate_lib.seal(report.certificate))
  return _report(args, report.checks, out)


def repair(args: argparse.Namespace) -> int:
  """Runs the command."""
  with console.bar("repair", quiet=args.json) as progress:
    run, proved = repair_lib.repair(args.path, progress)
    service.carry_out(args.path, None, progress)  # what has come in meanwhile
  value = {"digest": run.manifest.digest, "proved": proved}
  why = "equal to the lost one" if proved else "NOT comparable with the lost one"
  common.show(args, value, f"{args.path}: digest {run.manifest.digest[:16]}, {why}")
  return 0


def _verify_certificate(args: argparse.Namespace) -> int:
  if args.encodings is None:
    raise errors.ConfigError("--certificate needs the retained samples: --encodings")
  claimed = certificate_lib.read(args.certificate)
  cfg = certificate_lib.config_of(claimed)
  rows = common.read_rows(args.encodings)
  if args.ids_file is not None:
    rows = common.take(rows, np.isin(rows.ids, common.read_ids_file(args.ids_file)))
  else:
    rows = common.take(rows, rows.split == rows_lib.TRAIN)
  samples = samples_lib.make_samples(cfg, rows.encodings, rows.labels, rows.ids)
  keys = None
  if cfg.key_policy == "given":
    if args.keys is None:
      raise errors.ConfigError("this model has given keys; name their file with --keys")
    keys = np.load(args.keys, allow_pickle=False)
  chosen = verify_lib.choose(cfg, args.adapters, args.full)
  with console.bar("verify", quiet=args.json) as progress:
    checks = certificate_lib.recheck(claimed, samples, keys, chosen, progress)
  return _report(args, checks, None)


def _report(
  args: argparse.Namespace, checks: list[Check], out: pathlib.Path | None
) -> int:
  passed = all(check.passed for check in checks)
  value = {
    "passed": passed,
    "checks": [check._asdict() for check in checks],
    "certificate": str(out) if out else None,
  }
  lines = [f"{'ok  ' if c.passed else 'FAIL'}  {c.name:10} {c.detail}" for c in checks]
  if out:
    lines.append(f"certificate: {out}")
  common.show(args, value, "\n".join(lines))
  return 0 if passed else 1
