"""Writes all that a folder of cells has to say: tables, figures, one report.

    show(folder, out)

reads folder/cells/*.json and writes out/tables/*.{md,csv}, out/figures/*.{svg,png},
out/RESULTS.md and out/report.html, one file for a phone, a printer and a place offline.
The same cells give the same bytes; every file is whole or not there.
"""

from collections.abc import Mapping, Sequence
import html
import pathlib
import re
import string

from experiments.reproduce import (
  claims,
  cost_tables,
  figures,
  judge,
  labels,
  table_accuracy,
  table_summary,
  table_unlearning,
)
from experiments.reproduce.datasets import SOURCES
from experiments.reproduce.results import Results, load
from experiments.reproduce.statistics import Estimate
from experiments.reproduce.tables import Table, TableEntry, markdown, text, to_csv
from legonet_jax.io import files

Item = Table | figures.Drawing
Sections = Mapping[str, Sequence[Item]]
_PAGE = string.Template((pathlib.Path(__file__).parent / "page.html").read_text())
_VERDICTS = (judge.CONFIRMED, judge.REFUTED, judge.NOT_CLEAR, judge.NO_DATA)


def show(
  folder: pathlib.Path, out: pathlib.Path, empty: Results | None = None
) -> list[pathlib.Path]:
  """Reads the cells of `folder`, writes to `out`, returns the paths written.

  Without any cell it shows `empty`; if that is not given, it is an error.
  """
  results = load(folder, empty)
  title = f"LegoNet, reproduced: {results.dataset}, scale {results.scale}"
  introduction, sections = table_summary.introduce(results), make_sections(results)
  written = {
    "RESULTS.md": _write_markdown(title, introduction, sections).encode(),
    "report.html": _write_page(title, introduction, sections).encode(),
  }
  for item in (item for items in sections.values() for item in items):
    if isinstance(item, Table):
      written[f"tables/{item.name}.md"] = markdown(item).encode()
      written[f"tables/{item.name}.csv"] = to_csv(item).encode()
    else:
      written[f"figures/{item.name}.svg"] = item.svg
      written[f"figures/{item.name}.png"] = item.png
  for name, content in written.items():
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    files.write(out / name, content)
  return [out / name for name in written]


def make_sections(results: Results) -> Sections:
  """All tables and figures that have something to show, in the order of reading."""
  tasks = [
    [table_unlearning.tabulate_tasks(results, source, task) for task in labels.TASKS]
    for source in SOURCES
    if results.select("tasks", source=source)
  ]
  flat = [table for tables in tasks for table in tables]
  ablation = table_accuracy.tabulate_ablation(results)
  panels = table_accuracy.tabulate_panels(results)
  grid = table_accuracy.tabulate_grid(results)
  time = table_unlearning.tabulate_time(results)
  privacy = table_unlearning.tabulate_privacy(results)
  explain = table_accuracy.tabulate_explain(results)
  *costs, errata = cost_tables.tabulate_cost()
  figure_3 = figures.draw_segmentation(ablation[0], time)
  key_numbers = [*flat, *ablation, grid, time, privacy]
  sections: dict[str, list[Item | None]] = {
    "Set-up": [table_summary.tabulate_setup(results)],
    "Summary": [
      claims.tabulate_summary(results),
      table_summary.tabulate_key_numbers(key_numbers),
    ],
    "Unlearning tasks": [*map(figures.draw_bars, tasks), *flat],
    "Ablation and time": [figure_3, *ablation, time],
    "n and k": [figures.draw_panels(panels), panels, grid, explain],
    "Privacy": [figures.draw_privacy(results), privacy],
    "Cost": [figures.draw_cost(results), *costs],
    "Evidence": [claims.tabulate_findings(results, t) for t in ("claims", "trends")],
    "Errata": [errata],
    "Provenance": [*table_summary.tabulate_run(results)],
  }
  return {  # a table without rows has nothing to show
    heading: [item for item in items if item and getattr(item, "rows", True)]
    for heading, items in sections.items()
  }


def _write_markdown(title: str, introduction: str, sections: Sections) -> str:
  """All tables and figures in one Markdown file, without the list of cells."""
  parts = [f"# {title}\n", f"{introduction}\n"]
  for heading, items in sections.items():
    parts.append(f"## {heading}\n")
    for item in items:
      if isinstance(item, figures.Drawing):
        image = f"![{item.title}](figures/{item.name}.svg)"
        parts.append(f"### {item.title}\n\n{image}\n\n{item.caption}\n")
      elif item.name != "cells":
        parts.append(markdown(item, level=3))
  return "\n".join(parts)


def _write_page(title: str, introduction: str, sections: Sections) -> str:
  """The HTML page: what all numbers share, then the sections in order."""
  links, body = "", ""
  for heading, items in sections.items():
    links += f'<a href="#{_slug(heading)}">{html.escape(heading)}</a> '
    body += f'<section id="{_slug(heading)}">\n<h2>{html.escape(heading)}</h2>\n'
    for item in items:
      body += _write_table(item) if isinstance(item, Table) else _write_figure(item)
    body += "</section>\n"
  words = {"title": html.escape(title), "introduction": _write_prose(introduction)}
  return _PAGE.substitute(words, links=links, body=body)


def _write_table(table: Table) -> str:
  """Title, caption, and the table in a box that scrolls; a long list is folded."""
  kinds = []
  for column in range(len(table.header)):
    longest = max(len(str(row[column])) for row in table.rows)
    numbers = table.has(column, int, float, Estimate)
    kinds.append(
      "n" if numbers else "w" if longest > 60 else "m" if longest > 20 else ""
    )
  head = "".join(
    f'<th scope="col" class="{kind}">{html.escape(name)}</th>'
    for name, kind in zip(table.header, kinds, strict=True)
  )
  body = "".join(
    f"<tr>{''.join(map(_write_entry, row, kinds))}</tr>\n" for row in table.rows
  )
  title = html.escape(table.title)
  box = (
    f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
    f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
  )
  if table.name == "cells":
    return f"<details><summary>{title} ({len(table.rows)})</summary>{box}</details>\n"
  caption = f'<p class="caption">{_write_prose(table.caption)}</p>\n'
  return f"<h3>{title}</h3>\n{box}{caption}"


def _write_entry(entry: TableEntry, kind: str) -> str:
  """One cell; a verdict has a sign and a word, not only a colour."""
  words = text(entry)
  kind = f"v {_slug(words)}" if words in _VERDICTS else kind
  return f'<td class="{kind}">{_write_prose(words)}</td>'


def _write_prose(words: str) -> str:
  """Escaped, with `code` in backticks."""
  return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(words))


def _write_figure(drawing: figures.Drawing) -> str:
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
    f"<figcaption>{_write_prose(drawing.caption)}</figcaption>\n</figure>\n"
  )


def _slug(words: str) -> str:
  """For an id or a class."""
  return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
