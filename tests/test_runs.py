"""Runs: every request ends in a refit, durable, and leaves no byte behind."""

from conftest import CONFIG
import numpy as np
import pytest
from run_world import (
  ENCODINGS,
  IDS,
  LABELS,
  NEW,
  NEW_IDS,
  completions,
  do,
  drop,
  files_below,
  learn,
  refit_digest,
  snapshot,
  traces,
  unlearn,
)
from runs_world import (
  made,  # noqa: F401 (a fixture)
  path,  # noqa: F401 (a fixture)
)

import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.host.state import from_arrays, to_arrays
from legonet_jax.io import lock
from legonet_jax.runs import (
  journal,
  requests as requests_lib,
  run as run_lib,
)

ANCHOR = int(IDS[np.argmin(lego.core.ids.hash_ids(CONFIG.seed, IDS))])


def test_a_checkpoint_brings_back_every_bit(path, state):
  run = run_lib.load(path)
  assert lego.digest(run.state) == lego.digest(state)
  for name, array in to_arrays(state).items():
    back = to_arrays(run.state)[name]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
  assert lego.digest(from_arrays(to_arrays(state), state.cfg)) == lego.digest(state)


def test_each_request_ends_in_a_refit_and_all_of_them_too(path):
  held = set(IDS.tolist())
  run, _ = do(path, unlearn(IDS[:3]))
  held -= set(IDS[:3].tolist())
  assert run.manifest.digest == refit_digest([*held])
  run, _ = do(path, learn())
  held |= set(NEW_IDS.tolist())
  assert run.manifest.digest == refit_digest([*held])
  run, _ = do(path, unlearn([ANCHOR, NEW_IDS[0]]))
  held -= {ANCHOR, int(NEW_IDS[0])}
  assert run.manifest.digest == refit_digest([*held])
  run, _ = do(path, requests_lib.make("compact"))
  assert run.manifest.digest == refit_digest([*held])
  assert run_lib.load(path).manifest == run.manifest
  assert set(completions(path).values()) == {1}


@pytest.mark.parametrize(
  "wanted", [[IDS[20], IDS[21]], [ANCHOR]], ids=["two", "anchor"]
)
def test_deferred_answers_come_only_from_adapters_of_a_refit(path, wanted):
  run, _ = do(path, unlearn(wanted, defer=True))
  retained = np.setdiff1d(IDS, wanted)
  samples = lego.make_samples(CONFIG, ENCODINGS, LABELS, IDS)
  refit, _ = lego.fit(CONFIG, lego.select(samples, retained))
  live = np.asarray(run.state.model.live)
  assert 0 < live.sum() < CONFIG.num_adapters
  for name, array in to_arrays(refit).items():
    mine = to_arrays(run.state)[name]
    if name == "weights":
      np.testing.assert_array_equal(mine[live], array[live])
      assert not mine[~live].any()
    elif name != "live":
      np.testing.assert_array_equal(mine, array, name)
  # The k nearest unmasked adapters, by an oracle of its own.
  queries = ENCODINGS[:5]
  codes = lego.core.features.encode_array(CONFIG, queries).astype(np.int64)
  keys = np.asarray(refit.model.keys).astype(np.int64)
  distance = ((codes[:, None] - keys[None]) ** 2).sum(-1)
  distance[:, ~live] = np.iinfo(np.int64).max
  nearest = np.argsort(distance, axis=1, kind="stable")[:, : CONFIG.top_k]
  x = codes * lego.core.features.unit(CONFIG, codes.shape[1])
  z = np.einsum("bd,bkcd->bkc", x, np.asarray(refit.model.weights)[nearest])
  e = np.exp(z - z.max(-1, keepdims=True))
  expected = (e / e.sum(-1, keepdims=True)).mean(axis=1)
  got = lego.predict(run.state.model, lego.core.prediction.jnp.asarray(queries))
  np.testing.assert_allclose(got, expected, atol=1e-5)

  assert run.manifest.masked > 0
  healed, _ = do(path, requests_lib.make("heal"))
  assert healed.manifest.digest == lego.digest(refit)
  assert healed.manifest.masked == 0


@pytest.mark.parametrize("way", ["now", "defer", "learned", "compacted"])
def test_no_byte_of_a_forgotten_sample_is_left(path, way):
  folders = (path, path.parent / "store")
  if way in ("learned", "compacted"):
    do(path, learn())
    victim = (int(NEW_IDS[1]), NEW[0][1], int(NEW[1][1]))
  else:
    row = int(np.flatnonzero(IDS == ANCHOR)[0])  # an anchor: it is in the keys as well
    victim = (ANCHOR, ENCODINGS[row], int(LABELS[row]))
  assert len(traces(*victim, *folders)) >= 3  # the search finds what is there
  if way == "compacted":
    do(path, requests_lib.make("compact"))
    assert len(traces(*victim, *folders)) >= 3
  run, _ = do(path, unlearn([victim[0]], defer=way == "defer"))
  assert not traces(*victim, *folders)
  for array in to_arrays(run_lib.load(path).state).values():
    assert victim[0] not in array
  neighbour = int(np.flatnonzero(IDS != ANCHOR)[0])
  assert traces(int(IDS[neighbour]), ENCODINGS[neighbour], int(LABELS[neighbour]), path)
  assert run.manifest.digest == run_lib.load(path).manifest.digest


