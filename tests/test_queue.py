"""Requests that cannot be carried out hold up nobody."""

from conftest import CONFIG, encodings
import numpy as np
import pytest
from queue_world import (
  StopError,
  made,  # noqa: F401 (a fixture)
  new_store,
  path,  # noqa: F401 (a fixture)
  queue,
  reasons,
  run_cli,
  sound,
  stop_at,
)
from run_world import (
  ENCODINGS,
  IDS,
  LABELS,
  do,
  erase,
  learn,
  refit_digest,
  traces,
  unlearn,
)

from legonet_jax.runs import (
  journal,
  requests as requests_lib,
  run as run_lib,
  service,
)


def test_a_run_goes_on_after_another_has_erased_a_row_of_their_store(path, capsys):
  other = path.parent / "other"
  assert run_cli("unlearn", other, "--ids", IDS[7]) == 0
  assert run_cli("unlearn", path, "--ids", IDS[9]) == 0
  assert "1 more were forgotten" in capsys.readouterr().out
  assert run_cli("compact", path) == 0
  assert run_cli("unlearn", path, "--erased") == 0
  assert "no retained sample was erased" in capsys.readouterr().out
  run = run_lib.load(path)
  assert run.manifest.digest == refit_digest(np.delete(IDS, [7, 9]))
  assert not service.unfinished(path)
  assert sound(path)
  assert run_cli("unlearn", path, "--ids", IDS[11]) == 0
  assert run_cli("unlearn", other, "--erased") == 0
  assert set(run_lib.load(other).state.ids) == set(np.delete(IDS, [7, 9, 11]))
  assert sound(other)


def test_erased_rows_that_a_waiting_request_names_are_forgotten_once(path):
  """`--erased` names what the stores lack, and some of it may be waiting already."""
  other = path.parent / "other"
  queue(path, unlearn(IDS[[7]]))
  assert run_cli("unlearn", other, "--ids", IDS[7], IDS[8]) == 0
  assert run_cli("unlearn", path, "--erased") == 0
  assert set(run_lib.load(path).state.ids) == set(np.delete(IDS, [7, 8]))
  assert not service.unfinished(path)
  assert sound(path)


def new_samples(numbers):
  rows = encodings(len(numbers), seed=11)
  wanted = np.asarray(numbers, np.int64)
  return requests_lib.make(
    "learn", wanted, encodings=rows, labels=np.zeros(len(wanted), np.int32)
  )


@pytest.mark.parametrize("kind", ["rows", "stores"])
def test_of_two_queued_learns_with_the_same_id_the_second_is_rejected(
  path, tmp_path, kind
):
  first, second = [10**15 + 1, 10**15 + 2], [10**15 + 2, 10**15 + 3]
  if kind == "rows":
    requests = [new_samples(first), new_samples(second)]
  else:
    stores = [
      new_store(tmp_path / str(i), ids) for i, ids in enumerate((first, second))
    ]
    requests = [
      requests_lib.make("learn", np.asarray(ids[:1], np.int64), store=store)
      for ids, store in zip((first, second[::-1]), stores, strict=True)
    ]
  for request in requests:
    queue(path, request)
  queue(path, unlearn(IDS[5:6]))
  run, _ = do(path)
  assert reasons(path) == ["DuplicateIdError"]
  assert not service.unfinished(path)
  assert first[0] in run.state.ids
  assert second[1] not in run.state.ids
  assert IDS[5] not in run.state.ids
  assert sound(path)
  assert len(list(path.glob("learned/*"))) == (1 if kind == "rows" else 0)


@pytest.mark.parametrize("erased", [1, 2])
def test_a_learn_whose_rows_another_run_erases_does_without_them(
  path, tmp_path, erased
):
  wanted = [10**15 + 1, 10**15 + 2]
  store = new_store(tmp_path / "new", wanted)
  queue(path, requests_lib.make("learn", np.asarray(wanted, np.int64), store=store))
  with pytest.raises(StopError):
    do(path, None, stop_at("accepted"))
  erase(tmp_path / "new", wanted[:erased])
  run, _ = do(path, unlearn(IDS[5:6]))
  assert not service.unfinished(path)
  assert IDS[5] not in run.state.ids
  assert set(run.state.ids) & set(wanted) == set(wanted[erased:])
  assert reasons(path) == (["UnknownIdError"] if erased == 2 else [])
  assert sound(path)


def test_an_unlearn_that_counted_on_a_rejected_learn_is_rejected_too(path):
  """Accepted in the belief that enough samples would be left."""
  count = len(IDS) - CONFIG.num_adapters + 1
  queue(path, learn())
  queue(path, unlearn(IDS[:count]))
  with pytest.raises(StopError):
    do(path, None, stop_at("rows landed"))
  for file in (path / "requests").iterdir():
    if len(requests_lib.read(path / "requests", file.stem).ids) == 3:
      file.write_bytes(b"damaged")
  do(path)
  run, _ = do(path, unlearn(IDS[:1]))
  assert sorted(reasons(path)) == ["DamagedRequestError", "TooFewSamplesError"]
  assert run.manifest.digest == refit_digest(IDS[1:])
  assert sound(path)


@pytest.mark.parametrize("damage", ["deleted", "damaged", "emptied"])
def test_a_request_is_complete_only_if_its_rows_are_erased(path, damage):
  """The request file is damaged between the checkpoint and the erasure."""
  with pytest.raises(StopError):
    do(path, unlearn(IDS[5:7]), stop_at("checkpoint saved"))
  file = next((path / "requests").glob("*.npz"))
  if damage == "deleted":
    file.unlink()
  else:
    file.write_bytes(b"" if damage == "emptied" else file.read_bytes()[:50])
  run, _ = do(path)
  assert journal.read(path / "journal.jsonl")[-1]["event"] == "complete"
  assert run.manifest.digest == refit_digest(np.delete(IDS, [5, 6]))
  for row in (5, 6):
    left = traces(
      int(IDS[row]), ENCODINGS[row], int(LABELS[row]), path.parent / "store"
    )
    assert not left
  assert not service.unfinished(path)
  assert sound(path)
