"""A table, its words, and how its cells are written.

A cell is text, a whole number, a printed number (float, two digits), an `Estimate`
(mean ± half of the 95 % interval) or None (not measured, "–"). In CSV a column of
estimates becomes three: mean, half width and number of values, in full precision.
"""

from collections.abc import Iterable, Mapping, Sequence
import csv
import io
from typing import Any, NamedTuple

from experiments.reproduce.labels import MISSING, WORDS
from experiments.reproduce.statistics import Estimate

TableEntry = str | int | float | Estimate | None
Row = Mapping[str, Any]  # by column


class Table(NamedTuple):
  """What `show` writes: `name` is the file's, `rows` have as many cells as `header`."""

  name: str
  title: str
  caption: str
  header: tuple[str, ...]
  rows: tuple[tuple[TableEntry, ...], ...]

  def has(self, column: int, *types: type) -> bool:
    """Whether an entry of this column is of one of these types."""
    return any(isinstance(row[column], types) for row in self.rows)


def fill_words(words: str, **values: Any) -> str:
  """Words of the report, on one line, with values in the places in braces."""
  rules = {name: rule.strip() for name, rule in WORDS["rules"].items()}
  return " ".join(words.format(**rules, **values).split())


def find_words(kind: str, name: str, **values: Any) -> tuple[str, str]:
  """Title and caption of one of the tables or figures."""
  words = WORDS[kind][name]
  return fill_words(words["title"], **values), fill_words(words["caption"], **values)


def make_table(name: str, rows: Sequence[Row], key: str = "", **values: Any) -> Table:
  """A table whose words are found by `key`, or else by its name."""
  return from_rows(name, *find_words("tables", key or name, **values), rows)


def from_rows(name: str, title: str, caption: str, rows: Sequence[Row]) -> Table:
  """A table of rows by column; columns are in the order in which they first occur."""
  header = tuple(dict.fromkeys(column for row in rows for column in row))
  entries = tuple(tuple(row.get(column) for column in header) for row in rows)
  return Table(name, title, caption, header, entries)


def list_rows(table: Table) -> list[dict[str, Any]]:
  """The rows by column, as `from_rows` takes them."""
  return [dict(zip(table.header, row, strict=True)) for row in table.rows]


def text(entry: TableEntry) -> str:
  """A cell as a reader sees it."""
  if entry is None:
    return MISSING
  if isinstance(entry, Estimate):
    mean = f"{entry.mean:,.{entry.digits}f}"
    return mean if entry.half is None else f"{mean} ± {entry.half:,.{entry.digits}f}"
  if isinstance(entry, int):
    return f"{entry:,}"
  if isinstance(entry, float):
    return f"{entry:.2g}" if 0 < abs(entry) < 0.1 else f"{entry:.2f}"
  return entry


def markdown(table: Table, level: int = 1) -> str:
  """Heading, table and caption."""
  columns = range(len(table.header))
  lines = [
    f"{'#' * level} {_plain(table.title)}",
    "",
    _line(table.header),
    _line("---:" if table.has(i, int, float, Estimate) else "---" for i in columns),
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
  wide = [table.has(i, Estimate) for i in range(len(table.header))]
  header, rows = list[str](), list[list[TableEntry]]()
  for title, spread in zip(table.header, wide, strict=True):
    header += [title, f"{title} ±95%", f"{title} count"] if spread else [title]
  for row in table.rows:
    rows.append([])
    for entry, spread in zip(row, wide, strict=True):
      whole = entry[:3] if isinstance(entry, Estimate) else (entry, None, None)
      rows[-1] += whole if spread else [entry]
  out = io.StringIO()
  csv.writer(out, lineterminator="\n").writerows([header, *rows])
  return out.getvalue()
