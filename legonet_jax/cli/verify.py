"""`legonet verify` and `repair`: proofs about a run, and a way back from damage."""

import argparse
import pathlib
from typing import Any

from legonet_jax import errors
from legonet_jax.cli import common, console, signed, table as table_lib
from legonet_jax.core import samples as samples_lib
from legonet_jax.data import dataset as dataset_lib
from legonet_jax.runs import (
  attest,
  certificate as certificate_lib,
  journal,
  key_files,
  repair as repair_lib,
  service,
  verify as verify_lib,
)
from legonet_jax.runs.certificate import Check
from legonet_jax.runs.layout import Layout
from legonet_jax.store import rows as store_rows

_VERIFY = """\
Checks a run: the journal's chain, every file of the checkpoint, the digests, the
stores, that no forgotten sample is back; and makes keys, routes and members of all
adapters again from the samples. --adapters M trains M random adapters again and
compares bits, --full all of them; both write a certificate if everything holds. Exit
code 1 if anything does not.

With --certificate and --encodings it checks a certificate without the run: for others,
who have the retained encodings. It trains 20 random adapters again unless told
otherwise.

examples:
  legonet verify run
  legonet verify run --adapters 20
  legonet verify run --full --out certificate.json --sign-key signing.key
  legonet verify run --since certificate.json --public-key signing.key.pub
  legonet verify --certificate certificate.json --encodings retained_store --full
"""
_REPAIR = """\
Makes a damaged checkpoint again: fits on the retained samples in the stores, and proves
by the digest in the journal that it is the state that was lost.
"""
_SAMPLE = 20
_ONLY_WITH = {
  "RUN": ("head", "since", "out", "sign-key"),
  "--certificate": ("encodings", "ids-file", "keys"),
}


def register(commands: Any) -> None:
  """Adds the commands."""
  parser = common.parser_of(commands, "verify", "check a run", _VERIFY, verify)
  add = parser.add_argument
  add("path", nargs="?", type=pathlib.Path, metavar="RUN", help="the run's folder")
  add("--adapters", type=int, metavar="M", help="train M again, chosen at random")
  add("--full", action="store_true", help="train all again")
  add("--head", default="", metavar="HASH", help="a journal hash that you noted before")
  add("--since", type=pathlib.Path, metavar="FILE",
      help="an earlier certificate or signed head of this run")  # fmt: skip
  add("--out", type=pathlib.Path, metavar="FILE",
      help="where the certificate goes (RUN/certificate.json)")  # fmt: skip
  add("--sign-key", type=pathlib.Path, metavar="KEY", help="sign the certificate")
  add("--public-key", type=pathlib.Path, metavar="FILE",
      help="whose signature the head, or the certificate, must have")  # fmt: skip
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
  which = "RUN" if args.certificate is not None else "--certificate"
  for name in _ONLY_WITH[which]:
    if getattr(args, name.replace("-", "_")):
      raise errors.ConfigError(f"--{name} goes with {which} only; leave it out")
  if args.certificate is not None:
    return _verify_certificate(args)
  layout = Layout(args.path)
  if not layout.settings.is_file():
    raise errors.RunError(f"{args.path} is not a run; make one with `legonet fit`")
  if args.out is not None and args.out.resolve() != layout.certificate.resolve():
    common.check_out("--out", args.out, _is_statement, args.path)
  key = signed.load_key(args)
  public = None if args.public_key is None else key_files.load_public(args.public_key)
  checks, head = _since(args, public)
  _finish_requests(args.path)
  write = args.full or bool(args.adapters) or bool(args.out) or key is not None
  adapters = args.adapters
  if adapters is None:
    adapters = _sample(args.path) if write and not args.full else 0
  with console.bar("verify", quiet=args.json) as progress:
    report = verify_lib.verify(args.path, adapters, args.full, head, progress)
  checks += report.checks
  if public is not None:
    checks += attest.check_signed_head(layout.head, public, _entries(layout))
  out = None
  certificate = report.certificate
  if write and certificate is not None and all(check.passed for check in checks):
    data = certificate_lib.seal(certificate)
    if key is not None:
      data = attest.sign_certificate(key, certificate)
    out = _write(args, certificate, data)
  return _report(args, checks, out)


def _since(args: argparse.Namespace, public: Any | None) -> tuple[list[Check], str]:
  """Checks of the file that `--since` names, and the head that must be there."""
  if args.since is None:
    return [], args.head
  if args.head:
    raise errors.ConfigError("give --head or --since, not both")
  found = attest.read(args.since, public)
  if not found.head:
    raise errors.RunError(f"{args.since} names no entry of a journal; use another one")
  checks = [check._replace(name="since") for check in found.checks]
  return checks, found.head


