"""Which cells make which table or figure, and all that each of them depends on."""

import functools

from experiments.reproduce import studies
from experiments.reproduce.cells import VERSION, Cell, CellSettings, Result
from experiments.reproduce.choose import CANDIDATES, run_choose
from experiments.reproduce.datasets import Bench
from experiments.reproduce.labels import WORDS
from experiments.reproduce.methods import METHODS, describe_method, make_contender
from experiments.reproduce.scales import Scale
from experiments.reproduce.tasks import run_accuracy, run_tasks
from legonet_jax.core.config import describe

# Kinds of cells on their sources, cheap ones first: a run that is cut short has
# something of everything.
BLOCKS = (
  ("accuracy", "encodings"),
  ("tasks", "encodings"),
  ("explain", "encodings"),
  ("privacy", "encodings"),
  ("time", "images"),
  ("tasks", "images"),
  ("accuracy", "images"),
  ("choose", "images"),
)
_TURNS = 5  # requests of one cell that times them
_CHOOSE_SEED = 1000  # the seeds of the tables begin at 0


def make_cells(suite: str, bench: Bench) -> list[Cell]:
  """The cells of a suite; data that none of them needs is not read."""
  cells = []
  for kind, source in BLOCKS:
    for chosen in _list_runs(bench.scale, kind, source):
      words = [
        f"{key}{value}" if isinstance(value, int) else str(value)
        for key, value in chosen.items()
      ]
      name = "-".join([kind, source, *words])
      if name.startswith(tuple(WORDS["suites"][suite]["cells"])):
        settings = _describe(bench, kind, source, chosen)
        run = functools.partial(_run, kind, bench, settings)
        cells.append(Cell(name, kind, settings, run))
  return cells


def _list_runs(scale: Scale, kind: str, source: str) -> list[CellSettings]:
  """Method, sizes and seed of each cell: whole networks last, seeds outermost."""
  if kind == "time":
    cells = -(-scale.images.requests // _TURNS)
    return [{"method": "all", "seed": seed} for seed in range(cells)]
  strategies: list[CellSettings] = [{}]
  if kind == "privacy":
    strategies = [{"strategy": "retrain"}, {"strategy": "none"}]
  runs = []
  for name, method in METHODS.items():
    slow = method.reads == "images"
    usual = scale.few_seeds if slow or kind == "explain" else scale.seeds
    for sizes in method.sizes(scale).get((kind, source), ()):
      named = {"method": name, **sizes}
      count = named.pop("seeds", None)
      seeds = {"privacy": (0,), "choose": (_CHOOSE_SEED,)}.get(kind, usual)
      for seed in seeds if count is None else range(count):
        runs += [(slow, seed, {**named, **way, "seed": seed}) for way in strategies]
  return [chosen for *_, chosen in sorted(runs, key=lambda run: run[:2])]


def _describe(
  bench: Bench, kind: str, source: str, chosen: CellSettings
) -> CellSettings:
  """The settings of a cell: everything that its result depends on."""
  scale, tune, private = bench.scale, bench.scale.images, bench.scale.privacy
  settings = {"version": VERSION, **bench.describe(source), **chosen}
  if kind == "tasks":
    evaluate = tune.retain if source == "images" else scale.evaluate
    settings |= {"forget": scale.forget, "evaluate": evaluate}
  elif kind == "accuracy" and source == "encodings":
    settings["evaluate"] = scale.evaluate
  elif kind == "privacy":
    settings |= {"N": private.samples, "models": private.models}
    settings["targets"] = private.targets
  elif kind == "explain":
    settings |= {"adapters": [*scale.adapters], "penalties": [*scale.penalties]}
  elif kind == "choose":
    settings |= {"candidates": CANDIDATES[chosen["step"]], "forget": scale.forget}
    settings["training"] = {name: describe(cfg) for name, cfg in tune.training.items()}
  elif kind == "time":
    settings["turns"] = min(_TURNS, tune.requests)
    settings["contenders"] = [
      row | describe_method(bench, settings | row) for row in studies.list_timed(bench)
    ]
    return settings
  return settings | describe_method(bench, settings)


def _run(kind: str, bench: Bench, settings: CellSettings) -> Result:
  if kind in ("accuracy", "tasks"):
    run = run_accuracy if kind == "accuracy" else run_tasks
    return run(make_contender(bench, settings), settings)
  others = {
    "time": studies.run_time,
    "privacy": studies.run_privacy,
    "explain": studies.run_explain,
    "choose": run_choose,
  }
  return others[kind](bench, settings)
