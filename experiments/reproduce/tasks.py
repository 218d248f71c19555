"""Random100 and UnClass, run in the same way for every method (Table 1).

D_retain, D_unlearn and D_test are measured before and after, beside a model that was
trained on D_retain alone ("refit"): for exact methods it must be the same, bit for bit.
"""

from collections.abc import Callable, Mapping
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from experiments.reproduce.inputs import part
from legonet_jax import measures
from legonet_jax.ids import Ids

Forget = Callable[[Any, Ids, Ids], Any]


class Contender(NamedTuple):
  """A method.

  Attributes:
    fit: a model of the samples `ids`.
    forget: by strategy, `forget(model, gone, retain)`; `retrain` is the exact one.
    predict: probabilities [B, C] of inputs.
    digest: of a model, if a refit is to be compared with it bit for bit. Without, the
      result of `retrain` stands for the refit (RNC: it is one).
  """

  fit: Callable[[Ids], Any]
  forget: Mapping[str, Forget]
  predict: Callable[[Any, Any], NDArray[Any]]
  digest: Callable[[Any], str] | None


class Data(NamedTuple):
  """Training ids, inputs and labels, row by row; test inputs and labels."""

  ids: Ids
  inputs: NDArray[Any]
  labels: NDArray[np.integer]
  test: NDArray[Any]
  test_labels: NDArray[np.integer]


def run_tasks(
  contender: Contender, data: Data, seed: int, forget: int, evaluate: int | None
) -> dict[str, Any]:
  """Both tasks, each from the same original model."""
  rng = np.random.default_rng(seed)
  model = contender.fit(data.ids)
  classes = np.unique(data.labels)
  label = int(classes[rng.integers(len(classes))])
  random = np.sort(rng.choice(data.ids, forget, replace=False))
  gone = {
    "random100": (random, None),
    "unclass": (data.ids[data.labels == label], label),
  }
  result = {}
  for task, (ids, which) in gone.items():
    result[task] = {
      "forgotten": len(ids),
      "class": which,
      **_one_task(contender, data, model, ids, seed, evaluate),
    }
  return result


def _one_task(
  contender: Contender,
  data: Data,
  model: Any,
  gone: Ids,
  seed: int,
  evaluate: int | None,
) -> dict[str, Any]:
  retain = np.setdiff1d(data.ids, gone)
  rng = np.random.default_rng([seed, 1])
  kept = np.searchsorted(data.ids, part(rng, retain, evaluate))
  lost = np.searchsorted(data.ids, gone)

  def measure(model: Any) -> dict[str, float]:
    return _measure(contender, data, model, kept, lost, seed)

  made, seconds = {}, {}
  for way, forget in contender.forget.items():
    began = time.perf_counter()
    made[way] = wait(forget(model, gone, retain))
    seconds[way] = time.perf_counter() - began
  independent = contender.digest is not None
  refit = contender.fit(retain) if independent else made["retrain"]
  wanted = measure(refit)
  after = {}
  for way, unlearned in made.items():
    row: dict[str, Any] = dict(wanted if unlearned is refit else measure(unlearned))
    itself = unlearned is refit and not independent
    row["tow"] = None if itself else measures.tow(_triple(row), _triple(wanted))
    row["seconds"] = seconds[way]
    row |= {"equal": None, "digest": None, "refit_digest": None}
    if contender.digest is not None:
      ours, theirs = contender.digest(unlearned), contender.digest(refit)
      row |= {"equal": ours == theirs, "digest": ours, "refit_digest": theirs}
    after[way] = row
  before = {k: v for k, v in measure(model).items() if k != "mia"}
  return {"before": before, "refit": wanted, "after": after}


def _measure(
  contender: Contender,
  data: Data,
  model: Any,
  kept: NDArray[np.intp],
  lost: NDArray[np.intp],
  seed: int,
) -> dict[str, float]:
  sets = (
    (data.inputs[kept], data.labels[kept]),
    (data.inputs[lost], data.labels[lost]),
    (data.test, data.test_labels),
  )
  p = [contender.predict(model, x) for x, _ in sets]
  found = [measures.accuracy(q, y) for q, (_, y) in zip(p, sets, strict=True)]
  mia = measures.mia_efficacy(
    p[0], sets[0][1], p[2], sets[2][1], p[1], sets[1][1], seed=seed
  )
  return {**measures.Accuracies(*found)._asdict(), "mia": mia}


def wait(tree: Any) -> Any:
  """The tree, when all of its arrays are computed."""
  return jax.block_until_ready(tree)  # type: ignore[no-untyped-call]


def _triple(row: Mapping[str, float]) -> measures.Accuracies:
  return measures.Accuracies(row["retain"], row["unlearn"], row["test"])
