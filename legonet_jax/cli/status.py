"""`legonet status`: prints the state of a run."""

from __future__ import annotations

import argparse
from typing import Any

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.cli import common

TEXT = """\
Prints the state of a run: samples, adapters, masked adapters, requests that are not
complete, stores. Requests that a crash has interrupted are finished first, if possible.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the options of the command."""
  common.add_run(parser)
  parser.add_argument("--salts", action="store_true",
                      help="also print the salts of waiting requests")  # fmt: skip


def run(args: argparse.Namespace) -> int:
  """Runs the command."""
  run = common.current(args.path)
  cfg, manifest = run.cfg, run.manifest
  waiting = lego.runs.service.unfinished(args.path)
  stores: list[dict[str, Any]] = []
  for store in manifest.stores:
    try:
      held = lego.store.read.open_store(lego.runs.rows.resolve(args.path, store))
      erased = int(held.meta.get("erased", 0))
      stores.append({"store": store, "rows": len(held.ids), "erased": erased})
    except errors.LegoError as e:
      stores.append({"store": store, "error": str(e)})
  lost = 0
  if all("error" not in s for s in stores):
    lost = len(lego.runs.rows.lost(run.source, run.state.ids))
  value = {
    "run": str(args.path),
    "samples": len(run.state.ids),
    "adapters": cfg.num_adapters,
    "top_k": cfg.top_k,
    "masked": manifest.masked,
    "unfinished": len(waiting),
    "lost": lost,
    "digest": manifest.digest,
    "encoder": cfg.encoder,
    "classes": None if run.classes is None else list(run.classes),
    "stores": stores,
    "other_environment": lego.runs.run.foreign(run),
    **({"salts": _salts(run)} if args.salts else {}),
  }
  lines = [
    f"{args.path}: {len(run.state.ids):,} samples, {cfg.num_adapters} adapters, k ="
    f" {cfg.top_k}, digest {manifest.digest[:16]}",
    f"  {common.counted(manifest.masked, 'adapter')} masked"
    + ("; `legonet heal` trains them" if manifest.masked else ""),
    f"  {common.counted(len(waiting), 'request')} not complete",
  ]
  lines += [
    f"  store {s['store']}: "
    + (s.get("error") or f"{s['rows']:,} rows, {s['erased']:,} erased")
    for s in stores
  ]
  if lost:
    lines.append(
      f"  {lost} retained samples were erased by another run; `legonet unlearn"
      f" {args.path} --erased` lets this one forget them too"
    )
  if args.salts:
    lines += [f"  request {name}: salt {salt}" for name, salt in _salts(run).items()]
  common.show(args, value, "\n".join(lines))
  return 0


def _salts(run: lego.runs.run.Run) -> dict[str, str]:
  """By name, the salts of waiting requests whose files we may read."""
  found = {}
  for name in lego.runs.requests.waiting(run.layout.requests):
    try:
      found[name] = lego.runs.requests.read(run.layout.requests, name).salt.hex()
    except (errors.DamagedRequestError, OSError) as e:
      common.note(f"the salt of request {name} cannot be shown: {e}")
  return found
