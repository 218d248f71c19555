"""One HTML file with everything, for a phone, a printer and a place offline."""

from collections.abc import Iterable, Sequence
import html
import re

from experiments.reproduce import paper
from experiments.reproduce.figures import Drawing
from experiments.reproduce.results import Estimate, Results
from experiments.reproduce.tables import Table, from_rows, text

_CSS = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 72rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 2px solid #1a1a1a; }
h3 { margin: 2rem 0 .5rem; }
nav a { margin-right: 1rem; white-space: nowrap; }
.scroll { overflow-x: auto; border: 1px solid #ccc; }
table { border-collapse: collapse; font-size: .8rem; width: 100%; }
th, td { padding: .25rem .45rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid #e2e2e2; }
th { background: #f1f1f1; vertical-align: bottom; }
tr:nth-child(even) td { background: #fafafa; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.h { text-align: right; }
.w { min-width: 16rem; }
.m { min-width: 9rem; }
td.s { white-space: nowrap; }
td.s:first-child { position: sticky; left: 0; background: #fff; }
tr:nth-child(even) td.s:first-child { background: #fafafa; }
.caption, figcaption { font-size: .85rem; color: #444; margin: .5rem 0 0; }
figure { margin: 2rem 0; } figure svg { width: 100%; min-width: 38rem; height: auto; }
.v { white-space: nowrap; font-weight: 600; }
.v::before { content: "? "; } .confirmed::before { content: "✓ "; }
.refuted::before { content: "✗ "; } .no-data::before { content: ""; }
.confirmed { color: #14602f; } .refuted { color: #a01515; } .no-data { color: #666; }
code { font-size: .85em; background: #f1f1f1; }
@media print { body { font-size: 10pt; max-width: none; padding: 0; }
  .scroll { overflow: visible; border: 0; } table { font-size: 6.5pt; }
  th, td { padding: .1rem .2rem; } .w, .m, figure svg { min-width: 0; }
  .n, td.s { white-space: normal; } figure, tr { break-inside: avoid; }
  nav { display: none; } }
"""
_VERDICTS = ("confirmed", "refuted", "not clear", "no data")


def report(
  results: Results, sections: Sequence[tuple[str, Sequence[Table | Drawing]]]
) -> str:
  """The page: an introduction, the sections in order, and where it all comes from."""
  name = paper.DATASETS.get(results.dataset, results.dataset)
  title = f"LegoNet, reproduced: {name}, scale {results.scale}"
  everything = [*sections, ("Provenance", provenance_tables(results))]
  links = "".join(
    f'<a href="#{_slug(heading)}">{html.escape(heading)}</a> '
    for heading, _ in everything
  )
  body = "".join(_section(heading, items) for heading, items in everything)
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f"<title>{html.escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n"
    f"<h1>{html.escape(title)}</h1>\n<p>{_prose(_introduction(results))}</p>\n"
    f"<nav>{links}</nav>\n{body}</body>\n</html>\n"
  )


def _introduction(results: Results) -> str:
  """What this is, in three sentences."""
  hours = sum(cell.seconds for cell in results.cells) / 3600
  return (
    "These are the tables and figures of the paper “LegoNet: A Fast and Exact "
    "Unlearning Architecture”, computed again with legonet-jax, with the paper's "
    f"numbers beside ours. They come from {len(_names(results))} measured cells that "
    f"took {hours:.2f} hours of computing at scale {results.scale}; every caption says "
    "on what data and hardware, with which seeds and by which command. A dash (–) is a "
    "number that was not measured, or that the paper does not give."
  )


def _names(results: Results) -> set[str]:
  """Names of the files; `load` may show one of them in two ways."""
  return {cell.name for cell in results.cells}


def provenance_tables(results: Results) -> list[Table]:
  """Environment and commands, then the list of cells."""
  found: dict[str, dict[str, None]] = {}
  for cell in results.cells:
    found.setdefault("command", {})[cell.command] = None
    for key, value in cell.environment.items():
      found.setdefault(key, {})[str(value)] = None
  times = [cell.finished for cell in results.cells]
  facts = [
    {"what": "dataset", "value": results.dataset},
    {"what": "scale", "value": results.scale},
    {"what": "cells", "value": str(len(_names(results)))},
    {
      "what": "seconds in all",
      "value": f"{sum(c.seconds for c in results.cells):,.1f}",
    },
    {"what": "first finished", "value": min(times, default="–")},
    {"what": "last finished", "value": max(times, default="–")},
    *(
      {"what": key, "value": "; ".join(sorted(values)) or "–"}
      for key, values in found.items()
    ),
  ]
  if not {"commit", "git_commit"} & set(found):
    facts.append({"what": "git commit", "value": "not recorded"})
  cells = [
    {
      "cell": cell.name,
      "kind": cell.kind,
      "seed": cell.seed,
      "seconds": Estimate(cell.seconds, digits=1),
      "finished": cell.finished,
    }
    for cell in results.cells
    if cell.seconds
  ]
  return [
    from_rows("provenance", "The run", "As the cells record it.", facts),
    from_rows("cells", "All cells", "One file each.", cells),
  ]


def _section(heading: str, items: Iterable[Table | Drawing]) -> str:
  """A heading and what is under it; long lists are folded."""
  inside = "".join(
    _figure(item) if isinstance(item, Drawing) else _table(item) for item in items
  )
  return (
    f'<section id="{_slug(heading)}">\n<h2>{html.escape(heading)}</h2>\n'
    f"{inside}</section>\n"
  )


def _table(table: Table) -> str:
  """Title, caption, and the table in a box that scrolls sideways."""
  kinds = [_kind([row[i] for row in table.rows]) for i in range(len(table.header))]
  heads = ["h" if kind == "n" else kind for kind in kinds]
  head = "".join(
    f'<th scope="col" class="{kind}">{html.escape(name)}</th>'
    for name, kind in zip(table.header, heads, strict=True)
  )
  body = "".join(
    "<tr>"
    + "".join(_entry(text(e), kind) for e, kind in zip(row, kinds, strict=True))
    + "</tr>\n"
    for row in table.rows
  )
  title = html.escape(table.title)
  box = (
    f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
    f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
  )
  if table.name == "cells":
    return f"<details><summary>{title} ({len(table.rows)})</summary>{box}</details>\n"
  return f'<h3>{title}</h3>\n{box}<p class="caption">{_prose(table.caption)}</p>\n'


def _kind(column: Sequence[object]) -> str:
  """Numbers to the right; long words get room, short ones stay on a line."""
  if any(isinstance(entry, (int, float, Estimate)) for entry in column):
    return "n"
  longest = max((len(str(entry)) for entry in column), default=0)
  return "w" if longest > 60 else "s" if longest <= 24 else "m"


def _entry(words: str, kind: str) -> str:
  """One cell; a verdict has a sign and a word, not only a colour."""
  if words in _VERDICTS:
    return f'<td class="v {_slug(words)}">{words}</td>'
  return f'<td class="{kind}">{_prose(words)}</td>'


def _prose(words: str) -> str:
  """Escaped, with `code` in backticks."""
  return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(words))


def _figure(drawing: Drawing) -> str:
  """The SVG itself, its ids made unlike those of the other figures."""
  svg = drawing.svg.decode()
  svg = svg[svg.index("<svg") :]
  for before in (' id="', "url(#", 'href="#'):
    svg = svg.replace(before, f"{before}{drawing.name}-")
  label = html.escape(drawing.title)
  svg = svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
  return (
    f'<figure id="figure-{_slug(drawing.name)}">\n<h3>{label}</h3>\n'
    f'<div class="scroll">{svg}</div>\n'
    f"<figcaption>{_prose(drawing.caption)}</figcaption>\n</figure>\n"
  )


def _slug(words: str) -> str:
  """For an id or a class."""
  return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
