"""A certificate: a description of a model that others can check without the run.

It names the settings, the encoder, the environment, and for every adapter the digests
of its members and weights. It holds no id and no encoding. Whoever has the retained
encodings can make keys, routes and members again (integers, the same everywhere), train
adapters of their own choice, and compare: equal on every machine if the solver is
portable (`Ridge`), else on the same environment.

Every claim can be checked: a certificate is made only for a model whose adapters are
all trained, and a certificate with a missing part is refused.
"""

from collections.abc import Mapping
import dataclasses
import datetime
import hashlib
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from legonet_jax import errors
from legonet_jax.core.config import LegoConfig, describe, is_portable
from legonet_jax.core.samples import Samples
from legonet_jax.host import requests
from legonet_jax.host.advance import advance
from legonet_jax.host.digest import digest
from legonet_jax.host.state import LegoState, from_arrays, to_arrays, untrained
from legonet_jax.io import hashing, untrusted
from legonet_jax.runtime.callbacks import Progress
from legonet_jax.runtime.checks import Check
from legonet_jax.runtime.environment import differences
from legonet_jax.solvers.settings import parse_config

FORMAT = "legonet-jax certificate 2"
Certificate = dict[str, Any]


def make(
  cfg: LegoConfig,
  state: LegoState,
  made_on: Mapping[str, str],
  head: str,
  classes: tuple[str, ...] | None = None,
) -> Certificate:
  """The certificate of a state.

  Args:
    cfg: its settings.
    state: the state.
    made_on: the environment that its weights were trained on.
    head: the hash of the journal's last entry.
    classes: the names of labels 0 ... C-1, if they have any.
  """
  masked = masked_adapters(cfg, state)
  weights = [
    None if gone else w for gone, w in zip(masked, _weights(state), strict=True)
  ]
  now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
  return {
    "format": FORMAT,
    "time": now,
    "config": describe(cfg),
    "classes": None if classes is None else list(classes),
    "encoder": cfg.encoder,
    "environment": dict(made_on),
    "portable": is_portable(cfg),
    "digest": digest(state),
    "journal": head,
    "samples": len(state.ids),
    **_structure(cfg, state),
    "weights": weights,
  }


def sealed(certificate: Certificate) -> Certificate:
  """The certificate with its own sha256."""
  return {**certificate, "sha256": _hash(certificate)}


def seal(certificate: Certificate) -> bytes:
  """The certificate as JSON text with its own sha256."""
  return hashing.to_text(sealed(certificate))


def check_seal(value: Certificate, name: str) -> Certificate:
  """Returns `value`; raises RunError if it is no certificate or was changed."""
  if value.get("format") != FORMAT or value.get("sha256") != _hash(value):
    raise errors.RunError(f"{name} is not a certificate, or was changed since")
  return value


def check_parts(certificate: Certificate) -> Check:
  """Whether a certificate has all its parts, none of them null."""
  try:
    cfg = config_of(certificate)
  except errors.UnknownSolverError:
    raise  # it may well be true: the caller has to import the solver first
  except (errors.LegoError, KeyError, TypeError, ValueError) as e:
    return Check("parts", False, f"its settings cannot be read ({e})")
  n = cfg.num_adapters
  problem = ""
  for name in ("digest", "retained", "keys", "routes"):
    if not _is_hash(certificate.get(name)):
      problem = problem or f"{name} is missing"
  for name in ("members", "weights"):
    values = certificate.get(name)
    if not isinstance(values, list) or len(values) != n:
      problem = problem or f"{name} are missing"
    elif not all(_is_hash(value) for value in values):
      empty = next(j for j, value in enumerate(values) if not _is_hash(value))
      problem = problem or f"nothing is claimed of the {name} of adapter {empty}"
  sizes = certificate.get("sizes")
  if not isinstance(sizes, list) or len(sizes) != n:
    problem = problem or "sizes are missing"
  if not isinstance(certificate.get("environment"), dict):
    problem = problem or "the environment is missing"
  classes = certificate.get("classes")
  if classes is not None and not untrusted.is_a(classes, list):
    problem = problem or "the names of the classes are no texts"
  if problem:
    return Check("parts", False, problem)
  return Check("parts", True, f"digests of {n} adapters, none missing")


def config_of(certificate: Certificate) -> LegoConfig:
  """The settings that a certificate is about."""
  return parse_config(certificate["config"])


