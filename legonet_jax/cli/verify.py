"""`legonet verify`: checks a run, or a certificate without the run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import pathlib
from typing import Any

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import common, console, signed, table as table_lib

TEXT = """\
Checks a run: the journal's chain, every file of the checkpoint, the digests, the
stores, and that no forgotten sample is back. It makes keys, routes and members of all
adapters again from the samples and compares them. --adapters M also trains M random
adapters again and compares bits; --full trains all of them. Both write a certificate if
every check passes. Exit code 1 if a check fails.

With --certificate and --encodings it checks a certificate without the run, for anybody
who has the retained encodings. By default it trains 20 random adapters again. A run
that has learned has several stores (`legonet status RUN` names them): give them all.

examples:
  legonet verify run
  legonet verify run --adapters 20
  legonet verify run --full --out certificate.json --sign-key signing.key
  legonet verify run --since certificate.json --public-key signing.key.pub
  legonet verify --certificate certificate.json --encodings retained_store --full
  legonet verify --certificate certificate.json --encodings store run/learned/*
"""

_SAMPLE = 20
_ONLY_WITH = {
  "RUN": ("head", "since", "out", "sign-key"),
  "--certificate": ("encodings", "ids-file", "keys"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  add = parser.add_argument
  add("path", nargs="?", type=pathlib.Path, metavar="RUN", help="the run's folder")
  add("--adapters", type=int, metavar="M", help="train M random adapters again")
  add("--full", action="store_true", help="train all adapters again")
  add("--head", default="", metavar="HASH", help="a journal hash that you noted before")
  add("--since", type=pathlib.Path, metavar="FILE",
      help="an earlier certificate or signed head of this run")  # fmt: skip
  add("--out", type=pathlib.Path, metavar="FILE",
      help="write the certificate here (RUN/certificate.json)")  # fmt: skip
  add("--sign-key", type=pathlib.Path, metavar="KEY", help="sign the certificate")
  add("--public-key", type=pathlib.Path, metavar="FILE",
      help="the key that must have signed the head or the certificate")  # fmt: skip
  add("--certificate", type=pathlib.Path, metavar="FILE", help="check this certificate")
  add("--encodings", type=pathlib.Path, nargs="+", action="extend",
      metavar="STORE|FILE.npz",
      help="the retained samples, for --certificate; in one or more stores or"
      " files")  # fmt: skip
  add("--ids-file", type=pathlib.Path, metavar="FILE",
      help="which rows of --encodings are retained (all training rows)")  # fmt: skip
  add("--keys", type=pathlib.Path, metavar="FILE.npy",
      help="the given keys, for --certificate")  # fmt: skip


def run(args: argparse.Namespace) -> int:
  """Runs the command; 0 if everything holds, else 1."""
  if (args.path is None) == (args.certificate is None):
    both = "" if args.path is None else ", not both"
    raise errors.ConfigError(f"name a run, or a --certificate with --encodings{both}")
  which = "RUN" if args.certificate is not None else "--certificate"
  for name in _ONLY_WITH[which]:
    if getattr(args, name.replace("-", "_")):
      raise errors.ConfigError(f"--{name} goes with {which} only; leave it out")
  if args.certificate is not None:
    return _verify_certificate(args)
  layout = lego.runs.layout.Layout(args.path)
  if not layout.settings.is_file():
    cure = "make one with `legonet fit`"
    if args.path.is_file() and _is_statement(args.path):
      cure = "check a certificate with --certificate FILE --encodings STORE"
    raise errors.RunError(f"{args.path} is not a run; {cure}")
  if args.out is not None and args.out.resolve() != layout.certificate.resolve():
    common.check_out("--out", args.out, _is_statement, args.path)
  key = signed.load_key(args)
  public = (
    None
    if args.public_key is None
    else lego.runs.key_files.load_public(args.public_key)
  )
  checks, head = _since(args, public)
  _finish_requests(args.path)
  write = args.full or bool(args.adapters) or bool(args.out) or key is not None
  if args.out is not None:
    _require_healed(args.path)
  adapters = args.adapters
  if adapters is None:
    adapters = _sample(args.path) if write and not args.full else 0
  with console.bar("verify", quiet=args.json) as progress:
    report = lego.runs.verify.verify(args.path, adapters, args.full, head, progress)
  checks += report.checks
  if public is not None:
    checks += lego.runs.attest.check_signed_head(layout.head, public, _entries(layout))
  out = None
  certificate = report.certificate
  if write and certificate is not None and all(check.passed for check in checks):
    data = lego.runs.certificate.seal(certificate)
    if key is not None:
      data = lego.runs.attest.sign_certificate(key, certificate)
    out = _write(args, certificate, data)
  if report.sources:
    common.note(
      "files outside of the run may still hold forgotten samples:"
      f" {common.named(report.sources)}"
    )
  return _report(args, checks, out, report.sources)


def _since(
  args: argparse.Namespace, public: Any | None
) -> tuple[list[lego.runtime.checks.Check], str]:
  """Checks of the `--since` file, and the head that must be in the journal."""
  if args.since is None:
    return [], args.head
  if args.head:
    raise errors.ConfigError("give --head or --since, not both")
  found = lego.runs.attest.read(args.since, public)
  if not found.head:
    raise errors.RunError(f"{args.since} names no entry of a journal; use another one")
  checks = [check._replace(name="since") for check in found.checks]
  return checks, found.head


def _entries(layout: lego.runs.layout.Layout) -> list[lego.runs.journal.Entry]:
  """The journal, or [] if it is damaged, which an earlier check has reported."""
  try:
    return lego.runs.journal.read(layout.journal)
  except errors.LegoError:
    return []


def _is_statement(path: pathlib.Path) -> bool:
  """Whether a file is a certificate, signed or not, or a signed head."""
  try:
    lego.runs.attest.read(path, None)
  except (errors.LegoError, OSError):
    return False
  return True


def _finish_requests(path: pathlib.Path) -> None:
  """Finishes what other commands have left: requests, or half a file; if possible."""
  layout = lego.runs.layout.Layout(path)
  try:
    if lego.runs.service.unfinished(path):
      session, _ = lego.runs.service.carry_out(path)
      common.tell_notes(session)
    elif lego.runs.layout.temporaries(path) and not lego.io.lock.holder(path):
      lego.io.durable.require_plain(path)
      with lego.io.lock.hold(path):
        lego.runs.session.remove_temporaries(layout)
  except (errors.LegoError, OSError) as e:
    common.note(str(e))


def _sample(path: pathlib.Path) -> int:
  try:
    first = lego.runs.journal.read(lego.runs.layout.Layout(path).journal)[0]
    return min(_SAMPLE, int(first["config"]["num_adapters"]))
  except (errors.LegoError, KeyError, TypeError, ValueError):
    return 0


def _require_healed(path: pathlib.Path) -> None:
  """Raises if a certificate that was asked for could not be written in the end."""
  try:
    masked = lego.runs.run.load(path).manifest.masked
  except (errors.LegoError, OSError):
    return  # the checks say what is wrong
  if masked:
    raise errors.RunError(
      f"{masked} adapters are masked and cannot be certified; run `legonet heal"
      f" {path}` first, or leave out --out"
    )


def _write(
  args: argparse.Namespace, certificate: lego.runs.certificate.Certificate, data: bytes
) -> pathlib.Path | None:
  """Writes the certificate; a failure is only noted and does not change the verdict."""
  masked = sum(w is None for w in certificate["weights"])
  if masked:
    common.note(
      f"no certificate is written: {masked} adapters wait for `legonet heal` and cannot"
      " be certified"
    )
    return None
  out: pathlib.Path = args.out or lego.runs.layout.Layout(args.path).certificate
  try:
    if args.out is None:
      signed.write_in_run(out, data)
    else:
      signed.write_elsewhere(out, data)
  except (OSError, errors.RunBusyError) as e:
    common.note(f"the certificate could not be written: {' '.join(str(e).split())}")
    return None
  return out


def _verify_certificate(args: argparse.Namespace) -> int:
  if args.encodings is None:
    raise errors.ConfigError("--certificate needs the retained samples: --encodings")
  public = (
    None
    if args.public_key is None
    else lego.runs.key_files.load_public(args.public_key)
  )
  found = lego.runs.attest.read(args.certificate, public)
  claimed = found.certificate
  if claimed is None:
    raise errors.RunError(f"{args.certificate} is a signed head, not a certificate")
  if found.signed and public is None:
    common.note("its signature is not checked; give the signer's --public-key")
  checks = [*found.checks, lego.runs.certificate.check_parts(claimed)]
  if not checks[-1].passed:
    return _report(args, checks, None)
  cfg = lego.runs.certificate.config_of(claimed)
  ids = None if args.ids_file is None else common.read_ids_file(args.ids_file)
  classes = claimed.get("classes")
  samples = table_lib.read_samples(cfg, args.encodings, ids, classes)
  keys = None
  if cfg.key_policy == "given":
    if args.keys is None:
      raise errors.ConfigError("this model has given keys; name their file with --keys")
    keys = lego.data.encodings.read_given_keys(args.keys)
  adapters = args.adapters
  if adapters is None:
    adapters = min(_SAMPLE, cfg.num_adapters)
  chosen = lego.runs.verify.choose(cfg, adapters, args.full)
  if not len(chosen):
    raise errors.ConfigError("--adapters is 0; a certificate is checked by training")
  with console.bar("verify", quiet=args.json) as progress:
    checks += lego.runs.certificate.recheck(claimed, samples, keys, chosen, progress)
  if not args.full and len(chosen) < cfg.num_adapters:
    common.note(
      f"{cfg.num_adapters - len(chosen)} adapters and the digest of the whole state are"
      " not checked; --full checks them"
    )
  return _report(args, checks, None)


def _report(
  args: argparse.Namespace,
  checks: list[lego.runtime.checks.Check],
  out: pathlib.Path | None,
  sources: Sequence[str] = (),
) -> int:
  passed = all(check.passed for check in checks)
  value = {
    "passed": passed,
    "checks": [check._asdict() for check in checks],
    "certificate": str(out) if out else None,
    "sources": list(sources),
  }
  lines = [f"{'ok  ' if c.passed else 'FAIL'}  {c.name:10} {c.detail}" for c in checks]
  if out:
    lines.append(f"certificate: {out}")
  common.show(args, value, "\n".join(lines))
  return 0 if passed else 1
