"""A table, how its cells are written, and where its numbers come from.

A cell is text, a whole number, a printed number (float, two digits), an `Estimate`
(mean ± half of the 95 % interval) or None (not measured, "–"). In CSV a column of
estimates becomes three: mean, half width and number of values, in full precision.
"""

from collections.abc import Iterable, Mapping, Sequence
import csv
import io
from typing import Any, NamedTuple

from experiments.reproduce import paper
from experiments.reproduce.results import Cell, Estimate, Results

Entry = str | int | float | Estimate | None
MISSING = "–"
METHODS = {
  "rnc": "RNC",
  "sisa": "SISA",
  "fixsisa": "FixSISA",
  "lego": "LegoNet",
  "linear": "One linear layer",
}
SOLVERS = {"ridge": "ridge", "sgd": "SGD"}
STRATEGIES = {
  "origin": "Origin",
  "retrain": "Re-train",
  "tune": "Tune",
  "ngrad": "NGrad",
  "none": "None (control)",
}


class Table(NamedTuple):
  """What `show` writes: `name` is the file's, `rows` have as many cells as `header`."""

  name: str
  title: str
  caption: str
  header: tuple[str, ...]
  rows: tuple[tuple[Entry, ...], ...]


def text(entry: Entry) -> str:
  """A cell as a reader sees it."""
  if entry is None:
    return MISSING
  if isinstance(entry, Estimate):
    mean = f"{entry.mean:,.{entry.digits}f}"
    return mean if entry.half is None else f"{mean} ± {entry.half:,.{entry.digits}f}"
  if isinstance(entry, bool):
    return "yes" if entry else "no"
  if isinstance(entry, int):
    return f"{entry:,}"
  if isinstance(entry, float):
    return f"{entry:.2g}" if 0 < abs(entry) < 0.1 else f"{entry:.2f}"
  return entry


def markdown(table: Table, level: int = 1) -> str:
  """Heading, table and caption."""
  numeric = [
    any(isinstance(row[i], (int, float, Estimate)) for row in table.rows)
    for i in range(len(table.header))
  ]
  lines = [
    f"{'#' * level} {_plain(table.title)}",
    "",
    _line(table.header),
    _line("---:" if right else "---" for right in numeric),
    *(_line(text(entry) for entry in row) for row in table.rows),
    "",
    _plain(table.caption),
  ]
  return "\n".join(lines) + "\n"


def _line(entries: Iterable[str]) -> str:
  """One row between bars."""
  return "| " + " | ".join(_plain(e).replace("|", "\\|") for e in entries) + " |"


def _plain(words: str) -> str:
  """One line without HTML."""
  return " ".join(words.split()).replace("<", "&lt;")


def to_csv(table: Table) -> str:
  """The numbers in full, for a program."""
  wide = [
    any(isinstance(row[i], Estimate) for row in table.rows)
    for i in range(len(table.header))
  ]
  out = io.StringIO()
  writer = csv.writer(out, lineterminator="\n")
  header: list[str] = []
  for title, spread in zip(table.header, wide, strict=True):
    header += [title, f"{title} ±95%", f"{title} count"] if spread else [title]
  writer.writerow(header)
  for row in table.rows:
    flat: list[Entry] = []
    for entry, spread in zip(row, wide, strict=True):
      if isinstance(entry, Estimate):
        flat += [entry.mean, entry.half, entry.number]
      else:
        flat += [entry, None, None] if spread else [entry]
    writer.writerow(["" if entry is None else entry for entry in flat])
  return out.getvalue()


def method(settings: Mapping[str, Any]) -> str:
  """The method with its sizes: "LegoNet n = 100, k = 10"."""
  name = str(settings.get("method"))
  label = METHODS.get(name, name)
  sizes = [f"{key} = {settings[key]}" for key in ("s", "n", "k") if key in settings]
  return f"{label} {', '.join(sizes)}" if sizes else label


def solver(settings: Mapping[str, Any]) -> str:
  """The solver, or "–" for a network trained end to end."""
  name = settings.get("solver")
  return MISSING if name is None else SOLVERS.get(str(name), str(name))


def data(settings: Mapping[str, Any]) -> str:
  """What it was trained on: source, N, and for images their size and the epochs."""
  words = [f"{settings['source']}, N = {settings['N']:,}"]
  if "size" in settings:
    words.append(f"{settings['size']} px")
  if "epochs" in settings:
    words.append(f"{settings['epochs']} epochs")
  return ", ".join(words)


def samples(settings: Mapping[str, Any]) -> str:
  """`data` without the epochs, which a frozen encoder does not have."""
  return data({key: value for key, value in settings.items() if key != "epochs"})


def where_of(results: Results, kind: str, **settings: Any) -> str:
  """The samples of such cells."""
  found = {samples(cell.settings) for cell in matching(results, kind, **settings)}
  return listed(found, "; ")


def provenance(results: Results, cells: Iterable[Cell]) -> str:
  """The end of a caption: data, scale, seeds, hardware and command of these cells."""
  used = {cell.name for cell in cells}
  dataset = paper.DATASETS.get(results.dataset, results.dataset)
  start = f"{dataset}, scale {results.scale}"
  if not used:
    return f"{start}; no cell measured yet."
  cells = [cell for cell in results.cells if cell.name in used]
  kinds = listed({data(cell.settings) for cell in cells}, "; ")
  count = "1 cell" if len(used) == 1 else f"{len(used)} cells"
  seeds = ", ".join(map(str, sorted({cell.seed for cell in cells})))
  machines = listed({hardware(cell.environment) for cell in cells}, "; ")
  commands = listed({f"`{cell.command}`" for cell in cells}, ", ")
  return f"{start}; {kinds}; seeds {seeds}; {count}; on {machines}; by {commands}."


def listed(words: Iterable[str], joint: str, most: int = 4) -> str:
  """Sorted words, the first `most` of them."""
  every = sorted(words)
  more = [f"{len(every) - most} more"] if len(every) > most else []
  return joint.join(every[:most] + more)


def hardware(environment: Mapping[str, Any]) -> str:
  """Device and cores as recorded."""
  chip = environment.get("cpu") or environment.get("processor") or "unknown CPU"
  device = str(environment.get("device", ""))
  cores = environment.get("cores") or environment.get("cpu_threads")
  name = chip if device.lower() in ("", "cpu") else f"{device} and {chip}"
  if not cores:
    return str(name)
  return f"{name}, {cores} core{'s' if int(cores) != 1 else ''}"


def solvers_of(results: Results, kind: str, **settings: Any) -> list[str]:
  """Solvers that such cells have; both if there is none yet."""
  every = [s for s in SOLVERS if matching(results, kind, solver=s, **settings)]
  return every or list(SOLVERS)


def matching(results: Results, kind: str, **settings: Any) -> list[Cell]:
  """Cells of this kind with these settings, whatever else they have."""
  return [
    cell
    for cell in results.cells
    if cell.kind == kind
    and all(cell.settings.get(name) == value for name, value in settings.items())
  ]


def from_rows(
  name: str, title: str, caption: str, rows: Sequence[Mapping[str, Any]]
) -> Table:
  """A table of rows that were computed elsewhere; columns as they first occur."""
  header = list(dict.fromkeys(column for row in rows for column in row))
  return Table(
    name,
    title,
    caption,
    tuple(header),
    tuple(tuple(row.get(column) for column in header) for row in rows),
  )
