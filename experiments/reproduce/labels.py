"""The words of `words.toml`, and how methods, solvers and data are named."""

from collections.abc import Iterable, Mapping
import pathlib
import tomllib
from typing import Any

from experiments.reproduce.methods import METHODS

# Suites, labels, titles, captions and errata.
WORDS: dict[str, Any] = tomllib.loads(
  (pathlib.Path(__file__).parent / "words.toml").read_text()
)
MISSING = "–"
SOLVERS: dict[str, str] = WORDS["labels"]["solvers"]
STRATEGIES: dict[str, str] = WORDS["labels"]["strategies"]
SETS: dict[str, str] = WORDS["labels"]["sets"]
TASKS: dict[str, str] = WORDS["labels"]["tasks"]
AnySettings = Mapping[str, Any]


def name_method(settings: AnySettings) -> str:
  """The method with its sizes: "LegoNet n = 100, k = 10"."""
  name = str(settings.get("method"))
  label = METHODS[name].label if name in METHODS else name
  sizes = [f"{key} = {settings[key]}" for key in ("s", "n", "k") if key in settings]
  return f"{label} {', '.join(sizes)}" if sizes else label


def name_solver(settings: AnySettings) -> str:
  """The solver, or "–" for a method that has none."""
  name = str(settings.get("solver", MISSING))
  return SOLVERS.get(name, name)


def name_head(settings: AnySettings, strategy: str | None = None) -> dict[str, str]:
  """The first columns of a table's row."""
  head = {"Method": name_method(settings), "Solver": name_solver(settings)}
  named = STRATEGIES.get(str(strategy), str(strategy))
  return head | ({} if strategy is None else {"Strategy": named})


def name_samples(settings: AnySettings) -> str:
  """What a method sees: source, N, and the size of images."""
  words = f"{settings['source']}, N = {settings['N']:,}"
  return f"{words}, {settings['size']} px" if "size" in settings else words


def name_data(settings: AnySettings) -> str:
  """`name_samples`, and the epochs if whole networks were trained."""
  words = name_samples(settings)
  return f"{words}, {settings['epochs']} epochs" if "epochs" in settings else words


def join_words(words: Iterable[Any], joint: str = "; ") -> str:
  """Different words, sorted, in one line."""
  return joint.join(map(str, sorted(set(words))))


def rank_method(settings: AnySettings) -> tuple[Any, ...]:
  """A key that sorts methods as the registry does, then by size and solver."""
  names, method = list(METHODS), str(settings["method"])
  place = names.index(method) if method in names else len(names)
  sizes = (settings.get(key, 0) for key in ("s", "n", "k"))
  return place, method, *sizes, str(settings.get("solver", ""))
