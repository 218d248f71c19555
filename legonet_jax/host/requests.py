"""fit, unlearn and learn: every request is checked before anything changes.

The state after any sequence of requests, in any order and batching, is bit for bit the
state of a fresh fit on the samples that remain (see `advance`).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from legonet_jax import errors
from legonet_jax.core import ids as ids_lib, keys as keys_lib, samples as samples_lib
from legonet_jax.core.config import LegoConfig, sample_fingerprint
from legonet_jax.core.ids import Ids
from legonet_jax.core.samples import Samples
from legonet_jax.host.advance import Info, advance
from legonet_jax.host.state import LegoState, require_state, untrained
from legonet_jax.runtime import flags
from legonet_jax.runtime.callbacks import Progress

_NONE = np.zeros(0, np.int64)


@flags.host_only(twin="update")
def fit(
  cfg: LegoConfig,
  samples: Samples,
  keys: ArrayLike | None = None,
  progress: Progress | None = None,
) -> tuple[LegoState, Info]:
  """Trains n adapters on all of `samples`.

  Args:
    cfg: the settings.
    samples: the table, from `make_samples` with the same settings.
    keys: K [n, d] in encoding space; required by the policy `given`, refused by others.
    progress: called with (samples passed, samples in all).

  Returns:
    The state and what was done.

  Raises:
    ConfigError: if keys are missing or refused; if an array of these settings is larger
      than the memory of this machine.
    TooFewSamplesError: if there are fewer samples than adapters to anchor.
  """
  if not isinstance(cfg, LegoConfig):
    raise errors.ConfigError(
      f"the settings are a {type(cfg).__name__}; give a LegoConfig first"
    )
  _check_table(samples)
  if (keys is not None) != (cfg.key_policy == "given"):
    raise errors.ConfigError(
      f"key_policy {cfg.key_policy!r} {'needs' if keys is None else 'takes no'} keys;"
      " pass keys with key_policy 'given', and only then"
    )
  if not len(samples.ids):
    raise errors.TooFewSamplesError("there is no sample to fit on; give at least one")
  if cfg.key_policy != "given":
    keys_lib.check_count(cfg, len(samples.ids))  # before memory is allocated for them
  _check_samples(cfg, samples)
  start = untrained(cfg, samples.codes.shape[1], keys)
  return advance(start, samples, _NONE, samples.ids, progress)


@flags.host_only(twin="forget")
def unlearn(
  state: LegoState,
  samples: Samples,
  ids: ArrayLike,
  progress: Progress | None = None,
  defer: bool = False,
  skip_forgotten: bool = False,
) -> tuple[LegoState, Info]:
  """Forgets `ids`: the state of a fresh fit on the samples that remain.

  Args:
    state: the state so far; not changed. It knows the settings of its fit.
    samples: a table with at least the retained samples; the samples to forget may be
      missing from it already.
    ids: which samples to forget: at least one, each once.
    progress: called with (samples passed, samples in all).
    defer: forget now, `heal` later: masks every adapter that was trained on the samples
      (not live, without weights). Predictions come from the other adapters, which equal
      those of a refit bit for bit.
    skip_forgotten: leave out ids that the model does not hold (see `is_held`), such as
      those of a list that is sent again, instead of refusing the request.

  Returns:
    The new state and what was done.

  Raises:
    EmptyRequestError, DuplicateIdError: the request has no id, or names one twice.
    ForgottenIdError: the model does not hold a sample, but the table does.
    UnknownIdError: neither model nor table holds it. A state remembers nothing of a
      forgotten sample, not even that it existed.
    TooFewSamplesError: fewer samples than adapters would remain to be anchors.
  """
  _check_fits(state, samples)
  wanted = _check_request(ids)
  if skip_forgotten:
    wanted = wanted[is_held(state, wanted)]
  _check_held(state, samples, wanted)
  _check_count(state, len(wanted), 0)
  return advance(state, samples, wanted, _NONE, progress, defer)


@flags.host_only(twin="learn")
def learn(
  state: LegoState,
  samples: Samples,
  ids: ArrayLike,
  progress: Progress | None = None,
) -> tuple[LegoState, Info]:
  """Learns `ids`: the state of a fresh fit on the old samples and the new ones.

  Args:
    state: the state so far; not changed. It knows the settings of its fit.
    samples: a table with the retained samples and the new ones (see `append`).
    ids: which samples of the table to learn: at least one, each once.
    progress: called with (samples passed, samples in all).

  Returns:
    The new state and what was done.

  Raises:
    EmptyRequestError, DuplicateIdError: the request has no id, names one twice, or
      names one that the model holds already.
    UnknownIdError: the table has no such sample.
  """
  _check_fits(state, samples)
  wanted = _check_request(ids)
  _check_new(state, samples, wanted)
  return advance(state, samples, _NONE, wanted, progress)


@flags.host_only(twin="update")
def heal(
  state: LegoState,
  samples: Samples,
  progress: Progress | None = None,
) -> tuple[LegoState, Info]:
  """Trains the adapters that deferred requests masked, to the state of a fresh fit.

  `learn` and `unlearn` (without `defer`) train them as well.
  """
  _check_fits(state, samples)
  return advance(state, samples, _NONE, _NONE, progress)


@flags.host_only(twin="update")
def update(
  state: LegoState,
  samples: Samples,
  forget: ArrayLike,
  add: ArrayLike,
  progress: Progress | None = None,
  defer: bool = False,
) -> tuple[LegoState, Info]:
  """Many requests at once: forgets some ids and learns others; no id may be in both.

  Trains each adapter at most once, and gives the same state as the requests one by one.
  Either list may be empty; for the rest see `unlearn` and `learn`.
  """
  _check_fits(state, samples)
  gone, new = samples_lib.check_ids(forget), samples_lib.check_ids(add)
  both = np.intersect1d(gone, new)
  if len(both):
    raise errors.DuplicateIdError(
      f"sample {both[0]} is to be forgotten and learned at once; make it two requests"
    )
  _check_held(state, samples, gone)
  _check_new(state, samples, new)
  _check_count(state, len(gone), len(new))
  return advance(state, samples, gone, new, progress, defer)


def _check_held(state: LegoState, samples: Samples, wanted: Ids) -> None:
  """Raises if the state lacks a sample to forget, or if no sample would remain."""
  held = is_held(state, wanted)
  if not held.all():
    missing = wanted[~held][0]
    if missing in samples.ids:
      raise errors.ForgottenIdError(
        f"sample {missing} is not in the model: forgotten already or never learned;"
        " leave it out of the request"
      )
    raise errors.UnknownIdError(
      f"no sample has id {missing}: it never existed, or was forgotten and dropped;"
      " check the request's ids (they are ids, not row numbers)"
    )


def _check_count(state: LegoState, removed: int, added: int) -> None:
  """Raises if too few samples would remain."""
  held = len(state.rows.ids)
  if held == removed:
    raise errors.TooFewSamplesError(
      "the request would forget every sample; delete the model instead"
    )
  if state.cfg.key_policy == "replace":
    keys_lib.check_count(state.cfg, held - removed + added)


def _check_new(state: LegoState, samples: Samples, wanted: Ids) -> None:
  """Raises if the table lacks a sample to learn, or the state holds it already."""
  samples_lib.rows_of(samples, wanted)
  held = is_held(state, wanted)
  if held.any():
    raise errors.DuplicateIdError(
      f"sample {wanted[held][0]} is in the model already; leave it out of the request"
    )


def is_held(state: LegoState, wanted: Ids) -> NDArray[np.bool_]:
  """Which of the ids `wanted` [m] the state holds."""
  return ids_lib.locate(state.rows.ids, wanted)[1]


def _check_request(ids: ArrayLike) -> Ids:
  """The ids [m] of a request; raises if it names none, or one twice."""
  wanted = samples_lib.check_ids(ids)
  if not wanted.size:
    raise errors.EmptyRequestError("the request names no sample; give at least one id")
  return wanted


def _check_fits(state: LegoState, samples: Samples) -> None:
  """Raises if state and samples do not belong together."""
  require_state(state)
  _check_table(samples)
  _check_samples(state.cfg, samples)
  dim = state.net.keys.shape[1]
  if samples.codes.shape[1] != dim:
    raise errors.SampleError(
      f"the samples have width {samples.codes.shape[1]}, the state {dim};"
      " use encodings of the same encoder"
    )


def _check_table(samples: Samples) -> None:
  """Raises if samples are not a table."""
  if not isinstance(samples, Samples):
    raise errors.SampleError(
      f"samples are a {type(samples).__name__}; give what `make_samples(cfg, encodings,"
      " labels, ids)` returns"
    )


def _check_samples(cfg: LegoConfig, samples: Samples) -> None:
  """Raises if the samples were made with settings that give other features."""
  if not np.array_equal(samples.made_with, sample_fingerprint(cfg)):
    raise errors.SamplesMismatchError(
      "the samples were made with another encoder, feature map or number of classes;"
      " make them with these settings"
    )