def recheck(
  certificate: Certificate,
  samples: Samples,
  keys: NDArray[Any] | None,
  chosen: NDArray[np.intp],
  progress: Progress | None = None,
) -> list[Check]:
  """Makes the model of a certificate again, with the chosen adapters, and compares.

  Args:
    certificate: the claims.
    samples: all retained samples and no others.
    keys: K [n, d], required under the policy `given`, else None.
    chosen: [m] adapters to train, ascending. If these are all adapters, the digest of
      the whole state is compared as well.
    progress: called with (samples passed, samples in all).
  """
  cfg = config_of(certificate)
  start = untrained(cfg, samples.codes.shape[1], keys)
  none = np.zeros(0, np.int64)
  state, _ = advance(start, samples, none, samples.ids, defer=True)
  claims = {"samples": len(samples.ids), "encoder": cfg.encoder}
  checks = [_compare_structure(certificate, {**_structure(cfg, state), **claims})]
  if not len(chosen) or not checks[0].passed:
    return checks
  claimed = certificate["weights"]
  wanted = np.zeros(cfg.num_adapters, bool)
  wanted[chosen] = [claimed[j] is not None for j in chosen]
  masked = np.asarray([w is None for w in claimed], bool)
  # `heal` trains the adapters that are not live: here, exactly the chosen ones.
  net = dataclasses.replace(state.net, live=jnp.asarray(~wanted))
  state = dataclasses.replace(state, net=net)
  state, _ = requests.heal(state, samples, progress)
  made = _weights(state)
  bad = [int(j) for j in np.flatnonzero(wanted) if made[j] != claimed[j]]
  what = f"{int(wanted.sum())} of {cfg.num_adapters} adapters trained again"
  detail = f"{what}, equal bit for bit"
  if bad:
    detail = f"{what}, {len(bad)} differ, the first is adapter {bad[0]}"
    detail += _elsewhere(certificate)
  checks.append(Check("weights", not bad, detail))
  if len(chosen) == cfg.num_adapters:
    whole = _as_masked(cfg, state, masked)
    same = digest(whole) == certificate["digest"]
    detail = f"{digest(whole)[:16]} {'==' if same else '!='}"
    detail += f" {certificate['digest'][:16]} (claimed)"
    checks.append(
      Check("refit", same, detail + ("" if same else _elsewhere(certificate)))
    )
  return checks


def _structure(cfg: LegoConfig, state: LegoState) -> dict[str, Any]:
  """Digests of keys, routes and members, which are integers on every machine."""
  routes, n = state.routes.ravel(), cfg.num_adapters
  # Stable, so that the members of an adapter stay in hash order.
  by_adapter = np.argsort(routes, kind="stable")
  prints = state.prints[by_adapter // cfg.top_k]
  bounds = np.searchsorted(routes[by_adapter], np.arange(n + 1))
  return {
    "retained": _sha(state.prints),
    "keys": _sha(np.asarray(state.net.keys)),
    "routes": _sha(state.routes),
    "members": [_sha(part) for part in np.split(prints, bounds[1:-1])],
    "sizes": np.diff(bounds).tolist(),
  }


def _compare_structure(certificate: Certificate, found: Mapping[str, Any]) -> Check:
  for name, value in found.items():
    if certificate.get(name) != value:
      text = "differ"
      if name == "retained":
        text = (
          "these are not the retained samples; give the run's stores as they are now,"
          " or the retained ids with --ids-file"
        )
      return Check("members", False, f"{name}: {text}")
  count = len(found["sizes"])
  detail = f"keys, routes and members of {count} adapters made again, equal"
  return Check("members", True, detail)


def masked_adapters(cfg: LegoConfig, state: LegoState) -> NDArray[np.bool_]:
  """Which adapters [n] have members but no weights, because they wait for `heal`."""
  masked: NDArray[np.bool_] = (state.sizes > 0) & ~state.live
  return masked


def _as_masked(
  cfg: LegoConfig, state: LegoState, masked: NDArray[np.bool_]
) -> LegoState:
  """A whole state as it is while the adapters `masked` [n] wait for `heal`."""
  arrays = to_arrays(state)
  arrays["weights"][masked] = 0
  return from_arrays({**arrays, "live": (state.sizes > 0) & ~masked}, cfg)


def _weights(state: LegoState) -> list[str]:
  return [_sha(solution.weights) for solution in state.solutions]


def _elsewhere(certificate: Certificate) -> str:
  names = differences(certificate["environment"])
  if not names or is_portable(config_of(certificate)):
    return ""
  return (
    f" (trained on another environment: {', '.join(names)} differ, so the last bits may"
    " as well; check it on the same environment)"
  )


def _is_hash(value: Any) -> bool:
  return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _sha(array: NDArray[Any]) -> str:
  return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _hash(value: Mapping[str, Any]) -> str:
  plain = {k: v for k, v in value.items() if k != "sha256"}
  return hashing.sha256_of_json(plain)