def _entries(layout: Layout) -> list[journal.Entry]:
  """The journal, or nothing if it is damaged, which the checks have said already."""
  try:
    return journal.read(layout.journal)
  except errors.LegoError:
    return []


def _is_statement(path: pathlib.Path) -> bool:
  """Whether a file is a certificate, signed or not, or a signed head."""
  try:
    attest.read(path, None)
  except (errors.LegoError, OSError):
    return False
  return True


def _finish_requests(path: pathlib.Path) -> None:
  """Finishes what was accepted before, if that can be done here."""
  try:
    if service.unfinished(path):
      session, _ = service.carry_out(path)
      common.tell_notes(session)
  except (errors.LegoError, OSError) as e:
    common.note(str(e))


def _sample(path: pathlib.Path) -> int:
  try:
    first = journal.read(Layout(path).journal)[0]
    return min(_SAMPLE, int(first["config"]["num_adapters"]))
  except (errors.LegoError, KeyError, TypeError, ValueError):
    return 0


def _write(
  args: argparse.Namespace, certificate: certificate_lib.Certificate, data: bytes
) -> pathlib.Path | None:
  """Writes the certificate; what keeps it from that changes nothing of the verdict."""
  masked = sum(w is None for w in certificate["weights"])
  if masked:
    common.note(
      f"no certificate is written: {masked} adapters wait for `legonet heal`, and"
      " nothing can be said of them"
    )
    return None
  out: pathlib.Path = args.out or Layout(args.path).certificate
  try:
    if args.out is None:
      signed.write_in_run(out, data)
    else:
      signed.write_elsewhere(out, data)
  except (OSError, errors.RunBusyError) as e:
    common.note(f"the certificate could not be written: {' '.join(str(e).split())}")
    return None
  return out


def repair(args: argparse.Namespace) -> int:
  """Runs the command."""
  with console.bar("repair", quiet=args.json) as progress:
    run, proved = repair_lib.repair(args.path, progress)
    session, _ = service.carry_out(args.path, None, progress)  # what has come in
  common.tell_notes(session)
  value = {"digest": run.manifest.digest, "proved": proved}
  why = "equal to the lost one" if proved else "NOT comparable with the lost one"
  common.show(args, value, f"{args.path}: digest {run.manifest.digest[:16]}, {why}")
  return 0


def _verify_certificate(args: argparse.Namespace) -> int:
  if args.encodings is None:
    raise errors.ConfigError("--certificate needs the retained samples: --encodings")
  public = None if args.public_key is None else key_files.load_public(args.public_key)
  found = attest.read(args.certificate, public)
  claimed = found.certificate
  if claimed is None:
    raise errors.RunError(f"{args.certificate} is a signed head, not a certificate")
  if found.signed and public is None:
    common.note("its signature is not checked; give the signer's --public-key")
  checks = [*found.checks, certificate_lib.check_parts(claimed)]
  if not checks[-1].passed:
    return _report(args, checks, None)
  cfg = certificate_lib.config_of(claimed)
  table = table_lib.read_table(args.encodings)
  rows = _retained(args, table)
  classes = claimed.get("classes")
  if classes is not None and table.classes is not None:
    labels = store_rows.renumber(
      rows.labels, table.classes, tuple(classes), str(args.encodings)
    )
    rows = rows._replace(labels=labels)
  samples = samples_lib.make_samples(cfg, rows.encodings, rows.labels, rows.ids)
  keys = None
  if cfg.key_policy == "given":
    if args.keys is None:
      raise errors.ConfigError("this model has given keys; name their file with --keys")
    keys = common.read_keys(args.keys)
  adapters = args.adapters
  if adapters is None:
    adapters = min(_SAMPLE, cfg.num_adapters)
  chosen = verify_lib.choose(cfg, adapters, args.full)
  if not len(chosen):
    raise errors.ConfigError("--adapters is 0; a certificate is checked by training")
  with console.bar("verify", quiet=args.json) as progress:
    checks += certificate_lib.recheck(claimed, samples, keys, chosen, progress)
  if not args.full and len(chosen) < cfg.num_adapters:
    common.note(
      f"{cfg.num_adapters - len(chosen)} adapters and the digest of the whole state are"
      " not checked; --full does it"
    )
  return _report(args, checks, None)


def _retained(
  args: argparse.Namespace, table: table_lib.InputTable
) -> store_rows.StoreRows:
  rows = table.rows
  if args.ids_file is None:
    return table_lib.take(rows, rows.split == dataset_lib.TRAIN)
  wanted = samples_lib.check_ids(common.read_ids_file(args.ids_file))
  return table_lib.take_ids(rows, wanted, args.encodings)


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
