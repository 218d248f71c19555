"""Accuracy, and Random100 and UnClass (Table 1), in the same way for every method.

D_retain, D_unlearn and D_test are measured before and after, beside a model that was
trained on D_retain alone ("refit"): for exact methods it must be the same, bit for bit.
"""

from collections.abc import Callable, Mapping
import dataclasses
import time
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from experiments.reproduce.cells import CellSettings, Result
from experiments.reproduce.datasets import Data
from legonet_jax import measures
from legonet_jax.core.ids import Ids


@dataclasses.dataclass(frozen=True)
class Contender:
  """A method, ready to be run on its data.

  Attributes:
    data: what it is given.
    fit: a model of the samples `ids`.
    forget: by strategy, `forget(model, gone, retain)`; `retrain` is the exact one.
    predict: probabilities [B, C] of inputs.
    digest: of a model, if a refit is to be compared with it bit for bit. Without, the
      result of `retrain` stands for the refit (RNC: it is one).
    answer_test: fits to `ids` and answers D_test without keeping the model, for a model
      that is too large to be kept.
    balance: how evenly the samples of a model spread over its parts.
    anchors: samples of a model that cost more to forget than others do.
    prepare_timing: `prepare_timing(gone)` gives a model that requests can be timed on,
      and those of `gone` that compile everything; `fit` and the first if not given.
  """

  data: Data
  fit: Callable[[Ids], Any]
  forget: Mapping[str, Callable[[Any, Ids, Ids], Any]]
  predict: Callable[[Any, Any], NDArray[Any]]
  digest: Callable[[Any], str] | None = None
  answer_test: Callable[[Ids], NDArray[Any]] | None = None
  balance: Callable[[Any], dict[str, Any]] | None = None
  anchors: Callable[[Any], Ids] | None = None
  prepare_timing: Callable[[Ids], tuple[Any, Ids]] | None = None


def run_accuracy(contender: Contender, settings: CellSettings) -> Result:
  """Accuracy on D_test and, on encodings, on some training samples."""
  data, train, balance = contender.data, None, None
  began = time.perf_counter()
  if settings["source"] == "images" and contender.answer_test is not None:
    answers = contender.answer_test(data.ids)
    seconds = time.perf_counter() - began
  else:
    model = wait(contender.fit(data.ids))
    seconds = time.perf_counter() - began
    answers = contender.predict(model, data.test)
    balance = contender.balance(model) if contender.balance else None
  if settings["source"] == "encodings":
    rng = np.random.default_rng(settings["seed"])
    rows = draw_rows(rng, np.arange(len(data.ids)), settings["evaluate"])
    seen = contender.predict(model, data.inputs[rows])
    train = measures.accuracy(seen, data.labels[rows])
  test = measures.accuracy(answers, data.test_labels)
  return {"train": train, "test": test, "fit_seconds": seconds, "balance": balance}


def run_tasks(contender: Contender, settings: CellSettings) -> Result:
  """Both tasks, each from the same original model."""
  data, rng = contender.data, np.random.default_rng(settings["seed"])
  model = contender.fit(data.ids)
  classes = np.unique(data.labels)
  label = int(classes[rng.integers(len(classes))])
  random = np.sort(rng.choice(data.ids, settings["forget"], replace=False))
  asked = {
    "random100": (random, None),
    "unclass": (data.ids[data.labels == label], label),
  }
  return {
    task: {"forgotten": len(gone), "class": which}
    | _run_task(contender, model, gone, settings)
    for task, (gone, which) in asked.items()
  }


def _run_task(
  contender: Contender, model: Any, gone: Ids, settings: CellSettings
) -> Result:
  data, seed = contender.data, settings["seed"]
  retain = np.setdiff1d(data.ids, gone)
  kept = draw_rows(np.random.default_rng([seed, 1]), retain, settings["evaluate"])

  def measure(model: Any) -> tuple[measures.Accuracies, float]:
    seen, lost, unseen = answer_sets(contender, model, kept, gone)
    found = (measures.accuracy(*pair) for pair in (seen, lost, unseen))
    mia = measures.mia_efficacy(*seen, *unseen, *lost, seed=seed)
    return measures.Accuracies(*found), mia

  made, seconds = {}, {}
  for way, forget in contender.forget.items():
    began = time.perf_counter()
    made[way] = wait(forget(model, gone, retain))
    seconds[way] = time.perf_counter() - began
  independent = contender.digest is not None
  refit = contender.fit(retain) if independent else made["retrain"]
  wanted, mia = measure(refit)
  after = {}
  for way, unlearned in made.items():
    found, own_mia = (wanted, mia) if unlearned is refit else measure(unlearned)
    row: dict[str, Any] = {**found._asdict(), "mia": own_mia, "tow": None}
    if independent or unlearned is not refit:
      row["tow"] = measures.tow(found, wanted)
    row |= {"seconds": seconds[way], "equal": None, "digest": None}
    row["refit_digest"] = None
    if contender.digest is not None:
      ours, theirs = contender.digest(unlearned), contender.digest(refit)
      row |= {"equal": ours == theirs, "digest": ours, "refit_digest": theirs}
    after[way] = row
  before = measure(model)[0]._asdict()
  return {"before": before, "refit": {**wanted._asdict(), "mia": mia}, "after": after}


def answer_sets(contender: Contender, model: Any, *parts: Ids) -> list[tuple[Any, Any]]:
  """Answers and labels on parts of the training samples, then on D_test."""
  data = contender.data
  rows = [np.searchsorted(data.ids, ids) for ids in parts]
  pairs = [(data.inputs[r], data.labels[r]) for r in rows]
  pairs.append((data.test, data.test_labels))
  return [(contender.predict(model, inputs), labels) for inputs, labels in pairs]


def draw_rows(rng: np.random.Generator, rows: NDArray[Any], limit: int | None) -> Any:
  """At most `limit` of the rows, drawn at random, sorted."""
  if limit is None or len(rows) <= limit:
    return rows
  return np.sort(rng.choice(rows, limit, replace=False))


def wait(tree: Any) -> Any:
  """The tree, when all of its arrays are computed."""
  return jax.block_until_ready(tree)  # type: ignore[no-untyped-call]