def test_the_store_is_sound_after_an_erasure_and_hides_the_row(path):
  do(path, unlearn(IDS[:2]))
  store = lego.open_store(path.parent / "store", verify=True)
  np.testing.assert_array_equal(store.ids, np.sort(IDS[2:]))
  assert store.meta["erased"] == 2
  order = np.argsort(IDS[2:])
  np.testing.assert_array_equal(store.encodings, ENCODINGS[2:][order])
  np.testing.assert_array_equal(store.labels, LABELS[2:][order])


def test_the_journal_tells_of_a_request_only_who_has_its_salt(path):
  request = unlearn(IDS[:2])
  _, receipt = do(path, request)
  text = (path / "journal.jsonl").read_text()
  assert receipt.salt == request.salt.hex()
  assert receipt.salt not in text
  assert not any(receipt.salt.encode() in p.read_bytes() for p in files_below(path))
  accepted = next(e for e in journal.read(path / "journal.jsonl") if e["seq"] == 1)
  assert accepted["ids"] == journal.salted(request.salt, IDS[:2])
  assert accepted["ids"] != journal.salted(b"\0" * 32, IDS[:2])
  complete = journal.read(path / "journal.jsonl")[-1]
  assert {"before", "after", "adapters", "seconds"} <= complete.keys()


def test_batching_and_order_do_not_change_the_digest(path):
  """Requests that wait are merged, and every adapter is trained once for all."""
  requests = [unlearn([IDS[1]]), learn(), unlearn(IDS[4:6]), unlearn([ANCHOR])]
  copy = path.parent.parent / "batching"
  snapshot(path.parent, copy)
  digests, trained = set(), []
  for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
    for at_once in (True, False):
      snapshot(copy, path.parent)
      for i in order:
        if at_once:
          drop(path, requests[i])
        else:
          do(path, requests[i])
      run, _ = do(path)
      digests.add(run.manifest.digest)
      done = [
        e for e in journal.read(path / "journal.jsonl") if e["event"] == "complete"
      ]
      assert len(done) == (1 if at_once else 4)
      trained.append(sum(e["adapters"] for e in done))
  held = np.append(np.setdiff1d(IDS, [IDS[1], *IDS[4:6], ANCHOR]), NEW_IDS)
  assert digests == {refit_digest(held)}
  assert max(trained[0], trained[2]) <= CONFIG.num_adapters
  assert trained[1] > trained[0]


def test_requests_on_the_same_sample_keep_their_order(path):
  """Learn, forget, learn again: three batches, because an id may be in one but once."""
  for request in (learn(), unlearn(NEW_IDS[:1]), unlearn(IDS[:1])):
    drop(path, request)
  run, _ = do(path)
  held = np.append(IDS[1:], NEW_IDS[1:])
  assert run.manifest.digest == refit_digest(held)
  assert set(completions(path).values()) == {1}


def test_a_queued_request_is_not_lost_for_samples_that_are_still_there(path):
  drop(path, unlearn(IDS[:2]))
  drop(path, unlearn(IDS[1:3]))
  drop(path, unlearn(IDS[1:2]))  # nothing left to do
  run, _ = do(path)
  assert run.manifest.digest == refit_digest(IDS[3:])
  events = [e["event"] for e in journal.read(path / "journal.jsonl")]
  assert events.count("accepted") == 2
  assert events.count("rejected") == 1
  assert not traces(int(IDS[1]), ENCODINGS[1], int(LABELS[1]), path)


def test_a_request_that_comes_in_during_another_is_carried_out_by_the_same_process(
  path,
):
  came = []

  def on_step(name):
    if name == "trained" and not came:
      with pytest.raises(errors.RunBusyError), lock.hold(path):
        pass
      came.append(drop(path, unlearn(IDS[5:7])))

  run, _ = do(path, unlearn(IDS[:1]), on_step)
  assert run.manifest.digest == refit_digest([*IDS[1:5], *IDS[7:]])
  assert completions(path)[came[0]] == 1


def test_the_same_request_after_a_crash_is_finished_and_not_made_again(path):
  class StopError(Exception):
    pass

  for step in ("accepted", "checkpoint saved"):
    victim = IDS[3:4] if step == "accepted" else IDS[4:5]

    def stop(name, step=step):
      if name == step:
        raise StopError

    with pytest.raises(StopError):
      do(path, unlearn(victim), stop)
    run, receipt = do(path, unlearn(victim))
    assert victim[0] not in run.state.ids
    assert completions(path)[receipt.name] == 1
    with pytest.raises(errors.UnknownIdError):
      do(path, unlearn(victim))
  assert len(completions(path)) == 2
